//! Invalid frames of every kind and size, and valid ones in pieces.

use std::io::{Read, Write};

use serde_json::Value;
use tidegate_proto::ipc::{FRAME_BYTES_MAX, encode_text};

use crate::harness::{InProcess, PING, is_ok};

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_le_bytes()[..], body].concat()
}

#[test]
fn invalid_frame_gets_an_error_and_is_closed() {
    let server = InProcess::usual();
    let too_long = u32::try_from(FRAME_BYTES_MAX + 1).unwrap();
    let huge_text =
        format!(r#"{{"type":"ping","protocolVersion":"{}"}}"#, "\\u0001".repeat(10_000));
    let deep = "[".repeat(60_000);
    for (bytes, error) in [
        (frame(b""), "the frame is empty"),
        (too_long.to_le_bytes().into(), "the frame is too long: 65537 bytes, 65536 at most"),
        (u32::MAX.to_le_bytes().into(), "the frame is too long: 4294967295 bytes, 65536 at most"),
        // A length in big-endian.
        ([&35_u32.to_be_bytes()[..], PING.as_bytes()].concat(), "the frame is too long"),
        // A client that speaks HTTP.
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "the frame is too long"),
        (frame(b"\xff\xfe{}"), "the frame is not UTF-8"),
        (frame(b"\xed\xa0\x80"), "the frame is not UTF-8"),
        (frame(b"ping"), "the frame is not JSON"),
        (frame(b"{\"type\":\"ping\""), "the frame is not JSON"),
        (frame(b"{\"type\":\"ping\"}{}"), "the frame is not JSON"),
        (frame(b"\0\0\0\0"), "the frame is not JSON"),
        (frame(b"{\"type\":NaN}"), "the frame is not JSON"),
        (frame(deep.as_bytes()), "the frame is not JSON"),
        (frame(b"null"), "the message has the wrong shape"),
        (frame(b"[]"), "the message has the wrong shape"),
        (frame(b"[\"ping\",1]"), "the message has the wrong shape: invalid type: sequence"),
        (frame(b" \n[\"ping\",null]"), "the message has the wrong shape: invalid type: sequence"),
        (frame(b"{}"), "the message has the wrong shape"),
        (frame(b"{\"type\":7}"), "the message has the wrong shape"),
        (
            frame(b"{\"type\":\"ping\",\"protocolVersion\":\"1\"}"),
            "the message has the wrong shape",
        ),
        (frame(b"{\"type\":\"ping\",\"protocolVersion\":1.5}"), "the message has the wrong shape"),
        (frame(b"{\"type\":\"a\",\"type\":\"b\"}"), "the message has the wrong shape"),
        (frame(huge_text.as_bytes()), "the message has the wrong shape"),
    ] {
        let mut caller = server.call();
        caller.send_bytes(&bytes);
        let response: Value = serde_json::from_str(&caller.next().unwrap()).unwrap();
        let text = response["error"].as_str().unwrap();
        assert!(text.starts_with(&format!("Bad request: {error}")), "{text}");
        assert_eq!(response["ok"], false);
        assert_eq!(response["protocolVersion"], 1);
        assert_eq!(caller.next(), None, "{error}");
    }
    assert_eq!(server.call().pings(20), 10, "none of that was charged");
}

#[test]
fn largest_frame_is_served() {
    let server = InProcess::usual();
    let mut caller = server.call();
    let padding = "x".repeat(FRAME_BYTES_MAX - PING.len() - r#","padding":"""#.len());
    let largest = PING.replace('}', &format!(r#","padding":"{padding}"}}"#));
    assert_eq!(largest.len(), FRAME_BYTES_MAX);
    assert!(is_ok(&caller.send_request(&largest)));
    assert!(caller.ping());
}

#[test]
fn frame_may_arrive_byte_by_byte() {
    let server = InProcess::usual();
    let mut caller = server.call();
    for byte in encode_text(PING).unwrap() {
        caller.send_bytes(&[byte]);
    }
    let response: Value = serde_json::from_str(&caller.next().unwrap()).unwrap();
    assert!(is_ok(&response));
}

#[test]
fn many_frames_at_once_are_served_in_order() {
    let server = InProcess::usual();
    let mut caller = server.call();
    caller.send_bytes(&encode_text(PING).unwrap().repeat(20));
    let responses: Vec<Value> =
        (0..20).map(|_| serde_json::from_str(&caller.next().unwrap()).unwrap()).collect();
    assert!(responses[..10].iter().all(is_ok));
    assert!(!responses[10..].iter().any(is_ok));
}

#[test]
fn responses_before_an_invalid_frame_arrive() {
    let server = InProcess::usual();
    let mut caller = server.call();
    let good = encode_text(PING).unwrap();
    caller.send_bytes(&[good.clone(), good.clone(), frame(b"{"), good].concat());
    let responses: Vec<Value> =
        (0..3).map(|_| serde_json::from_str(&caller.next().unwrap()).unwrap()).collect();
    assert_eq!(responses.iter().map(is_ok).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(caller.next(), None);
}

#[test]
fn closing_within_a_frame_affects_no_other() {
    let server = InProcess::usual();
    let whole = encode_text(PING).unwrap();
    for end in 0..whole.len() {
        let mut caller = server.call();
        caller.send_bytes(&whole[..end]);
        if end % 2 == 0 {
            caller.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(caller.next(), None, "there is no request to respond to");
        }
    }
    assert_eq!(server.call().pings(20), 10);
}

#[test]
fn leaving_without_reading_affects_no_other() {
    let server = InProcess::usual();
    for _ in 0..5 {
        let mut caller = server.call();
        caller.send(PING);
    }
    let mut caller = server.call();
    assert!(caller.pings(20) <= 10);
}

/// Whatever bytes arrive, the service serves the next client.
#[test]
fn random_bytes_affect_no_other() {
    let server = InProcess::usual();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..300 {
        let mut noise = vec![0; round];
        for byte in &mut noise {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state.to_le_bytes()[0];
        }
        if round % 2 == 0 {
            // A valid length, so that the rest is parsed.
            noise = frame(&noise);
        }
        let mut caller = server.call();
        // The service may close before all is sent.
        let _ = caller.stream.write_all(&noise);
        let _ = caller.stream.shutdown(std::net::Shutdown::Write);
        let _ = caller.stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(server.call().pings(20), 10);
}
