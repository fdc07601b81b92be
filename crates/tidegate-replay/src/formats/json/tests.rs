use crate::formats::tests::{all, none, parser, read, values};
use crate::formats::{LogFormat, ParsedLine};

const AT: u64 = 1_715_472_017_000_000_000;

#[test]
fn fields_of_every_server_are_known() {
    let expected = || {
        all(["192.0.2.1", "ada", "GET", "/a", "example.com", "200", "51", "curl/8", "http://x/"])
    };
    let caddy = r#"{"level":"info","ts":1715472017,"logger":"http.log.access","msg":"handled request",
        "request":{"remote_ip":"198.51.100.1","remote_port":"1","client_ip":"192.0.2.1","proto":"HTTP/2.0",
        "method":"GET","host":"example.com","uri":"/a?b=c","headers":{"User-Agent":["curl/8"],
        "Referer":["http://x/"]}},"bytes_read":0,"user_id":"ada","duration":0.1,"size":51,"status":200}"#;
    let istio = r#"{"start_time":"2024-05-12T00:00:17.000Z","method":"GET","path":"/a?b=c","protocol":"HTTP/1.1",
        "response_code":200,"bytes_sent":51,"user_agent":"curl/8","authority":"example.com","user":"ada",
        "referer":"http://x/","x_forwarded_for":"203.0.113.1","downstream_remote_address":"192.0.2.1:4711"}"#;
    let envoy_gateway = r#"{"start_time":"2024-05-12T00:00:17.000Z","method":"GET","x-envoy-origin-path":"/a",
        "response_code":"200","bytes_sent":"51","user-agent":"curl/8",":authority":"example.com","user":"ada",
        "referer":"http://x/","x-forwarded-for":"192.0.2.1, 10.0.0.1"}"#;
    let traefik = r#"{"ClientAddr":"192.0.2.1:4711","ClientHost":"192.0.2.1","ClientUsername":"ada",
        "DownstreamContentSize":51,"DownstreamStatus":200,"RequestHost":"example.com","RequestMethod":"GET",
        "RequestPath":"/a?b=c","StartUTC":"2024-05-12T00:00:17.000000000Z","request_User-Agent":"curl/8",
        "request_Referer":"http://x/","time":"2024-05-12T00:00:18Z"}"#;
    let nginx = r#"{"time_iso8601":"2024-05-12T02:00:17+02:00","remote_addr":"192.0.2.1","remote_user":"ada",
        "request":"GET /a?b=c HTTP/1.1","http_host":"example.com","status":"200","body_bytes_sent":"51",
        "http_user_agent":"curl/8","http_referer":"http://x/"}"#;
    for (format, line) in [
        (LogFormat::Caddy, caddy),
        (LogFormat::Envoy, istio),
        (LogFormat::Envoy, envoy_gateway),
        (LogFormat::Traefik, traefik),
        (LogFormat::Json, nginx),
    ] {
        let line = line.replace('\n', " ");
        assert_eq!(
            values(format, line.as_bytes()),
            (ParsedLine::Request(AT), expected()),
            "{line}"
        );
    }
}

#[test]
fn values_of_every_type_are_text_or_absent() {
    for (json, expected) in [
        (r#""a \"b\" \u00e4""#, Some("a \"b\" ä")),
        ("17", Some("17")),
        ("-1.50", Some("-1.50")),
        ("true", Some("true")),
        (r#"["x", "y"]"#, Some("x")),
        ("null", None),
        (r#""-""#, None),
        (r#""""#, None),
        ("{}", None),
        ("[]", None),
        ("[[1]]", None),
    ] {
        let line = format!(r#"{{"time":"1715472017","user":{json}}}"#);
        let (parsed, found) = values(LogFormat::Json, line.as_bytes());
        assert_eq!((parsed, found[1].as_deref()), (ParsedLine::Request(AT), expected), "{line}");
    }
}

#[test]
fn names_are_given_with_dots_into_objects() {
    let given = [("ip", "client.address"), ("plan", "labels.plan"), ("flat", "a.b")];
    let mut parser = parser(LogFormat::Json, &given, Some("at.s"));
    let line = br#"{"client":{"address":"192.0.2.1"},"labels":{"plan":"free"},"a.b":7,"at":{"s":1715472017},"ip":"x"}"#;
    let (parsed, found) = read(&mut parser, line);
    assert_eq!(parsed, ParsedLine::Request(AT));
    assert_eq!(found[0].as_deref(), Some("192.0.2.1"));
    assert_eq!((found[9].as_deref(), found[10].as_deref()), (Some("free"), Some("7")));
}

#[test]
fn a_time_that_does_not_parse_gives_way_to_another_field() {
    let line = br#"{"time":"12:00:00","ts":1715472017}"#;
    assert_eq!(values(LogFormat::Json, line), (ParsedLine::Request(AT), none()));
}

#[test]
fn what_is_no_object_with_a_time_is_unreadable() {
    for line in [
        "{",
        "[]",
        "17",
        "{}",
        r#"{"time":"x"}"#,
        r#"{"time":null}"#,
        r#"{"time":1715472017} x"#,
        r#"{"time":1715472017,}"#,
        "null",
    ] {
        let (parsed, _) = values(LogFormat::Json, line.as_bytes());
        assert!(matches!(parsed, ParsedLine::Unreadable(_)), "{line}: {parsed:?}");
    }
}

#[test]
fn deep_objects_do_not_overflow_the_stack() {
    let line = format!("{{\"request\":{}1{}}}", "{\"request\":".repeat(5_000), "}".repeat(5_000));
    let (parsed, _) = values(LogFormat::Caddy, line.as_bytes());
    assert!(matches!(parsed, ParsedLine::Unreadable(_)), "{parsed:?}");
}
