//! Pings, slow readers, and floods without reading.

use std::time::Duration;

use tidegate_relay::wire::MessageType;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::program::Program;
use crate::raw::{BINARY, CLOSE, FINAL, PING, PONG, Raw, frame};
use crate::server::{Server, TIMEOUT, until};

const SHORT: Duration = Duration::from_millis(40);
const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn ping_gets_a_pong_with_its_payload() {
    let server = Server::with_burst(1).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.write(PING | FINAL, b"are you there").await;
    let pong = raw.read().await;
    assert_eq!((pong.opcode, &*pong.payload), (PONG, &b"are you there"[..]));
}

#[tokio::test]
async fn client_that_replies_to_pings_stays() {
    let server = Server::start(|builder| builder.ping(SHORT, LONG)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    let mut payloads = Vec::new();
    for _ in 0..5 {
        let ping = raw.read().await;
        assert_eq!(ping.opcode, PING);
        raw.write(PONG | FINAL, &ping.payload).await;
        payloads.push(ping.payload);
    }
    payloads.dedup();
    assert_eq!(payloads.len(), 5, "every ping is another one");
    assert_eq!(server.relay.connections(), 1);
}

#[tokio::test]
async fn client_without_pong_is_disconnected_and_removed() {
    let server = Server::start(|builder| builder.ping(SHORT, SHORT)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.write(BINARY | FINAL, b"x").await;
    assert_eq!(raw.read().await.opcode, PING);
    assert_eq!(raw.read().await.close_code(), 1008);
    assert_eq!((server.relay.connections(), server.relay.buckets()), (0, 0));
}

#[tokio::test]
async fn unexpected_pong_does_not_count() {
    let server = Server::start(|builder| builder.ping(SHORT, SHORT)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.write(PONG | FINAL, b"early").await;
    assert_eq!(raw.read().await.opcode, PING);
    raw.write(PONG | FINAL, b"not yours").await;
    assert_eq!(raw.read().await.opcode, CLOSE);
}

/// One recipient does not read. Its sender never waits, others get their messages, and the queue is
/// bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_reader_delays_no_other() {
    let server =
        Server::start(|builder| builder.limit(None).write_within(LONG).queue(8, 1 << 20)).await;
    let (mut ada, mut carol) = (server.join(1).await, server.join(3).await);
    let (mut slow, slow_address) = Raw::join(server.address, 2).await;
    let mut envelope = ada.envelope(&slow_address, b"x");
    envelope.extend([0x52, 0xe0, 0xd4, 0x03]);
    envelope.extend(vec![0; 60_000]);
    for _ in 0..400 {
        ada.send(envelope.clone()).await;
    }
    // All 24 MB were read from her; little of it is stored.
    ada.receives_nothing().await;
    ada.send_to(&carol.address, b"quick").await;
    assert_eq!(carol.receive_envelope().await.message_id, b"quick");
    // When it reads again, it gets the oldest ones, whole, and then the next.
    let mut received = 0;
    loop {
        ada.send_to(&slow_address, b"next").await;
        ada.receives_nothing().await;
        let frame = slow.read().await;
        if frame.envelope().message_id == b"next" {
            break;
        }
        assert_eq!(frame.payload, envelope);
        received += 1;
    }
    assert!((8..400).contains(&received), "{received}");
}

/// Denials to a client that never reads them: the relay stops reading, then disconnects it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn flood_without_reading_is_throttled_and_then_disconnected() {
    let server = Server::start(|builder| builder.write_within(Duration::from_millis(300))).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    // Long ids make the denials large, so that the buffers are soon full.
    let name = vec![7; 60_000];
    let envelope = prost::Message::encode_to_vec(&tidegate_relay::wire::Envelope {
        message_id: name,
        r#type: MessageType::Message.into(),
        ..Default::default()
    });
    let flood = async {
        let bytes = frame(BINARY | FINAL, &envelope);
        while raw.stream.write_all(&bytes).await.is_ok() {}
    };
    timeout(TIMEOUT, flood).await.expect("the relay should have disconnected");
    server.until_connections(0).await;
    assert_eq!(server.relay.buckets(), 0);
}

/// Pings from a client that does not read the pongs: the number of stored pongs is bounded.
#[tokio::test]
async fn flood_of_pings_without_reading_fills_no_memory() {
    let program = Program::start(&[]).await;
    let (mut raw, _) = Raw::join(program.address, 1).await;
    let before = program.peak_kib();
    let pings: Vec<u8> = (0..1_000).flat_map(|_| frame(PING | FINAL, &[0; 125])).collect();
    for _ in 0..200 {
        raw.stream.write_all(&pings).await.unwrap();
    }
    raw.write(PING | FINAL, b"last").await;
    while raw.read().await.payload != b"last" {}
    let after = program.peak_kib();
    assert!(after < before + 4_096, "{before} KiB before, {after} KiB after 26 MB of pings");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn flood_of_pings_without_reading_is_disconnected() {
    let server = Server::start(|builder| builder.ping(SHORT, SHORT)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    let pings: Vec<u8> = (0..1_000).flat_map(|_| frame(PING | FINAL, &[0; 125])).collect();
    let flood = async { while raw.stream.write_all(&pings).await.is_ok() {} };
    timeout(TIMEOUT, flood).await.expect("the relay should have disconnected");
    assert_eq!(server.relay.connections(), 0);
}

#[tokio::test]
async fn half_a_message_without_pong_is_disconnected_in_time() {
    let server = Server::start(|builder| builder.ping(SHORT, SHORT)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.stream.write_all(&frame(BINARY | FINAL, &[0; 60_000])[..30_000]).await.unwrap();
    until(|| server.relay.connections() == 0).await;
}
