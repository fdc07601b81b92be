use std::time::Duration;

use tidegate_core::Wait;

use super::Problem;

#[test]
fn denial_names_all_limits_and_the_wait() {
    let json = |wait| Problem::quota_exceeded("why", ["a", "b"].into_iter(), wait).to_json();
    let start = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
                 \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
                 \"status\":429,\"detail\":\"why\",\"violated-policies\":[\"a\",\"b\"]";
    let cases = [
        (Some(Wait::After(Duration::from_nanos(1_000_001))), ",\"retry_after_ms\":2}"),
        (Some(Wait::Never), ",\"retry\":\"never\"}"),
        (Some(Wait::Unknown), ",\"retry\":\"unknown\"}"),
        (None, "}"),
    ];
    for (wait, end) in cases {
        assert_eq!(json(wait), format!("{start}{end}"));
    }
}

#[test]
fn other_problems_have_no_limit_fields() {
    assert_eq!(
        Problem::plain(422, "Unprocessable Content", "why").to_json(),
        r#"{"type":"about:blank","title":"Unprocessable Content","status":422,"detail":"why"}"#
    );
    let full = Problem::reduced_capacity("full").to_json();
    assert!(full.contains("#temporary-reduced-capacity\""), "{full}");
    assert!(full.ends_with(r#","status":503,"detail":"full"}"#), "{full}");
}
