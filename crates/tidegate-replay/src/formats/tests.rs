//! What all tests of formats use.

use tidegate::policy::Policy;

use super::{LineParser, LogFormat, ParsedLine, request_line};
use crate::STANDARD_FIELDS;
use crate::attributes::AttributePlan;
use crate::record::{Draft, Position};

pub(super) type Values = Vec<Option<String>>;

/// A policy that reads all attributes that there are, and some more.
pub(super) fn plan(given: &[(&str, &str)]) -> AttributePlan {
    let names: Vec<_> = STANDARD_FIELDS.iter().map(|name| format!("'{name}'")).collect();
    let more: String = given
        .iter()
        .filter(|it| !STANDARD_FIELDS.contains(&it.0))
        .map(|it| format!(", '{}'", it.0))
        .collect();
    let policy =
        format!("[[rule]]\nname = 'a'\nkey = [{}{more}]\ncooldown = '1s'", names.join(", "));
    let policy = Policy::from_toml(&policy).unwrap_or_else(|error| panic!("{error}"));
    let given: Vec<_> = given.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    AttributePlan::new(&[(&policy, "default")], &given)
}

pub(super) fn parser(format: LogFormat, given: &[(&str, &str)], time: Option<&str>) -> LineParser {
    LineParser::new(format, &plan(given), time).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn read(parser: &mut LineParser, line: &[u8]) -> (ParsedLine, Values) {
    let mut draft = Draft::default();
    let parsed = parser.parse(line, &mut draft);
    let record = draft.record(0, Position::default());
    (parsed, record.values().map(|value| value.map(str::to_owned)).collect())
}

/// What is read from one line with the usual names.
pub(super) fn values(format: LogFormat, line: &[u8]) -> (ParsedLine, Values) {
    read(&mut parser(format, &[], None), line)
}

/// Values in the order of the attributes; an empty one stands for none.
pub(super) fn all(values: [&str; 9]) -> Values {
    values.iter().map(|it| (!it.is_empty()).then(|| (*it).to_owned())).collect()
}

pub(super) fn none() -> Values {
    vec![None; 9]
}

#[test]
fn a_request_line_has_a_method_and_a_target() {
    for (line, expected) in [
        ("GET / HTTP/1.1", Some(("GET", "/"))),
        ("GET /a b HTTP/1.1", Some(("GET", "/a b"))),
        ("GET /", Some(("GET", "/"))),
        ("M-SEARCH * HTTP/1.1", Some(("M-SEARCH", "*"))),
        ("GET", None),
        ("", None),
        ("-", None),
        ("GET  HTTP/1.1", None),
        ("GET HTTP/1.1", None),
        ("G(T / HTTP/1.1", None),
        (" / HTTP/1.1", None),
        ("GET / FTP/1.1 x", None),
    ] {
        let expected = expected.map(|(a, b)| (a.as_bytes(), b.as_bytes()));
        assert_eq!(request_line(line.as_bytes()), expected, "{line}");
    }
}

#[test]
fn a_field_that_a_format_lacks_is_an_error() {
    let plan = plan(&[("client", "remote_addr")]);
    let error = LineParser::new(LogFormat::Combined, &plan, None).unwrap_err();
    assert_eq!(error.to_string(), "a log in the Combined Log Format has no field `remote_addr`");
    assert!(LineParser::new(LogFormat::Json, &plan, None).is_ok());
    let plan = super::tests::plan(&[("client", "ip")]);
    assert!(LineParser::new(LogFormat::Combined, &plan, None).is_ok());
    assert!(LineParser::new(LogFormat::Combined, &plan, Some("ts")).is_err());
}
