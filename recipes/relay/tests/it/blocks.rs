//! Blocked senders, allowed origins, and buckets that are kept over reconnects.

use std::path::PathBuf;

use tidegate_relay::BucketLife;
use tidegate_relay::wire::MessageType::{BlockNotification, UnblockNotification};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::TestClient;
use crate::program::{Program, health};
use crate::server::{Server, bucket};

#[tokio::test]
async fn envelopes_of_a_blocked_sender_are_dropped_until_it_is_unblocked() {
    let server = Server::with_limit(None).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    let mut eve = server.join(3).await;
    ada.notify(BlockNotification, &bob.address).await;
    bob.send_to(&ada.address, b"blocked").await;
    bob.receives_nothing().await;
    eve.send_to(&ada.address, b"from eve").await;
    assert_eq!(ada.receive_envelope().await.message_id, b"from eve");
    ada.send_to(&bob.address, b"the other way").await;
    assert_eq!(bob.receive_envelope().await.message_id, b"the other way");
    // Reconnects change nothing, of either.
    ada.leave().await;
    bob.leave().await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    bob.send_to(&ada.address, b"blocked still").await;
    bob.receives_nothing().await;
    ada.receives_nothing().await;
    ada.notify(UnblockNotification, &bob.address).await;
    bob.send_to(&ada.address, b"unblocked").await;
    assert_eq!(ada.receive_envelope().await.message_id, b"unblocked");
}

#[tokio::test]
async fn malformed_notices_have_no_effect_and_are_not_forwarded() {
    let server = Server::with_limit(None).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    // A type without a payload, and a payload of the other type.
    for kind in [BlockNotification, UnblockNotification] {
        let mut envelope = ada.envelope(&bob.address, b"x");
        envelope.extend([0x20, u8::try_from(i32::from(kind)).unwrap()]);
        ada.send(envelope).await;
    }
    ada.receives_nothing().await;
    bob.receives_nothing().await;
    bob.send_to(&ada.address, b"hello").await;
    assert_eq!(ada.receive_envelope().await.message_id, b"hello");
}

#[tokio::test]
async fn blocks_in_a_folder_survive_a_kill() {
    let folder = Folder::new("relay-blocks");
    let variables = [("PINCH_RELAY_DATA_DIR", folder.0.to_str().unwrap())];
    let program = Program::start(&variables).await;
    let mut ada = TestClient::join(program.address, 1).await;
    let bob = TestClient::join(program.address, 2).await;
    let (ada_address, bob_address) = (ada.address.clone(), bob.address.clone());
    ada.notify(BlockNotification, &bob_address).await;
    let mut child = program.child;
    child.kill().await.unwrap();
    let program = Program::start(&variables).await;
    let mut ada = TestClient::join(program.address, 1).await;
    let mut bob = TestClient::join(program.address, 2).await;
    assert_eq!((&ada.address, &bob.address), (&ada_address, &bob_address));
    bob.send_to(&ada.address, b"blocked still").await;
    bob.receives_nothing().await;
    ada.receives_nothing().await;
    ada.notify(UnblockNotification, &bob_address).await;
    bob.send_to(&ada.address, b"unblocked").await;
    assert_eq!(ada.receive_envelope().await.message_id, b"unblocked");
}

#[tokio::test]
async fn refused_blocks_are_reported_by_the_log_and_the_health_check() {
    let limits = [("PINCH_RELAY_RATE_LIMIT", "1000000"), ("PINCH_RELAY_RATE_BURST", "1000000")];
    let (program, log) = Program::start_logged(&limits).await;
    let mut ada = TestClient::join(program.address, 1).await;
    for number in 0..1_002 {
        ada.notify(BlockNotification, &format!("pinch:{number}@relay.example")).await;
    }
    // One notice after the other: all have been applied when a later message is delivered.
    let mut bob = TestClient::join(program.address, 2).await;
    ada.send_to(&bob.address, b"hello").await;
    assert_eq!(bob.receive_envelope().await.message_id, b"hello");
    let health = health(program.address).await;
    assert_eq!((&health["blocks"], &health["blocks_refused"]), (&1_000.into(), &2.into()));
    let log = program.stopped(log).await;
    assert!(log.contains("block refused: its client has too many"), "{log}");
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn bucket_of_an_identity_is_kept_over_reconnects() {
    for (life, is_kept) in [(BucketLife::Connection, false), (BucketLife::Identity, true)] {
        let server = Server::start(|it| it.limit(Some(bucket(2))).bucket_life(life)).await;
        for round in 0..3_u8 {
            let mut ada = server.join(1).await;
            ada.send_to("absent", &[round, 1]).await;
            ada.send_to("absent", &[round, 2]).await;
            match (is_kept, round) {
                (true, 1..) => assert_eq!(ada.denied().await.1, [round, 1]),
                _ => ada.receives_nothing().await,
            }
            drop(ada);
            server.until_connections(0).await;
        }
        assert_eq!(server.relay.buckets(), usize::from(is_kept));
        server.advance_ms(2_000);
        let mut ada = server.join(1).await;
        ada.send_to("absent", b"refilled").await;
        ada.receives_nothing().await;
    }
}

#[tokio::test]
async fn identity_is_a_setting_of_the_program() {
    let program = Program::start(&[
        ("PINCH_RELAY_RATE_LIMIT", "0.001"),
        ("PINCH_RELAY_RATE_BURST", "1"),
        ("PINCH_RELAY_RATE_LIMIT_PER", "identity"),
    ])
    .await;
    let mut ada = TestClient::join(program.address, 1).await;
    ada.send_to("absent", b"1").await;
    ada.receives_nothing().await;
    ada.leave().await;
    let mut ada = TestClient::join(program.address, 1).await;
    ada.send_to("absent", b"2").await;
    assert_eq!(ada.denied().await.1, b"2");
}

#[tokio::test]
async fn an_unlisted_browser_origin_is_refused() {
    let program =
        Program::start(&[("PINCH_RELAY_ALLOWED_ORIGINS", "https://app.example, *.pages.example")])
            .await;
    for (origin, status) in [
        ("", "101"),
        ("Origin: https://app.example\r\n", "101"),
        ("Origin: http://a.pages.example:8080\r\n", "101"),
        ("Origin: https://relay.example\r\n", "101"),
        ("Origin: https://evil.example\r\n", "403"),
        ("Origin: null\r\n", "403"),
        ("Origin: https://app.example\r\nOrigin: https://app.example\r\n", "403"),
    ] {
        let mut stream = TcpStream::connect(program.address).await.unwrap();
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{origin}\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head[9..], status.as_bytes(), "{origin:?}");
    }
}
