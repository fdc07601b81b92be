//! Servers and clients for the tests.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use tidegate::{Rate, clock::ManualClock};
use tidegate_listen::{ListenSocket, PermitLimits};
use tidegate_tower::{ClientIp, UpgradeGuard};
use tidegate_upgrade_guard::{echo, guarded, serve_within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// A guarded echo service on its own port, with a manual clock.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) guard: UpgradeGuard<IpAddr, ManualClock>,
    pub(crate) clock: ManualClock,
    _stopping: watch::Sender<bool>,
}

/// A server with the default numbers.
pub(crate) async fn server(client: ClientIp) -> Server {
    server_of(20, client, "127.0.0.1:0").await
}

pub(crate) async fn server_of(burst: u64, client: ClientIp, listen: &str) -> Server {
    let clock = ManualClock::default();
    let rate = Rate::one_every(Duration::from_secs(6));
    let evict = Duration::from_secs(300);
    let guard = UpgradeGuard::with_clock(rate, burst, evict, clock.clone()).unwrap();
    let stopping = watch::Sender::new(false);
    let service = echo(100, stopping.subscribe()).unwrap();
    let other = Router::new().route("/other", axum::routing::any(|| async { "another endpoint" }));
    let app = guarded(service.merge(other), &guard, client);
    let socket = ListenSocket::bind(listen).await.unwrap();
    let address = socket.local_addr().unwrap();
    let limits = PermitLimits::new(4_096).per_peer(Some(1_024));
    tokio::spawn(serve_within(socket, limits, app, std::future::pending()));
    Server { address, guard, clock, _stopping: stopping }
}

/// The head of the response to an upgrade attempt.
pub(crate) async fn attempt(server: SocketAddr, path: &str, headers: &[&str]) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(upgrade(path, headers).as_bytes()).await.unwrap();
    head(&mut stream).await
}

/// A request to upgrade.
pub(crate) fn upgrade(path: &str, headers: &[&str]) -> String {
    let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// The status in the head of a response.
pub(crate) fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or("none")
}
