use std::time::Duration;

use tidegate_core::Wait;

use super::{GrpcDenial, Message, base64, percent_encoded};

#[test]
fn base64_matches_the_standard() {
    let cases = [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")];
    for (plain, coded) in cases {
        assert_eq!(base64(plain.as_bytes()), coded);
    }
    assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
}

#[test]
fn message_cannot_break_out_of_its_header() {
    assert_eq!(percent_encoded("100% sure\r\nx: €"), "100%25 sure%0D%0Ax: %E2%82%AC");
    assert_eq!(percent_encoded("~\x7f"), "~%7F");
}

#[test]
fn pushback_is_rounded_up_and_negative_when_no_retry_helps() {
    let pushback = |wait| GrpcDenial { message: "", rule: None, wait: Some(wait) }.pushback();
    assert_eq!(pushback(Wait::After(Duration::from_micros(1_001))).as_deref(), Some("2"));
    assert_eq!(pushback(Wait::Never).as_deref(), Some("-1"));
    assert_eq!(pushback(Wait::Unknown), None);
}

#[test]
fn details_are_a_protobuf_status_in_base64() {
    // Encoded by another program from the definitions of google.rpc.
    let head = "CAgSCXNsb3cgZG93b";
    let after_2_s = "hoyCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUmV0cnlJbmZvEgYKBAgCEAUaPwor";
    let details = |wait| {
        let wait = Some(Wait::After(wait));
        GrpcDenial { message: "slow down", rule: Some("r"), wait }.details()
    };
    assert_eq!(
        details(Duration::new(2, 5)),
        format!(
            "{head}{after_2_s}dHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlF1b3RhRmFpbHVyZRIQCg4KAXIS\
             CXNsb3cgZG93bhpPCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuRXJyb3JJbmZvEiMKDFJBVEVf\
             TElNSVRFRBIIdGlkZWdhdGUaCQoEcnVsZRIBcg"
        )
    );
    // The longest time that google.protobuf.Duration allows.
    let longest = details(Duration::from_secs(315_576_000_000));
    assert!(longest.contains("EgsKCQiAvK7OlwkQABo"), "{longest}");
    assert_eq!(details(Duration::MAX), longest);
}

#[test]
fn numbers_take_seven_bits_per_byte() {
    let cases: [(u64, &[u8]); 5] = [
        (0, &[0]),
        (0x7f, &[0x7f]),
        (0x80, &[0x80, 1]),
        (300, &[0xac, 2]),
        (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
    ];
    for (number, bytes) in cases {
        let mut message = Message::default();
        message.varint(number);
        assert_eq!(message.bytes, bytes, "{number}");
    }
}
