#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use super::super::rate_limit_response::{DescriptorStatus, RateLimit, rate_limit::Unit};
use super::{Code, HeaderValue, RateLimitResponse, request_from_json, response_to_json};

#[test]
fn requests_in_camel_case_and_snake_case() {
    let camel = r#"{"domain":"d","hitsAddend":3,"descriptors":[{"entries":[{"key":"k","value":"v"}],
        "limit":{"requestsPerUnit":7,"unit":"HOUR"},"hitsAddend":"5","isNegativeHits":true}]}"#;
    let snake = camel
        .replace("hitsAddend", "hits_addend")
        .replace("requestsPerUnit", "requests_per_unit")
        .replace("isNegativeHits", "is_negative_hits")
        .replace("\"HOUR\"", "3")
        .replace("\"5\"", "5");
    let read = request_from_json(camel.as_bytes()).unwrap();
    assert_eq!(read, request_from_json(snake.as_bytes()).unwrap());
    assert_eq!((&read.domain[..], read.hits_addend), (&b"d"[..], 3));
    let descriptor = &read.descriptors[0];
    assert_eq!(descriptor.entries[0].key, b"k");
    assert_eq!((descriptor.hits_addend, descriptor.is_negative_hits), (Some(5), true));
    let limit = descriptor.limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit), (7, 3));
    let bare = r#"{"domain":null,"descriptors":[{"entries":[{"key":"k"}]}]}"#;
    let bare = request_from_json(bare.as_bytes()).unwrap();
    assert_eq!((&bare.domain[..], bare.descriptors[0].hits_addend), (&b""[..], None));
}

#[test]
fn whole_numbers_in_any_spelling() {
    for number in ["12", "12.0", "1.2e1", "\"12\"", "\"12.0\"", r#""\u0031\u0032""#] {
        let json = format!(
            r#"{{"hitsAddend":{number},"descriptors":[{{"hitsAddend":{number},
                "limit":{{"requestsPerUnit":{number},"unit":"D\u0041Y"}}}}]}}"#
        );
        let read = request_from_json(json.as_bytes()).unwrap_or_else(|it| panic!("{json}: {it}"));
        let descriptor = &read.descriptors[0];
        let limit = descriptor.limit.unwrap();
        assert_eq!((read.hits_addend, descriptor.hits_addend), (12, Some(12)), "{json}");
        assert_eq!((limit.requests_per_unit, limit.unit), (12, 4), "{json}");
    }
    for number in ["1.5", "-1", "-1.0", "1e99", "\"1.5\"", "\"\"", "true"] {
        let json = format!(r#"{{"descriptors":[{{"hitsAddend":{number}}}]}}"#);
        assert!(request_from_json(json.as_bytes()).is_err(), "{json}");
    }
}

#[test]
fn invalid_requests_are_errors_with_a_reason() {
    for (json, why) in [
        ("", "EOF"),
        ("[]", "expected an object"),
        (r#"{"domian":"d"}"#, "unknown field `domian`"),
        (r#"{"hitsAddend":-1}"#, "line 1"),
        (r#"{"hitsAddend":4294967296}"#, "exceeds 32 bits"),
        (r#"{"hitsAddend":"x"}"#, "not a whole number"),
        (r#"{"descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#, "unknown unit"),
        (r#"{"domain":"d"} x"#, "trailing"),
    ] {
        let error = request_from_json(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{json}: {error}");
    }
}

#[test]
fn responses_omit_empty_fields() {
    let limit = RateLimit { requests_per_unit: 10, unit: Unit::Minute.into(), name: "n".into() };
    let response = RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![
            DescriptorStatus { code: Code::Ok.into(), ..Default::default() },
            DescriptorStatus {
                code: Code::OverLimit.into(),
                current_limit: Some(limit),
                limit_remaining: 0,
                duration_until_reset: Some(super::super::Duration { seconds: 7, nanos: 0 }),
            },
        ],
        response_headers_to_add: vec![HeaderValue { key: "k".into(), value: "v".into() }],
        ..Default::default()
    };
    assert_eq!(
        response_to_json(&response),
        r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OK"},{"code":"OVER_LIMIT","currentLimit":{"name":"n","requestsPerUnit":10,"unit":"MINUTE"},"durationUntilReset":"7s"}],"responseHeadersToAdd":[{"key":"k","value":"v"}]}"#
    );
}

#[test]
fn arrays_are_no_messages() {
    for json in [
        r#"["d",[],1]"#,
        r#"{"domain":"d","descriptors":[[[],null,null,null]]}"#,
        r#"{"domain":"d","descriptors":[{"entries":[["key","value"]]}]}"#,
        r#"{"domain":"d","descriptors":[{"entries":[],"limit":[1,"HOUR"]}]}"#,
    ] {
        assert!(request_from_json(json.as_bytes()).is_err(), "{json}");
    }
}
