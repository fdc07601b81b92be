use proptest::prelude::*;

use super::{Network, Pattern, masked, read_network};

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap()
}

#[test]
fn patterns_match_their_values() {
    for (text, yes, no) in [
        ("GET", &["GET"][..], &["get", "GET ", ""][..]),
        ("/search/*", &["/search/", "/search/a/b"], &["/search", "x/search/"]),
        ("*.png", &[".png", "a/b.png"], &["a.pngx", "png"]),
        ("a*b*c", &["abc", "a-b-b-c", "abcbc"], &["ab", "acb", "abcd"]),
        ("aa*aa", &["aaaa", "aabaa"], &["aa", "aaa"]),
        ("**", &["", "x"], &[]),
        ("*", &["", "x"], &[]),
        ("..=4", &["4", "-9223372036854775808", "0", "-0"], &["5", "4.0", "", "x", "+4"]),
        ("5..", &["5", "9223372036854775807"], &["4", "9223372036854775808"]),
        ("-3..3", &["-3", "2", "02"], &["3", "-4"]),
        ("10.0.0.0/8", &["10.1.2.3", "::ffff:10.1.2.3"], &["11.0.0.0", "10.0.0", "::1", ""]),
        ("192.0.2.7", &["192.0.2.7", "::ffff:192.0.2.7"], &["192.0.2.8"]),
        ("::ffff:192.0.2.0/120", &["192.0.2.9"], &["192.0.3.9"]),
        ("2001:db8::/32", &["2001:db8::1", "2001:DB8:0::1"], &["2001:db9::1", "10.0.0.1"]),
        ("0.0.0.0/0", &["1.2.3.4"], &["::1"]),
        ("..", &[".."], &["1"]),
        ("../etc", &["../etc"], &["/etc"]),
        ("1.2.3.4.5", &["1.2.3.4.5"], &[]),
        ("a/8", &["a/8"], &[]),
        ("12:30", &["12:30"], &[]),
    ] {
        let pattern = pattern(text);
        for value in yes {
            assert!(pattern.matches(value), "{text} matches {value:?}");
        }
        for value in no {
            assert!(!pattern.matches(value), "{text} does not match {value:?}");
        }
    }
}

#[test]
fn malformed_patterns_are_errors() {
    for (text, why) in [
        ("5..5", "empty"),
        ("5..=4", "empty"),
        ("..-9223372036854775808", "empty"),
        ("1..x", "integers"),
        ("x..=3", "integers"),
        ("1..=", "needs an integer"),
        ("10.0.0.1/8", "bits set after"),
        ("10.0.0.0/33", "not a network"),
        ("10.0.0.0/-1", "not a network"),
        ("10.0.0.0/+8", "not a network"),
        ("10.0.0/8", "not an address"),
        ("10.0.0.256", "not an address"),
        ("2001:db8::/129", "not a network"),
        ("::ffff:10.0.0.0/95", "not a network"),
        ("2001::db8::1", "not an address"),
    ] {
        let error = Pattern::read(text).unwrap_err();
        assert!(error.message.contains(why), "{text}: {error:?}");
        assert!(error.hint.is_some(), "{text}");
    }
    let hint = Pattern::read("10.0.0.1/8").unwrap_err().hint.unwrap();
    assert!(hint.contains("`10.0.0.0/8`"), "{hint}");
}

/// Backtracking over every `*`: right, and far too slow to use.
fn slow_glob(glob: &[u8], value: &[u8]) -> bool {
    match glob.split_first() {
        None => value.is_empty(),
        Some((b'*', rest)) => (0..=value.len()).any(|at| slow_glob(rest, &value[at..])),
        Some((byte, rest)) => value.first() == Some(byte) && slow_glob(rest, &value[1..]),
    }
}

proptest! {
    #[test]
    fn globs_match_as_backtracking_does(glob in "[ab*]{0,8}", value in "[ab]{0,10}") {
        let fast = super::glob_matches(&glob, &value);
        prop_assert_eq!(fast, slow_glob(glob.as_bytes(), value.as_bytes()));
    }

    #[test]
    fn a_network_holds_its_own_addresses(bits in 0_u8..=32, raw in any::<u32>()) {
        let address = std::net::IpAddr::V4(raw.into());
        let network = Network { address: masked(address, bits), bits };
        prop_assert!(network.contains(address));
        prop_assert_eq!(read_network(&network.to_string()).unwrap(), Some(network));
    }
}

#[test]
fn a_glob_made_to_be_slow_is_not() {
    let glob = "*a".repeat(20_000) + "*b";
    assert!(!pattern(&glob).matches(&"a".repeat(200_000)));
}

#[test]
fn a_network_is_read_from_text() {
    let network = |text: &str| text.parse::<Network>().map(|network| network.to_string());
    assert_eq!(network("10.0.0.0/8").unwrap(), "10.0.0.0/8");
    assert_eq!(network("2001:db8::1").unwrap(), "2001:db8::1/128");
    assert_eq!(network("::ffff:10.0.0.0/104").unwrap(), "10.0.0.0/8");
    for wrong in ["", "localhost", "10.0.0.1/8", "10.0.0.0/33", "*"] {
        assert!(network(wrong).is_err(), "{wrong:?}");
    }
}
