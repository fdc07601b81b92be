use std::net::IpAddr;

use proptest::prelude::*;

use super::ForwardedHeader::{self, CfConnectingIp, Forwarded, XForwardedFor, XRealIp};
use super::{ClientError, counted_as};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Proxies are in 10.0.0.0/8 and fd00::/8.
fn is_trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.octets()[0] == 0xfd,
    }
}

fn client(header: ForwardedHeader, peer: &str, lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    header.client(ip(peer), lines, is_trusted).unwrap().to_string()
}

#[test]
fn headers_of_an_untrusted_peer_are_ignored() {
    assert_eq!(client(XForwardedFor, "192.0.2.1", &["198.51.100.9"]), "192.0.2.1");
    assert_eq!(client(Forwarded, "192.0.2.1", &["for=198.51.100.9"]), "192.0.2.1");
}

#[test]
fn a_header_with_one_address_is_the_client_of_a_trusted_peer() {
    for header in [XRealIp, CfConnectingIp] {
        assert_eq!(client(header, "10.0.0.1", &["192.0.2.7"]), "192.0.2.7");
        assert_eq!(client(header, "10.0.0.1", &[" ::ffff:192.0.2.7 "]), "192.0.2.7");
        assert_eq!(client(header, "10.0.0.1", &["2001:db8::7"]), "2001:db8::7");
        assert_eq!(client(header, "10.0.0.1", &["10.0.0.9"]), "10.0.0.9", "not a list");
        assert_eq!(client(header, "10.0.0.1", &[]), "10.0.0.1", "the proxy itself");
        assert_eq!(client(header, "192.0.2.1", &["198.51.100.9"]), "192.0.2.1");
        assert_eq!(client(header, "192.0.2.1", &["x", "y"]), "192.0.2.1", "ignored");
        let refused = |lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
            header.client(ip("10.0.0.1"), lines, is_trusted).unwrap_err()
        };
        assert_eq!(refused(&["192.0.2.7", "192.0.2.7"]), ClientError::Twice(header));
        for garbage in ["", "unknown", "192.0.2.7, 192.0.2.8", "192.0.2.300", "for=192.0.2.7"] {
            assert_eq!(refused(&[garbage]), ClientError::NotAnAddress(header), "{garbage:?}");
        }
        assert_eq!(header.name().to_ascii_uppercase().parse(), Ok(header));
    }
    let unknown = "x-client-ip".parse::<ForwardedHeader>().unwrap_err().to_string();
    assert_eq!(unknown, "expected x-forwarded-for, forwarded, x-real-ip or cf-connecting-ip");
}

#[test]
fn the_first_address_from_the_right_that_is_not_trusted_is_the_client() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "10.0.0.1"),
        (&["192.0.2.7"], "192.0.2.7"),
        (&["6.6.6.6, 192.0.2.7"], "192.0.2.7"),
        (&["6.6.6.6,192.0.2.7 ,\t10.9.9.9"], "192.0.2.7"),
        (&["6.6.6.6", "192.0.2.7", "10.9.9.9"], "192.0.2.7"),
        (&["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
        (&["192.0.2.7:51234"], "192.0.2.7"),
        (&["[2001:db8::7]:51234"], "2001:db8::7"),
        (&["[2001:db8::7]"], "2001:db8::7"),
        (&["2001:db8::7"], "2001:db8::7"),
        (&["::ffff:192.0.2.7"], "192.0.2.7"),
        (&["192.0.2.7, ::ffff:10.0.0.9"], "192.0.2.7"),
    ];
    for (lines, expected) in cases {
        assert_eq!(client(XForwardedFor, "10.0.0.1", lines), *expected, "{lines:?}");
        assert_eq!(client(XForwardedFor, "::ffff:10.0.0.1", lines), *expected, "{lines:?}");
    }
}

#[test]
fn unreadable_entry_ends_the_walk_at_the_last_good_hop() {
    for garbage in ["", " ", "unknown", "192.0.2.300", "192.0.2.7.", "1.2.3.4:x", "\"1.2.3.4\""] {
        let line = format!("192.0.2.7, {garbage}, 10.2.2.2");
        assert_eq!(client(XForwardedFor, "10.0.0.1", &[&line]), "10.2.2.2", "{garbage:?}");
    }
    assert_eq!(client(XForwardedFor, "10.0.0.1", &["192.0.2.7,"]), "10.0.0.1");
    let lines = [b"\xff\xfe".as_slice()];
    assert_eq!(XForwardedFor.client(ip("10.0.0.1"), lines, is_trusted), Ok(ip("10.0.0.1")));
}

#[test]
fn forwarded_follows_rfc_7239() {
    let cases = [
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("for=6.6.6.6, FOR=192.0.2.60", "192.0.2.60"),
        ("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
        ("for=\"192.0.2.43:47011\"", "192.0.2.43"),
        ("proto=\"a;b,c\";for=192.0.2.43", "192.0.2.43"),
        ("for=192.0.2.1, for=10.7.7.7;host=\"x, for=6.6.6.6\"", "192.0.2.1"),
        // A hop without an address ends what is known.
        ("for=192.0.2.1, for=_hidden", "10.0.0.1"),
        ("for=192.0.2.1, for=unknown, for=10.3.3.3", "10.3.3.3"),
        ("for=192.0.2.1, proto=https", "10.0.0.1"),
        ("for=192.0.2.1;for=192.0.2.2", "10.0.0.1"),
        ("for=\"\\1\\9\\2.0.2.1\"", "10.0.0.1"),
        ("192.0.2.1", "10.0.0.1"),
        ("for=192.0.2.60 ,\tfor=10.1.1.1 ", "192.0.2.60"),
        // Pairs may be empty, but not without a value.
        ("for=192.0.2.60;", "192.0.2.60"),
        (";;for=192.0.2.60; ;proto=http", "192.0.2.60"),
        ("for=192.0.2.60, ;", "10.0.0.1"),
        ("for=192.0.2.60;secure", "10.0.0.1"),
        // An escaped quote ends no quotes, an escaped backslash escapes nothing, and there are no
        // escapes outside of quotes.
        (r#"for=192.0.2.1, for=10.7.7.7;host="x\", for=6.6.6.6""#, "192.0.2.1"),
        (r#"for=192.0.2.1, for=10.7.7.7;host="x, for=6.6.6.6\\""#, "192.0.2.1"),
        (r#"proto="a\";b";for=192.0.2.43"#, "192.0.2.43"),
        (r"proto=\;for=192.0.2.43", "192.0.2.43"),
    ];
    for (line, expected) in cases {
        assert_eq!(client(Forwarded, "10.0.0.1", &[line]), expected, "{line}");
    }
}

#[test]
fn an_open_quote_of_a_client_swallows_nothing_that_a_proxy_appended() {
    for start in ["for=\"", "for=\"x\\", "\"\"\"", "for=\"6.6.6.6, for=6.6.6.7", "\\\""] {
        let line = format!("{start}, for=192.0.2.9, for=10.1.1.1");
        assert_eq!(client(Forwarded, "10.0.0.1", &[&line]), "192.0.2.9", "{start}");
    }
}

#[test]
fn clients_are_counted_by_the_network_that_they_own() {
    assert_eq!(counted_as(ip("2001:db8::1:2:3:4"), 64), ip("2001:db8::"));
    assert_eq!(counted_as(ip("2001:db8::1"), 128), ip("2001:db8::1"));
    assert_eq!(counted_as(ip("2001:db8:ffff::1"), 33), ip("2001:db8:8000::"));
    assert_eq!(counted_as(ip("2001:db8::1"), 0), ip("::"));
    assert_eq!(counted_as(ip("192.0.2.7"), 64), ip("192.0.2.7"));
    assert_eq!(counted_as(ip("::ffff:192.0.2.7"), 64), ip("192.0.2.7"));
}

proptest! {
    #[test]
    fn no_header_bytes_of_a_client_change_its_address(
        line in prop::collection::vec(any::<u8>(), 0..200), forwarded in any::<bool>(),
    ) {
        // A trusted proxy appends the true client; what the client wrote before that is not read.
        let header = if forwarded { Forwarded } else { XForwardedFor };
        let appended: &[u8] = if forwarded { b", for=192.0.2.9" } else { b", 192.0.2.9" };
        let whole = [&line, appended].concat();
        let found = header.client(ip("10.0.0.1"), [whole.as_slice()], is_trusted);
        prop_assert_eq!(found, Ok(ip("192.0.2.9")));
    }

    #[test]
    fn garbage_never_panics(lines in prop::collection::vec("[\\x00-\\xff\",;=\\\\]{0,60}", 0..4)) {
        let bytes: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        let _ = Forwarded.client(ip("10.0.0.1"), bytes.clone(), |_| true);
        let _ = XForwardedFor.client(ip("10.0.0.1"), bytes, |_| true);
    }
}
