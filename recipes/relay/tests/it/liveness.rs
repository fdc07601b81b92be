//! Pings, slow readers, and those who flood and never read.

use std::time::Duration;

use tidegate_relay::wire::MessageType;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::program::Program;
use crate::raw::{BINARY, CLOSE, FINAL, PING, PONG, Raw, frame};
use crate::server::{PATIENCE, Server, until};

const SHORT: Duration = Duration::from_millis(40);
const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_clients_ping_is_answered_with_its_payload() {
    let server = Server::with_burst(1).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.write(PING | FINAL, b"are you there").await;
    let pong = raw.read().await;
    assert_eq!((pong.opcode, &*pong.payload), (PONG, &b"are you there"[..]));
}

#[tokio::test]
async fn who_answers_pings_stays() {
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
async fn who_does_not_answer_a_ping_is_sent_away_and_forgotten() {
    let server = Server::start(|builder| builder.ping(SHORT, SHORT)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.write(BINARY | FINAL, b"x").await;
    assert_eq!(raw.read().await.opcode, PING);
    assert_eq!(raw.read().await.close_code(), 1008);
    assert_eq!((server.relay.connections(), server.relay.buckets()), (0, 0));
}

#[tokio::test]
async fn a_pong_that_answers_nothing_does_not_count() {
    let server = Server::start(|builder| builder.ping(SHORT, SHORT)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.write(PONG | FINAL, b"early").await;
    assert_eq!(raw.read().await.opcode, PING);
    raw.write(PONG | FINAL, b"not yours").await;
    assert_eq!(raw.read().await.opcode, CLOSE);
}

/// One recipient reads nothing. Its sender is never held up, others get their messages, and what
/// waits is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_reader_holds_nobody_up() {
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
    // All 24 MB have been taken from her; hardly any of it is kept.
    ada.hears_nothing().await;
    ada.send_to(&carol.address, b"quick").await;
    assert_eq!(carol.receive_envelope().await.message_id, b"quick");
    // When it reads again, it gets the oldest ones, whole, and then what comes next.
    let mut received = 0;
    loop {
        ada.send_to(&slow_address, b"next").await;
        ada.hears_nothing().await;
        let frame = slow.read().await;
        if frame.envelope().message_id == b"next" {
            break;
        }
        assert_eq!(frame.payload, envelope);
        received += 1;
    }
    assert!((8..400).contains(&received), "{received}");
}

/// Refusals to somebody who never reads them: the relay stops reading, then gives up.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_floods_and_never_reads_is_held_up_and_then_disconnected() {
    let server = Server::start(|builder| builder.write_within(Duration::from_millis(300))).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    // Names make the refusals large, so that the buffers between us are soon full.
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
    timeout(PATIENCE, flood).await.expect("the relay should have given up");
    server.until_connections(0).await;
    assert_eq!(server.relay.buckets(), 0);
}

/// Pings from somebody who does not read the pongs: only so many pongs are kept.
#[tokio::test]
async fn who_floods_pings_and_does_not_read_fills_no_memory() {
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
async fn who_floods_pings_and_never_reads_is_sent_away() {
    let server = Server::start(|builder| builder.ping(SHORT, SHORT)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    let pings: Vec<u8> = (0..1_000).flat_map(|_| frame(PING | FINAL, &[0; 125])).collect();
    let flood = async { while raw.stream.write_all(&pings).await.is_ok() {} };
    timeout(PATIENCE, flood).await.expect("the relay should have given up");
    assert_eq!(server.relay.connections(), 0);
}

#[tokio::test]
async fn half_a_message_and_no_pong_ends_in_time() {
    let server = Server::start(|builder| builder.ping(SHORT, SHORT)).await;
    let (mut raw, _) = Raw::join(server.address, 1).await;
    raw.stream.write_all(&frame(BINARY | FINAL, &[0; 60_000])[..30_000]).await.unwrap();
    until(|| server.relay.connections() == 0).await;
}
