use axum::http::{HeaderMap, HeaderValue};

use super::{Access, SECRET_HEADER, Secret};

fn with_secret() -> Access {
    Access { secret: Some(Secret::new("right")), users: None }
}

fn headers(values: &[&'static str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(SECRET_HEADER, HeaderValue::from_static(value));
    }
    headers
}

#[test]
fn only_the_exact_secret_is_accepted() {
    let access = with_secret();
    assert!(access.is_telegram(&headers(&["right"])));
    for wrong in ["", "righ", "right ", "rights", "wrong", "RIGHT"] {
        assert!(!access.is_telegram(&headers(&[wrong])), "{wrong:?}");
    }
    assert!(!access.is_telegram(&HeaderMap::new()));
}

#[test]
fn two_secret_headers_are_rejected() {
    assert!(!with_secret().is_telegram(&headers(&["right", "right"])));
    assert!(!with_secret().is_telegram(&headers(&["right", "wrong"])));
}

#[test]
fn bytes_that_are_not_utf8_are_rejected() {
    let mut headers = HeaderMap::new();
    headers.insert(SECRET_HEADER, HeaderValue::from_bytes(&[0xff, 0xfe]).unwrap());
    assert!(!with_secret().is_telegram(&headers));
}

#[test]
fn without_a_list_every_user_is_allowed() {
    assert!(Access::default().is_allowed(7));
    let listed = Access { secret: None, users: Some([7, 9].into()) };
    assert!(listed.is_allowed(7) && listed.is_allowed(9) && !listed.is_allowed(8));
}

#[test]
fn secret_is_not_printed() {
    assert_eq!(format!("{:?}", Secret::new("right")), "Secret(..)");
    assert!(!format!("{:?}", with_secret()).contains("right"));
}
