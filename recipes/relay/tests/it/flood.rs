//! Floods of connections to the program.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::client::TestClient;
use crate::program::Program;
use crate::server::{Server, TIMEOUT};

async fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// The first line of a response.
async fn status(source: [u8; 4], to: SocketAddr, request: &str) -> String {
    let mut stream = connect_from(source, to).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(timeout(TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(line).unwrap()
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// The relay has room for 3 148 connections; each address has more silent ones than its quarter.
#[tokio::test]
async fn silent_connections_of_some_addresses_keep_no_other_address_out() {
    let (program, log) = Program::start_logged(&[("PINCH_RELAY_MAX_CONNECTIONS", "100")]).await;
    let mut silent = Vec::new();
    for address in 1..=6 {
        for number in 0..900 {
            let mut stream = connect_from([127, 1, 0, address], program.address).await;
            if number % 3 == 0 {
                let _ = stream.write_all(b"GET /ws HTTP/1.1\r\nHo").await;
            }
            silent.push(stream);
        }
    }
    for address in 1..=3 {
        let line = status([127, 2, 0, address], program.address, HEALTH).await;
        assert_eq!(line, "HTTP/1.1 200 OK\r\n");
        // 127.0.0.1 is a fresh address, too.
        TestClient::join(program.address, address.into()).await.leave().await;
    }
    let log = program.stopped(log).await;
    let refusals = log.lines().filter(|line| line.contains("connection refused")).count();
    assert!((1..100).contains(&refusals), "{log}");
    assert!(log.lines().count() < 150, "{log}");
}

/// Upgraded and silent: they never authenticate. Some addresses hold all handshakes.
#[tokio::test]
async fn silent_websockets_of_some_addresses_keep_no_other_client_out() {
    let server = Server::start(|it| it.limit(None).max_handshakes(32)).await;
    let mut silent = Vec::new();
    for address in 1..=6 {
        for number in 0..8 {
            let mut stream = connect_from([127, 1, 0, address], server.address).await;
            stream.write_all(UPGRADE.as_bytes()).await.unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).await.unwrap();
            assert_eq!(&head[9..], b"101", "{address} {number}");
            silent.push(stream);
        }
    }
    // Its share is a quarter.
    let line = status([127, 1, 0, 6], server.address, UPGRADE).await;
    assert_eq!(line, "HTTP/1.1 503 Service Unavailable\r\n");
    for number in 1..=3 {
        server.join(number).await;
    }
    // The first has made room: challenge, then a close frame with 1013.
    let mut rest = Vec::new();
    timeout(TIMEOUT, silent[0].read_to_end(&mut rest)).await.unwrap().unwrap();
    let head = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let frames = frames(&rest[head + 4..]);
    let (opcode, payload) = frames.last().unwrap();
    assert_eq!((*opcode, &payload[..2]), (8, &1013_u16.to_be_bytes()[..]));
}

/// Opcode and payload of each unmasked frame; a payload is arbitrary bytes, so nothing is searched.
fn frames(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let [first, length, rest @ ..] = bytes {
        let (length, rest) = match length {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            short => (usize::from(*short), rest),
        };
        frames.push((first & 0xf, &rest[..length]));
        bytes = &rest[length..];
    }
    frames
}
