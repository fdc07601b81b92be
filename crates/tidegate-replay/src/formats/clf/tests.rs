use crate::formats::tests::{all, none, values};
use crate::formats::{LogFormat, ParsedLine};

const TIME: &str = "[12/May/2024:00:00:17 +0000]";
const AT: u64 = 1_715_472_017_000_000_000;

/// Lines, and what is read from them: ip, user, method, path, host, status, bytes, agent, referer.
#[test]
fn what_is_there_is_read_and_the_rest_is_left_out() {
    let table = [
        (
            format!(r#"192.0.2.1 - ada {TIME} "GET /a?b=c HTTP/1.1" 200 51 "http://x/" "curl/8""#),
            all(["192.0.2.1", "ada", "GET", "/a", "", "200", "51", "curl/8", "http://x/"]),
        ),
        (
            format!(r#"2001:db8::1 - - {TIME} "POST /a//b/../%63 HTTP/2.0" 304 -"#),
            all(["2001:db8::1", "", "POST", "/a/c", "", "304", "", "", ""]),
        ),
        (
            format!(r#"host.example - - {TIME} "-" 400 0 "-" "-""#),
            all(["host.example", "", "", "", "", "400", "0", "", ""]),
        ),
        (
            format!(r#"192.0.2.1 - - {TIME} "\x16\x03\x01" 400 157 "-" "-""#),
            all(["192.0.2.1", "", "", "", "", "400", "157", "", ""]),
        ),
        (
            format!(
                r#"192.0.2.1 - ada lovelace {TIME} "GET / HTTP/1.1" x -5 "-" "a \"b\" \\ \x41""#
            ),
            all(["192.0.2.1", "ada lovelace", "GET", "/", "", "", "", r#"a "b" \ A"#, ""]),
        ),
        (
            format!(r#"192.0.2.1 - - {TIME} "GET /%zz HTTP/1.1" 200 5 "-" "x" "more" 17"#),
            all(["192.0.2.1", "", "GET", "", "", "200", "5", "x", ""]),
        ),
        (format!("192.0.2.1 {TIME}"), all(["192.0.2.1", "", "", "", "", "", "", "", ""])),
        (
            format!("192.0.2.1 - - {TIME} 200 7"),
            all(["192.0.2.1", "", "", "", "", "200", "7", "", ""]),
        ),
        (
            format!(r#"192.0.2.1 - [x] {TIME} "GET / HTTP/1.1" 200 "#),
            all(["192.0.2.1", "[x]", "GET", "/", "", "200", "", "", ""]),
        ),
        (
            format!(r#"192.0.2.1 - - {TIME} "GET /unclosed"#),
            all(["192.0.2.1", "", "GET", "/unclosed", "", "", "", "", ""]),
        ),
        (format!("- - - {TIME}"), none()),
    ];
    for (line, expected) in table {
        let (parsed, found) = values(LogFormat::Combined, line.as_bytes());
        assert_eq!(parsed, ParsedLine::Request(AT), "{line}");
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn lines_without_an_address_or_a_time_are_unreadable() {
    for line in [
        "",
        "   ",
        " \"curl/7.54.0\"",
        "192.0.2.1",
        "192.0.2.1 - - 12/May/2024:00:00:17 +0000 \"GET / HTTP/1.1\"",
        "192.0.2.1 - - [12/May/2024] \"GET / HTTP/1.1\" 200 1",
        "192.0.2.1 - - [] \"GET / HTTP/1.1\" 200 1",
        "192.0.2.1 - - \"GET /[12/May/2024:00:00:17 +0000] HTTP/1.1\" 200 1",
        " 192.0.2.1 - - [12/May/2024:00:00:17 +0000]",
        "\u{0}\u{1}\u{2}",
    ] {
        let (parsed, _) = values(LogFormat::Combined, line.as_bytes());
        assert!(matches!(parsed, ParsedLine::Unreadable(_)), "{line:?}: {parsed:?}");
    }
}

#[test]
fn bytes_that_are_not_text_are_replaced() {
    let line =
        b"192.0.2.1 - - [12/May/2024:00:00:17 +0000] \"GET /\xff HTTP/1.1\" 200 1 \"-\" \"\xfe\"";
    let (parsed, found) = values(LogFormat::Combined, line);
    assert_eq!(parsed, ParsedLine::Request(AT));
    assert_eq!(found, all(["192.0.2.1", "", "GET", "/%FF", "", "200", "1", "\u{fffd}", ""]));
}
