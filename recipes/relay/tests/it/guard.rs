//! A reconnect gives a full burst, so the guard limits reconnects.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::{Rate, clock::ManualClock};
use tidegate_listen::ListenSocket;
use tidegate_relay::{Relay, serve};
use tidegate_tower::{ClientIp, UpgradeGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::TestClient;
use crate::program::Program;
use crate::server::{HOST, TIMEOUT, bucket, limits};

/// The head of the response to an upgrade request.
async fn attempt(relay: SocketAddr, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(relay).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

/// A guarded relay: two attempts at once, one message at once.
async fn guarded() -> (SocketAddr, ManualClock) {
    let clock = ManualClock::default();
    let rate = Rate::one_every(Duration::from_secs(6));
    let evict = Duration::from_secs(300);
    let guard = UpgradeGuard::with_clock(rate, 2, evict, clock.clone()).unwrap();
    let relay = Relay::builder(HOST).clock(clock.clone()).limit(Some(bucket(1))).build().unwrap();
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let routes = relay.guarded(&guard, ClientIp::peer());
    tokio::spawn(serve(socket, limits(), routes, std::future::pending()));
    (address, clock)
}

#[tokio::test]
async fn reconnect_does_not_evade_the_limit() {
    let (relay, clock) = guarded().await;
    for _ in 0..2 {
        let mut ada = TestClient::join(relay, 1).await;
        ada.send_to("absent", b"allowed").await;
        ada.send_to("absent", b"too early").await;
        assert_eq!(ada.denied().await.1, b"too early");
        ada.leave().await;
    }
    let denied = attempt(relay, "/ws", "").await;
    assert!(denied.starts_with("http/1.1 429 ") && denied.contains("\r\nretry-after: 6\r\n"));
    assert_eq!(status(&attempt(relay, "/health", "").await), "200");
    clock.advance(Duration::from_secs(6));
    assert_eq!(status(&attempt(relay, "/ws", "").await), "101");
}

#[tokio::test]
async fn program_has_its_guard_on_by_default() {
    let guarded = Program::start(&[("PINCH_RELAY_GUARD", "on")]).await;
    for _ in 0..20 {
        assert_eq!(status(&attempt(guarded.address, "/ws", "").await), "101");
    }
    assert_eq!(status(&attempt(guarded.address, "/ws", "").await), "429");
    // Forwarding headers of untrusted peers are ignored.
    let forged = "X-Forwarded-For: 192.0.2.1\r\n";
    assert_eq!(status(&attempt(guarded.address, "/ws", forged).await), "429");
    let open = Program::start(&[("PINCH_RELAY_GUARD", "off")]).await;
    for _ in 0..30 {
        assert_eq!(status(&attempt(open.address, "/ws", "").await), "101");
    }
}

#[tokio::test]
async fn clients_of_a_trusted_proxy_are_counted() {
    let variables =
        [("PINCH_RELAY_GUARD", "on"), ("PINCH_RELAY_TRUSTED_PROXIES", "10.0.0.0/8, 127.0.0.1")];
    let program = Program::start(&variables).await;
    let from = async |client: &str| {
        let header = format!("X-Forwarded-For: {client}\r\n");
        status(&attempt(program.address, "/ws", &header).await).to_owned()
    };
    for _ in 0..20 {
        assert_eq!(from("192.0.2.1, 10.0.0.7").await, "101");
    }
    assert_eq!(from("6.6.6.6, 192.0.2.1").await, "429");
    assert_eq!(from("192.0.2.2").await, "101");
}
