//! Time-outs of slow clients. No duration is measured: each test only has to end.

use std::time::Duration;

use crate::http_support::Running;

const POLICY: &str = r#"
    [[rule]]
    name   = "all"
    window = { max = 1000000, per = "1h" }
"#;

const SOON: Duration = Duration::from_millis(50);
const HOURS: Duration = Duration::from_secs(7_200);

#[test]
fn an_incomplete_head_times_out() {
    let daemon = Running::with(POLICY, |bounds| bounds.head_time = SOON);
    let mut client = daemon.client();
    client.send(b"POST /v1/check HTTP/1.1\r\nhost:");
    assert_eq!(client.rest(), b"");
    // Also one that arrives a byte at a time, after a complete request.
    let mut client = daemon.client();
    assert_eq!(client.post("/v1/check", "{}").status, 200);
    while client.send(b"G") {}
}

#[test]
fn an_incomplete_body_times_out() {
    let daemon = Running::with(POLICY, |bounds| bounds.request_time = SOON);
    let mut client = daemon.client();
    client.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{");
    assert_eq!(client.rest(), b"");
}

#[test]
fn an_idle_connection_is_closed() {
    let daemon = Running::with(POLICY, |bounds| bounds.head_time = SOON);
    assert_eq!(daemon.client().rest(), b"", "before its first request");
    let daemon = Running::with(POLICY, |bounds| bounds.idle_time = SOON);
    let mut client = daemon.client();
    assert_eq!(client.post("/v1/check", "{}").status, 200);
    assert_eq!(client.rest(), b"");
}

#[test]
fn a_client_that_reads_nothing_is_disconnected() {
    let daemon = Running::with(POLICY, |bounds| bounds.write_time = SOON);
    let mut client = daemon.client();
    while client.send(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n") {}
    assert_eq!(daemon.post("/v1/check", "{}").status, 200);
}

#[test]
fn an_incomplete_head_does_not_delay_shutdown() {
    let mut daemon = Running::with(POLICY, |bounds| {
        (bounds.grace_time, bounds.head_time) = (HOURS, HOURS);
    });
    let mut client = daemon.client();
    assert_eq!(client.post("/v1/check", "{}").status, 200);
    client.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\n");
    let stopped = daemon.stop();
    assert_eq!(client.rest(), b"");
    daemon.wait(stopped).unwrap();
}

#[test]
fn requests_in_flight_are_finished_at_shutdown() {
    let mut daemon = Running::new(POLICY);
    let mut begun = daemon.client();
    // The head has arrived, and half of the body.
    begun.send(
        b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
    );
    assert_eq!(begun.receive().unwrap().status, 100);
    begun.send(b"{");
    let mut idle = daemon.client();
    assert_eq!(idle.post("/v1/check", "{}").status, 200);
    let stopped = daemon.stop();
    assert_eq!(idle.rest(), b"");
    begun.send(b"}");
    assert_eq!(begun.receive().unwrap().status, 200);
    daemon.wait(stopped).unwrap();
}
