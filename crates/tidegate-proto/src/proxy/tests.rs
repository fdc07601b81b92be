use proptest::prelude::*;

use super::{LONGEST, ParsedHeader, ProxyError, ProxyHeader, SIGNATURE_V2, parse};

fn proxied(source: &str, destination: &str) -> ProxyHeader {
    ProxyHeader::Proxied {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&SIGNATURE_V2[..], &[command, family], &length, body].concat()
}

#[test]
fn version_1_is_a_line() {
    let cases = [
        (
            "PROXY TCP4 192.0.2.7 10.0.0.1 51234 443\r\n",
            Ok(proxied("192.0.2.7:51234", "10.0.0.1:443")),
        ),
        (
            "PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n",
            Ok(proxied("[2001:db8::7]:1", "[2001:db8::1]:2")),
        ),
        ("PROXY UNKNOWN\r\n", Ok(ProxyHeader::Local)),
        ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", Ok(ProxyHeader::Local)),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 51234\r\n", Err(ProxyError::Addresses)),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 1 2 3\r\n", Err(ProxyError::Addresses)),
        ("PROXY TCP4 192.0.2.7  10.0.0.1 1 2\r\n", Err(ProxyError::Addresses)),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 +1 2\r\n", Err(ProxyError::Addresses)),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 01 2\r\n", Err(ProxyError::Addresses)),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 65536 2\r\n", Err(ProxyError::Addresses)),
        ("PROXY TCP4 2001:db8::7 10.0.0.1 1 2\r\n", Err(ProxyError::Addresses)),
        ("PROXY TCP6 192.0.2.7 10.0.0.1 1 2\r\n", Err(ProxyError::Addresses)),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 0 65535\r\n", Ok(proxied("192.0.2.7:0", "10.0.0.1:65535"))),
        ("PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n", Err(ProxyError::Addresses)),
        ("PROXY \r\n", Err(ProxyError::Addresses)),
        ("GET / HTTP/1.1\r\n", Err(ProxyError::NotProxy)),
        ("PROXX", Err(ProxyError::NotProxy)),
    ];
    for (line, expected) in cases {
        let rest = format!("{line}GET /");
        let parsed = parse(rest.as_bytes()).map(|parsed| parsed.unwrap());
        assert_eq!(
            parsed,
            expected.map(|header| ParsedHeader { header, length: line.len() }),
            "{line}"
        );
    }
    let endless = format!("PROXY TCP4 {}", "1".repeat(200));
    assert_eq!(parse(endless.as_bytes()), Err(ProxyError::TooLong));
    // The maximum is 107 bytes, including the end of the line.
    let of_length = |length: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(length - 16));
    let longest = ParsedHeader { header: ProxyHeader::Local, length: 107 };
    assert_eq!(parse(of_length(107).as_bytes()), Ok(Some(longest)));
    assert_eq!(parse(&of_length(107).as_bytes()[..106]), Ok(None));
    assert_eq!(parse(of_length(108).as_bytes()), Err(ProxyError::TooLong));
    assert_eq!(parse(&of_length(108).as_bytes()[..107]), Err(ProxyError::TooLong));
}

#[test]
fn version_2_is_binary() {
    let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0xc8, 0x22, 1, 0xbb];
    let with_options = [&v4[..], &[4, 0, 3, 1, 2, 3]].concat();
    let v6 = [&[0x20; 16][..], &[0x30; 16], &[0, 1, 0, 2]].concat();
    let expected_v4 = Ok(proxied("192.0.2.7:51234", "10.0.0.1:443"));
    let expected_v6 = Ok(proxied(
        "[2020:2020:2020:2020:2020:2020:2020:2020]:1",
        "[3030:3030:3030:3030:3030:3030:3030:3030]:2",
    ));
    let cases = [
        (v2(0x21, 0x11, &v4), expected_v4),
        (v2(0x21, 0x11, &with_options), expected_v4),
        (v2(0x21, 0x21, &v6), expected_v6),
        (v2(0x20, 0x00, &[]), Ok(ProxyHeader::Local)),
        (v2(0x20, 0x11, &v4), Ok(ProxyHeader::Local)),
        (v2(0x21, 0x31, &[0; 216]), Ok(ProxyHeader::Local)),
        (v2(0x21, 0x00, &[]), Ok(ProxyHeader::Local)),
        (v2(0x20, 0x00, &[0; LONGEST - 16]), Ok(ProxyHeader::Local)),
        (v2(0x20, 0x00, &[0; LONGEST - 15]), Err(ProxyError::TooLong)),
        (v2(0x21, 0x11, &v4[..11]), Err(ProxyError::Addresses)),
        (v2(0x21, 0x41, &v4), Err(ProxyError::Addresses)),
        (v2(0x21, 0x12, &v4), Err(ProxyError::Addresses)),
        (v2(0x11, 0x11, &v4), Err(ProxyError::Version)),
        (v2(0x22, 0x11, &v4), Err(ProxyError::Version)),
        (v2(0x21, 0x11, &[0; LONGEST]), Err(ProxyError::TooLong)),
    ];
    for (bytes, expected) in cases {
        let parsed = parse(&bytes).map(|parsed| parsed.unwrap());
        let length = bytes.len();
        assert_eq!(parsed, expected.map(|header| ParsedHeader { header, length }), "{bytes:?}");
    }
}

#[test]
fn header_may_arrive_byte_by_byte() {
    let line = b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 443\r\n".to_vec();
    let binary = v2(0x21, 0x11, &[192, 0, 2, 7, 10, 0, 0, 1, 0xc8, 0x22, 1, 0xbb]);
    for whole in [line, binary] {
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), Ok(None), "{length}");
        }
        assert!(parse(&whole).unwrap().is_some());
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(
        start in prop::sample::select(vec![&b""[..], b"PROXY ", &SIGNATURE_V2, b"PROXY TCP4 "]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let whole = [start, &bytes].concat();
        if let Ok(Some(parsed)) = parse(&whole) {
            prop_assert!(parsed.length <= whole.len() && parsed.length <= LONGEST);
        }
    }
}
