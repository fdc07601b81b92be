//! Malformed input: an error response or a closed connection, and the next client is served.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use crate::http_support::{Apart, Client, Running, request};

const POLICY: &str = r#"
    [[rule]]
    name   = "per-user"
    key    = ["user"]
    window = { max = 1000000, per = "1h" }

    [[rule]]
    name    = "strict"
    domain  = "strict"
    key     = ["user"]
    window  = { max = 1, per = "1h" }
    missing = "share"
"#;

/// The next client is served.
#[track_caller]
fn assert_serves(daemon: &Running) {
    let reply = daemon.post("/v1/check", r#"{"attributes":{"user":"next"}}"#);
    assert_eq!(reply.status, 200);
}

/// Sends bytes, and returns everything until the connection is closed.
fn response(daemon: &Running, bytes: &[u8]) -> String {
    response_of(daemon.address(), bytes)
}

fn response_of(address: SocketAddr, bytes: &[u8]) -> String {
    let mut client = Client::new(address);
    client.send(bytes);
    client.finish();
    String::from_utf8_lossy(&client.rest()).into_owned()
}

#[test]
fn invalid_lengths_and_heads_are_rejected() {
    let daemon = Running::new(POLICY);
    let long = "x".repeat(20_000);
    let many = "a: b\r\n".repeat(500);
    let table = [
        ("POST /v1/check HTTP/1.1\r\ncontent-length: -1\r\n\r\n{}", "400"),
        ("POST /v1/check HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n{}", "400"),
        ("POST /v1/check HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}", "400"),
        ("POST /v1/check HTTP/1.1\r\ncontent-length: 9999999999\r\n\r\n{}", "413"),
        ("POST /v1/check HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "400"),
        (
            "POST /v1/check HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
            "400",
        ),
        ("POST /v1/check HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n", "400"),
        ("GET / HTTP/9.9\r\n\r\n", "400"),
        ("\0\0\0\0\r\n\r\n", "400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
        ("*1\r\n$4\r\nPING\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nhost: a\r\n b\r\n\r\n", "400"),
        (&format!("GET /{long} HTTP/1.1\r\n\r\n"), "4"),
        (&format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n"), "431"),
        (&format!("GET / HTTP/1.1\r\n{many}\r\n"), "431"),
    ];
    for (bytes, status) in table {
        let response = response(&daemon, bytes.as_bytes());
        let head = bytes.get(..60.min(bytes.len()));
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 "), "{head:?}: {response}");
        assert!(response.get(9..).unwrap_or_default().starts_with(status), "{head:?}: {response}");
        assert_serves(&daemon);
    }
}

#[test]
fn bodies_too_large_or_too_deep_are_rejected() {
    let daemon = Running::with(POLICY, |bounds| bounds.body_bytes = 10_000);
    let padded = |length: usize| format!("{{{}}}", " ".repeat(length - 2));
    assert_eq!(daemon.post("/v1/check", &padded(10_000)).status, 429, "no user");
    assert_eq!(daemon.post("/v1/check", &padded(10_001)).problem().0, 413);
    assert_eq!(daemon.post("/v1/check", &padded(15_000)).problem().0, 413);
    let mut client = daemon.client();
    client
        .send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    while client.send(b"5\r\n     \r\n") {}
    for open in ["[", "{\"attributes\":", "{\"attributes\":{\"a\":[", "{\"requests\":[["] {
        let nested = open.repeat(9_000 / open.len());
        let status = daemon.post("/v1/check", &nested).status;
        assert!(matches!(status, 400 | 422), "{open}: {status}");
    }
    assert_serves(&daemon);
}

#[test]
fn single_bytes_are_joined_and_garbage_closes_the_connection() {
    let daemon = Running::new(POLICY);
    let valid = request("POST", "/v1/check", &[], br#"{"attributes":{"user":"ada"}}"#);
    let mut client = daemon.client();
    for byte in &valid {
        assert!(client.send(&[*byte]));
    }
    assert_eq!(client.receive().unwrap().status, 200);
    // Pipelined requests are handled in their order, until one is malformed.
    client.send(&[&valid[..], &valid[..], b"\x16\x03\x01garbage\r\n\r\n"].concat());
    assert_eq!(client.receive().unwrap().status, 200);
    assert_eq!(client.receive().unwrap().status, 200);
    assert_eq!(client.receive().unwrap().status, 400);
    assert_eq!(client.rest(), b"");
    for end in 0..valid.len() {
        let response = response(&daemon, &valid[..end]);
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{end}: {response}");
    }
    assert_serves(&daemon);
}

#[test]
fn keys_with_special_characters_are_kept_apart() {
    let daemon = Running::new(POLICY);
    let long = "k".repeat(100_000);
    let odd = [
        "\0",
        "a\r\nSet-Cookie: b",
        "\"quoted\\",
        "<script>alert(1)</script>",
        "\u{202e}gnp.exe",
        "\u{feff}",
        "'; DROP TABLE users; --",
        "{\"user\":1}",
        "",
        &long,
    ];
    for key in odd {
        let ask = serde_json::json!({ "domain": "strict", "attributes": { "user": key } });
        let ask = ask.to_string();
        assert_eq!(daemon.post("/v1/check", &ask).status, 200);
        assert_eq!(daemon.post("/v1/check", &ask).status, 429, "each has a budget of its own");
        let why = daemon.post("/v1/explain", &ask).json();
        assert_eq!(why["rules"][0]["key"]["user"], key);
        // The same as the name of an attribute, of a domain and of a field.
        let ask = serde_json::json!({ "domain": key, "attributes": { key: 1.5 } }).to_string();
        assert_eq!(daemon.post("/v1/check", &ask).problem().0, 422);
        let ask = serde_json::json!({ key: 1 }).to_string();
        assert!(daemon.post("/v1/check", &ask).problem().1.len() < 1_000);
    }
    assert_eq!(daemon.post("/v1/check", r#"{"domain":"strict"}"#).status, 200, "shared");
    let mut client = daemon.client();
    client.send(b"GET /check/forward?domain=strict HTTP/1.1\r\nhost: localhost\r\nx-forwarded-uri: /\xff\xfe\r\nx-forwarded-for: \xff\r\n\r\n");
    assert_eq!(client.receive().unwrap().status, 429, "shared, and consumed");
    let response = response(&daemon, b"GET /%00%0d%0a\xff HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 4"), "{response}");
    assert_serves(&daemon);
}

#[test]
fn mutated_requests_never_break_the_daemon() {
    let daemon = Apart::new("mutations", POLICY);
    let ask = br#"{"domain":"strict","attributes":{"user":"ada","n":-17},"cost":3,"peek":true}"#;
    let batch = br#"{"requests":[{"attributes":{"user":"a"}},{"cost":0}]}"#;
    let forwarded = [("X-Forwarded-For", "192.0.2.7, 10.0.0.1"), ("X-Forwarded-Uri", "/a?b")];
    let valid = [
        request("POST", "/v1/check", &[("Idempotency-Key", "one")], ask),
        request("POST", "/v1/check/batch", &[("Content-Type", "application/json")], batch),
        request("POST", "/v1/reserve", &[], br#"{"attributes":{"user":"b"}}"#),
        request("POST", "/v1/refund", &[], br#"{"attributes":{"user":"b"},"amount":1}"#),
        request("GET", "/check/forward?domain=strict", &forwarded, b""),
        b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
            .to_vec(),
    ];
    let mut chance = Chance(RandomState::new().hash_one(0));
    let seed = chance.0;
    let mut before = None;
    for number in 0..10_000 {
        let mut bytes = valid[chance.below(valid.len())].clone();
        for _ in 0..=chance.below(3) {
            mutate(&mut bytes, &mut chance);
        }
        let response = response_of(daemon.address(), &bytes);
        let is_http = response.is_empty() || response.starts_with("HTTP/1.");
        assert!(is_http, "seed {seed}, number {number}: {bytes:?}: {response}");
        if number == 2_000 {
            before = Some(daemon.resident_kb());
        }
    }
    let grown_kb = daemon.resident_kb().saturating_sub(before.unwrap());
    assert!(grown_kb < 32 << 10, "{grown_kb} kB more than before");
    let mut client = Client::new(daemon.address());
    assert_eq!(client.ask("GET", "/healthz", &[], b"").status, 200);
}

/// Changes, removes or duplicates bytes.
fn mutate(bytes: &mut Vec<u8>, chance: &mut Chance) {
    if bytes.is_empty() {
        return;
    }
    let at = chance.below(bytes.len());
    let end = at + chance.below(16.min(bytes.len() - at) + 1);
    match chance.below(6) {
        0 => bytes[at] ^= 1 << chance.below(8),
        1 => bytes[at] = u8::try_from(chance.below(256)).unwrap(),
        2 => drop(bytes.drain(at..end)),
        3 => {
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        4 => bytes.truncate(at),
        _ => drop(bytes.splice(at..at, *b"99999999999")),
    }
}

/// Pseudo-random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}
