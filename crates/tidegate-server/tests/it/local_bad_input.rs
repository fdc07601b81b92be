//! Malformed frames: an error or a closed connection, and the next client is served.

use serde_json::{Value, json};
use tidegate_proto::ipc::encode_text;

use crate::admin::Random;
use crate::running::{POLICY, Running, ping};

fn running() -> Running {
    let rates = "[server]\nunix_user_rate = '1000000/s'\nunix_rate = '1000000/s'\n";
    Running::start(&format!("{rates}{POLICY}"))
}

/// Sends bytes, closes this half of the connection, and returns all responses.
fn responses(running: &Running, bytes: &[u8]) -> Vec<Value> {
    let mut caller = running.caller();
    caller.send_bytes(bytes);
    let _ = caller.stream.shutdown(std::net::Shutdown::Write);
    std::iter::from_fn(|| caller.next()).map(|text| serde_json::from_str(&text).unwrap()).collect()
}

fn framed(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    [&length.to_le_bytes()[..], text].concat()
}

#[test]
fn invalid_frames_get_an_error_and_end_the_connection() {
    let running = running();
    let deep = "[".repeat(10_000);
    let cases: [(Vec<u8>, &str); 12] = [
        (vec![0, 0, 0, 0], "empty"),
        (vec![1, 0, 1, 0], "too long"),
        (vec![0xff; 4], "too long"),
        (vec![0, 0, 0, 0x80], "too long"),
        (framed(b"\xff\xfe{}"), "not UTF-8"),
        (framed(b"{"), "not JSON"),
        (framed(b"{\"type\":\"ping\"}{}"), "not JSON"),
        (framed(deep.as_bytes()), "not JSON"),
        (framed(b"[]"), "wrong shape"),
        (framed(b"{\"type\":7}"), "wrong shape"),
        (framed(br#"{"type":"check","cost":-1}"#), "wrong shape"),
        (framed(br#"{"type":"check","attributes":{"a":{}}}"#), "neither text"),
    ];
    for (bytes, says) in cases {
        // A valid request after it gets no response.
        let all = [&bytes[..], &encode_text(&ping().to_string()).unwrap()].concat();
        let replies = responses(&running, &all);
        assert_eq!(replies.len(), 1, "{says}: {replies:?}");
        let error = replies[0]["error"].as_str().unwrap();
        assert!(replies[0]["ok"] == false && error.contains(says), "{says}: {error}");
    }
    for cut in [&[][..], &[9], &[9, 0, 0], &framed(b"{\"type\"")[..6]] {
        assert!(responses(&running, cut).is_empty(), "{cut:?}");
    }
    assert_eq!(running.caller().ask(&ping())["ok"], true);
}

#[test]
fn requests_arrive_byte_by_byte_or_many_at_once() {
    let running = running();
    let one = encode_text(&ping().to_string()).unwrap();
    let mut caller = running.caller();
    for byte in &one {
        caller.send_bytes(&[*byte]);
    }
    let pong: Value = serde_json::from_str(&caller.next().unwrap()).unwrap();
    assert_eq!(pong["ok"], true);
    assert_eq!(responses(&running, &one.repeat(100)).len(), 100);
}

#[test]
fn a_frame_of_the_largest_size_is_read() {
    let running = running();
    let request = |padding: usize| {
        let request = json!({ "type": "ping", "padding": "x".repeat(padding) });
        framed(request.to_string().as_bytes())
    };
    let room = 64 * 1024 + 4 - request(0).len();
    assert_eq!(responses(&running, &request(room))[0]["ok"], true);
    let too_long = &responses(&running, &request(room + 1))[0];
    assert!(too_long["error"].as_str().unwrap().contains("too long"));
}

/// The anonymous memory of this process, in KiB.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// In a process of its own, so that other tests are not measured.
#[test]
fn mutated_frames_do_not_affect_other_clients() {
    if std::env::var_os(ALONE).is_some() {
        return mutations();
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "local_bad_input::mutated_frames_do_not_affect_other_clients"]);
    let output = alone.env(ALONE, "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

/// Set in the process that measures.
const ALONE: &str = "TIDEGATE_TEST_ALONE";

fn mutations() {
    let running = running();
    let admin = |method: &str, path: &str, body: Value| {
        let path = format!("/admin/v1/{path}");
        json!({ "type": "admin", "method": method, "path": path, "body": body }).to_string()
    };
    let ada = json!({ "user": "ada" });
    let valid = [
        ping().to_string(),
        json!({ "type": "check", "attributes": { "user": "ada", "n": 7 }, "cost": 1 }).to_string(),
        json!({ "type": "reserve", "domain": "d", "attributes": {} }).to_string(),
        json!({ "type": "commit", "reservation": "0123456789abcdef0123456789abcdef" }).to_string(),
        admin("GET", "bans", Value::Null),
        admin("POST", "keys/reset", json!({ "attributes": ada })),
        admin("PATCH", "rules/default/per-user", json!({ "window": { "max": 7, "per": "1h" } })),
        admin("PATCH", "rules/default/per-user", json!("window = { max = 8, per = '1h' }")),
        admin("PUT", "overrides", json!({ "rule": "per-user", "key": ada, "max": 3 })),
        admin("POST", "bans", json!({ "match": ada, "for": "1h", "reason": "x" })),
        admin("DELETE", "bans", json!({ "match": ada })),
        admin("PUT", "policy", json!(POLICY)),
    ];
    let mut random = Random(7);
    let mut before = 0;
    for round in 0..10_000 {
        let first = &valid[random.below(valid.len())];
        let second = &valid[random.below(valid.len())];
        let mut bytes = [framed(first.as_bytes()), framed(second.as_bytes())].concat();
        for _ in 0..=random.below(5) {
            let at = random.below(bytes.len());
            match random.below(5) {
                0 => bytes[at] = random.byte(),
                1 => bytes.truncate(at + 1),
                2 => bytes.insert(at, random.byte()),
                3 => bytes.extend((0..random.below(64)).map(|_| 0xff)),
                _ => bytes[at] ^= 1 << random.below(8),
            }
        }
        for reply in responses(&running, &bytes) {
            assert!(reply["ok"].is_boolean() && reply["protocolVersion"] == 1, "{reply}");
        }
        if round == 2_000 {
            before = resident_kib();
        }
    }
    let grown = resident_kib().saturating_sub(before);
    // 32 KiB leaked by each connection would be found.
    assert!(grown < 256 * 1024, "{grown} KiB more than after the first fifth");
    assert_eq!(running.caller().ask(&ping())["ok"], true);
}
