//! Malformed frames of every kind and size, after authentication.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;

use crate::client::TestClient;
use crate::raw::{BINARY, CONTINUATION, FINAL, PING, PONG, Raw, TEXT, frame};
use crate::server::Server;

/// An envelope of exactly this many bytes.
fn sized(client: &TestClient, to: &str, len: usize) -> Vec<u8> {
    let mut bytes = client.envelope(to, b"id");
    // Field 10 again, with a length of three bytes.
    let rest = len - bytes.len() - 4;
    bytes.extend([0x52, (rest & 0x7f) as u8 | 0x80, (rest >> 7 & 0x7f) as u8 | 0x80]);
    bytes.push((rest >> 14) as u8);
    bytes.extend(vec![0; rest]);
    assert_eq!(bytes.len(), len);
    bytes
}

#[tokio::test]
async fn envelope_of_65536_bytes_is_forwarded_and_one_more_byte_is_not() {
    let server = Server::with_burst(3).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    let largest = sized(&ada, &bob.address, 65_536);
    ada.send(largest.clone()).await;
    assert_eq!(bob.receive().await, largest);
    ada.send(sized(&ada, &bob.address, 65_537)).await;
    ada.receives_nothing().await;
    bob.receives_nothing().await;
    // The connection stays, and the message was charged.
    ada.send_to(&bob.address, b"third").await;
    assert_eq!(bob.receive_envelope().await.message_id, b"third");
    ada.send_to(&bob.address, b"fourth").await;
    assert_eq!(ada.denied().await.1, b"fourth");
}

#[tokio::test]
async fn message_of_131072_bytes_is_dropped_and_one_more_byte_ends_the_connection() {
    let server = Server::with_burst(10).await;
    let mut ada = server.join(1).await;
    ada.send(sized(&ada, "absent", 131_072)).await;
    ada.receives_nothing().await;
    let (mut raw, _) = Raw::join(server.address, 2).await;
    let _ = raw.stream.write_all(&frame(BINARY | FINAL, &[0; 131_073])).await;
    assert_eq!(raw.read().await.close_code(), 1009);
    server.until_connections(1).await;
    ada.receives_nothing().await;
}

#[tokio::test]
async fn fragments_of_a_too_large_message_end_the_connection() {
    let server = Server::with_burst(10).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.write(BINARY, &[0; 65_536]).await;
    raw.write(CONTINUATION, &[0; 65_536]).await;
    raw.write(CONTINUATION, &[0; 1]).await;
    assert_eq!(raw.read().await.close_code(), 1009);
}

/// A stated length alone allocates nothing.
#[tokio::test]
async fn frame_with_a_huge_length_ends_the_connection_at_once() {
    let server = Server::with_burst(10).await;
    for claimed in [1_u64 << 20, 1 << 40, 1 << 62] {
        let (mut raw, _) = Raw::join(server.address, claimed).await;
        let mut head = vec![BINARY | FINAL, 0x80 | 127];
        head.extend(claimed.to_be_bytes());
        head.extend([0; 4]);
        raw.stream.write_all(&head).await.unwrap();
        assert_eq!(raw.read().await.close_code(), 1009);
    }
}

#[tokio::test]
async fn fragmented_message_is_charged_once() {
    let server = Server::with_burst(2).await;
    let mut bob = server.join(2).await;
    let (mut raw, address) = Raw::join(server.address, 1).await;
    let envelope = envelope_of(&address, &bob.address);
    let (first, rest) = envelope.split_at(10);
    raw.write(BINARY, first).await;
    raw.write(PING | FINAL, b"between").await;
    raw.write(CONTINUATION, b"").await;
    raw.write(CONTINUATION | FINAL, rest).await;
    assert_eq!(bob.receive().await, envelope);
    assert_eq!(raw.read().await.opcode, PONG);
    // Four frames were one message: one unit is left.
    raw.write(BINARY | FINAL, &envelope).await;
    assert_eq!(bob.receive().await, envelope);
}

#[tokio::test]
async fn frame_may_arrive_byte_by_byte() {
    let server = Server::with_burst(2).await;
    let mut bob = server.join(2).await;
    let (mut raw, address) = Raw::join(server.address, 1).await;
    let envelope = envelope_of(&address, &bob.address);
    raw.stream.set_nodelay(true).unwrap();
    for byte in frame(BINARY | FINAL, &envelope) {
        raw.stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(bob.receive().await, envelope);
}

#[tokio::test]
async fn malformed_envelopes_are_dropped_and_the_connection_stays() {
    let server = Server::with_burst(100).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    let good = ada.envelope(&bob.address, b"good");
    let tails: [&[u8]; 7] = [
        &[0x52, 100, 1],                                                        // cut short
        &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], // endless varint
        &[0x52, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],          // a length of 2^63
        &[0x1a, 2, 0xc3, 0x28],                                                 // not UTF-8
        &[0x07],                                                                // no such wire type
        &[0x10, 1], // a text as a number
        &[0x0b],    // a group without end
    ];
    for tail in tails {
        ada.send([&good, tail].concat()).await;
    }
    for len in 0..good.len() {
        if len % 3 == 0 {
            ada.send(&good[..len.min(20)]).await;
        }
    }
    ada.receives_nothing().await;
    bob.receives_nothing().await;
    ada.send(good.clone()).await;
    assert_eq!(bob.receive().await, good);
}

#[tokio::test]
async fn text_and_empty_frames_are_dropped_and_the_connection_stays() {
    let server = Server::with_burst(100).await;
    let mut bob = server.join(2).await;
    let (mut raw, address) = Raw::join(server.address, 1).await;
    let envelope = envelope_of(&address, &bob.address);
    raw.write(TEXT | FINAL, b"").await;
    raw.write(TEXT | FINAL, b"hello").await;
    raw.write(BINARY | FINAL, b"").await;
    raw.write(PONG | FINAL, b"unexpected").await;
    raw.write(BINARY | FINAL, &envelope).await;
    assert_eq!(bob.receive().await, envelope);
}

#[tokio::test]
async fn protocol_violations_end_that_connection_and_no_other() {
    let server = Server::with_burst(100).await;
    let mut ada = server.join(0).await;
    let cases: [(&[u8], u16); 8] = [
        (&[BINARY | FINAL, 1, 0], 1002),             // not masked
        (&frame(FINAL | 0x40 | BINARY, b"x"), 1002), // a reserved bit
        (&frame(FINAL | 3, b"x"), 1002),             // an unknown kind of data
        (&frame(FINAL | 11, b"x"), 1002),            // an unknown kind of control
        (&frame(CONTINUATION | FINAL, b"x"), 1002),  // goes on from nothing
        (&frame(PING, b"x"), 1002),                  // a fragmented ping
        (&frame(PING | FINAL, &[0; 126]), 1002),     // a ping that is too long
        (&frame(TEXT | FINAL, &[0xff, 0xfe]), 1007), // not UTF-8
    ];
    for (number, (bytes, code)) in (1..).zip(cases) {
        let (mut raw, _) = Raw::join(server.address, number).await;
        raw.stream.write_all(bytes).await.unwrap();
        assert_eq!(raw.read().await.close_code(), code, "{bytes:02x?}");
    }
    server.until_connections(1).await;
    ada.receives_nothing().await;
}

/// Random bytes instead of frames, before and after the handshake; the relay keeps running.
#[tokio::test]
async fn random_bytes_do_not_stop_the_relay() {
    let server = Server::with_burst(100).await;
    let mut ada = server.join(0).await;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = move |len: usize| -> Vec<u8> {
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(next).collect()
    };
    for round in 1..=100 {
        let mut raw = new_or_authenticated(server.address, round).await;
        // The relay may close while this is written.
        let _ = raw.stream.write_all(&noise(usize::from(round as u8) * 7)).await;
        let _ = raw.stream.shutdown().await;
        raw.read_to_end().await;
    }
    server.until_connections(1).await;
    ada.receives_nothing().await;
    assert_eq!(server.relay.buckets(), 0);
}

async fn new_or_authenticated(relay: SocketAddr, round: u64) -> Raw {
    if round.is_multiple_of(2) {
        Raw::connect(relay).await
    } else {
        Raw::join(relay, round).await.0
    }
}

fn envelope_of(from: &str, to: &str) -> Vec<u8> {
    use prost::Message as _;
    let envelope = tidegate_relay::wire::Envelope {
        version: 1,
        from_address: from.to_owned(),
        to_address: to.to_owned(),
        r#type: 4,
        ..Default::default()
    };
    envelope.encode_to_vec()
}
