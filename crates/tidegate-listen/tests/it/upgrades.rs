//! Upgraded connections keep their permits.

use axum::Router;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::routing::any;
use tidegate_listen::{Http, PermitLimits, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{LONG, SHORT, Server, until};

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

async fn server(max: u64) -> Server {
    let app = Router::new().route("/", any(async |it: WebSocketUpgrade| it.on_upgrade(echo)));
    // None of the time-outs of HTTP holds for a WebSocket.
    let timeouts =
        Timeouts { request_time: SHORT, idle_time: SHORT, write_time: SHORT, head_time: LONG };
    Server::start(PermitLimits::new(max), Http::new(app).timeouts(timeouts)).await
}

async fn upgraded(server: &Server, source: [u8; 4]) -> TcpStream {
    let mut stream = server.connect(source).await;
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    stream
}

/// Sends a message and reads its echo.
async fn ping(stream: &mut TcpStream) {
    stream.write_all(&[0x81, 0x81, 0, 0, 0, 0, b'x']).await.unwrap();
    let mut echo = [0; 3];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(echo, [0x81, 1, b'x']);
}

#[tokio::test]
async fn a_socket_has_a_permit_until_it_is_closed_and_makes_no_room() {
    let server = server(4).await;
    let mut sockets = Vec::new();
    for address in 0..4 {
        sockets.push(upgraded(&server, [127, 0, 1, address]).await);
    }
    tokio::time::sleep(3 * SHORT).await;
    assert!(server.get([127, 0, 2, 1], "/").await.starts_with("HTTP/1.1 503 "), "all are busy");
    for socket in &mut sockets {
        ping(socket).await;
    }
    assert_eq!(server.permits.open_connections(), 4);
    sockets.pop();
    until(|| server.permits.open_connections() == 3).await;
    upgraded(&server, [127, 0, 2, 1]).await;
}

/// A socket that is closed with unread bytes would be reset, and its last message lost.
#[tokio::test]
async fn what_the_service_sent_last_arrives_although_it_did_not_read_everything() {
    let last = async |mut socket: WebSocket| {
        let _first = socket.recv().await;
        let _ = socket.send("the end".into()).await;
    };
    // A small buffer, so that most of what the client sends stays unread.
    let upgrade = async move |it: WebSocketUpgrade| it.read_buffer_size(1_024).on_upgrade(last);
    let app = Router::new().route("/", any(upgrade));
    let server = Server::start(PermitLimits::new(4), Http::new(app)).await;
    for _ in 0..20 {
        let mut socket = upgraded(&server, [127, 0, 0, 1]).await;
        // Many frames, of which the first few are read.
        socket.write_all(&[0x82, 0x81, 0, 0, 0, 0, 0].repeat(5_000)).await.unwrap();
        let mut read = Vec::new();
        socket.read_to_end(&mut read).await.expect("no reset");
        assert_eq!(read, b"\x81\x07the end");
        drop(socket);
        until(|| server.permits.open_connections() == 0).await;
    }
}

#[tokio::test]
async fn shutdown_waits_for_open_sockets() {
    let server = server(4).await;
    let mut socket = upgraded(&server, [127, 0, 0, 1]).await;
    let permits = server.permits.clone();
    let stopping = tokio::spawn(async move { server.stop.stop(LONG).await });
    ping(&mut socket).await;
    assert!(!stopping.is_finished(), "the service has to close it");
    drop(socket);
    assert!(stopping.await.unwrap());
    assert_eq!(permits.open_connections(), 0);
}
