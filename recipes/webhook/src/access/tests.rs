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
fn only_the_secret_itself_opens() {
    let access = with_secret();
    assert!(access.is_telegram(&headers(&["right"])));
    for wrong in ["", "righ", "right ", "rights", "wrong", "RIGHT"] {
        assert!(!access.is_telegram(&headers(&[wrong])), "{wrong:?}");
    }
    assert!(!access.is_telegram(&HeaderMap::new()));
}

#[test]
fn two_headers_are_none() {
    assert!(!with_secret().is_telegram(&headers(&["right", "right"])));
    assert!(!with_secret().is_telegram(&headers(&["right", "wrong"])));
}

#[test]
fn bytes_that_are_no_text_are_wrong_and_nothing_else() {
    let mut headers = HeaderMap::new();
    headers.insert(SECRET_HEADER, HeaderValue::from_bytes(&[0xff, 0xfe]).unwrap());
    assert!(!with_secret().is_telegram(&headers));
}

#[test]
fn without_a_list_everybody_is_welcome() {
    assert!(Access::default().is_welcome(7));
    let listed = Access { secret: None, users: Some([7, 9].into()) };
    assert!(listed.is_welcome(7) && listed.is_welcome(9) && !listed.is_welcome(8));
}

#[test]
fn a_secret_is_not_shown() {
    assert_eq!(format!("{:?}", Secret::new("right")), "Secret(..)");
    assert!(!format!("{:?}", with_secret()).contains("right"));
}
