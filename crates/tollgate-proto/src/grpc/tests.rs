use std::time::Duration;

use tollgate_core::Wait;

use super::{Refusal, base64, percent_encoded};

#[test]
fn base64_is_that_of_the_standard() {
    let cases = [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")];
    for (plain, coded) in cases {
        assert_eq!(base64(plain.as_bytes()), coded);
    }
    assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
}

#[test]
fn a_message_cannot_break_out_of_its_header() {
    assert_eq!(percent_encoded("100% sure\r\nx: €"), "100%25 sure%0D%0Ax: %E2%82%AC");
}

#[test]
fn the_pushback_is_rounded_up_and_says_when_not_to_retry() {
    let pushback = |wait| Refusal { message: "", rule: None, wait: Some(wait) }.pushback();
    assert_eq!(pushback(Wait::After(Duration::from_micros(1_001))).as_deref(), Some("2"));
    assert_eq!(pushback(Wait::Never).as_deref(), Some("-1"));
    assert_eq!(pushback(Wait::Unknown), None);
}
