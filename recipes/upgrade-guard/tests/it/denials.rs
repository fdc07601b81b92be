//! Allowed and denied attempts.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::body::Body;
use futures_util::{SinkExt, StreamExt};
use tidegate::clock::ManualClock;
use tidegate_tower::{ClientIp, ForwardedHeader, UpgradeGuard};
use tidegate_upgrade_guard::{GuardArgs, guarded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, connect_async};
use tower::ServiceExt;

use crate::support::{attempt, head, server, server_of, status, upgrade};

#[tokio::test]
async fn twenty_attempts_are_allowed_and_then_one_every_six_seconds() {
    let server = server(ClientIp::peer()).await;
    for _ in 0..20 {
        assert_eq!(status(&attempt(server.address, "/ws", &[]).await), "101");
    }
    let denied = attempt(server.address, "/ws", &[]).await.to_ascii_lowercase();
    assert_eq!(status(&denied), "429");
    assert!(denied.contains("\r\nretry-after: 6\r\n"), "{denied}");
    // Two half intervals make one token.
    server.clock.advance(Duration::from_secs(3));
    let denied = attempt(server.address, "/ws", &[]).await.to_ascii_lowercase();
    assert!(denied.contains("\r\nretry-after: 3\r\n"), "{denied}");
    server.clock.advance(Duration::from_secs(3));
    assert_eq!(status(&attempt(server.address, "/ws", &[]).await), "101");
    assert_eq!(status(&attempt(server.address, "/ws", &[]).await), "429");
}

#[tokio::test]
async fn all_endpoints_share_one_limiter_and_health_is_not_limited() {
    let server = server_of(2, ClientIp::peer(), "127.0.0.1:0").await;
    assert_eq!(status(&attempt(server.address, "/ws", &[]).await), "101");
    assert_eq!(status(&attempt(server.address, "/other", &[]).await), "200");
    assert_eq!(status(&attempt(server.address, "/other", &[]).await), "429");
    for _ in 0..50 {
        assert_eq!(status(&attempt(server.address, "/healthz", &[]).await), "200");
    }
    assert_eq!(status(&attempt(server.address, "/ws", &[]).await), "429");
    assert_eq!(status(&attempt(server.address, "/nowhere", &[]).await), "404");
}

#[tokio::test]
async fn allowed_attempt_has_a_working_socket() {
    let server = server_of(2, ClientIp::peer(), "127.0.0.1:0").await;
    let url = format!("ws://{}/ws", server.address);
    let (mut socket, _) = connect_async(&url).await.unwrap();
    for text in ["hello", "", "wörld"] {
        socket.send(Message::text(text)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
    }
    // Only attempts are charged, not messages.
    for round in 0..50_u8 {
        socket.send(Message::binary(vec![round])).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary(vec![round]));
    }
    drop(connect_async(&url).await.unwrap());
    match connect_async(&url).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 429),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn unknown_address_is_denied_without_touching_the_table() {
    let guard = UpgradeGuard::default();
    let service = axum::Router::new().route("/ws", axum::routing::any(|| async { "reached" }));
    let app = guarded(service, &guard, ClientIp::peer());
    let request = axum::http::Request::get("/ws").body(Body::empty()).unwrap();
    let response = app.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers().get("retry-after"), None, "no wait helps");
    assert!(guard.is_empty());
}

#[tokio::test]
async fn idle_addresses_are_evicted_and_drained_ones_are_not() {
    let server = server(ClientIp::peer()).await;
    let guard = &server.guard;
    for last in 0..200 {
        assert!(guard.allow(IpAddr::V4(Ipv4Addr::new(198, 51, 100, last))));
    }
    for _ in 0..21 {
        attempt(server.address, "/ws", &[]).await;
    }
    assert_eq!(guard.len(), 201);
    server.clock.advance(Duration::from_secs(299));
    // Called while it refills, so it is never full.
    while guard.allow(IpAddr::V4(Ipv4Addr::LOCALHOST)) {}
    server.clock.advance(Duration::from_secs(1));
    assert_eq!(guard.len(), 1, "all but the drained one");
    assert_eq!(status(&attempt(server.address, "/ws", &[]).await), "429");
}

#[test]
fn eviction_interval_is_a_setting() {
    let args = GuardArgs {
        every: Duration::from_secs(1),
        burst: 1,
        evict_every: Duration::from_secs(10),
        max_addresses: 300,
        trusted_proxies: Vec::new(),
        forwarded_header: ForwardedHeader::default(),
    };
    let clock = ManualClock::default();
    let guard = args.guard_with_clock(clock.clone()).unwrap();
    assert!(guard.allow("192.0.2.1".parse::<IpAddr>().unwrap()));
    assert_eq!(guard.len(), 1);
    clock.advance(Duration::from_secs(10));
    assert!(guard.is_empty());
    // As calls arrive, without a look at the length: each generation fills most of the table.
    for generation in 0..10 {
        for last in 0..200 {
            let address = IpAddr::V4(Ipv4Addr::new(10, generation, 0, last));
            assert!(guard.allow(address) && !guard.allow(address), "{address} has its own bucket");
        }
        clock.advance(Duration::from_secs(10));
    }
    assert!(guard.is_empty());
}

#[tokio::test]
async fn open_sockets_are_bounded() {
    let server = server_of(1_000, ClientIp::peer(), "127.0.0.1:0").await;
    let url = format!("ws://{}/ws", server.address);
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(connect_async(&url).await.unwrap().0);
    }
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(upgrade("/ws", &["Connection: close"]).as_bytes()).await.unwrap();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).await.unwrap();
    let refused = refused.to_ascii_lowercase();
    assert_eq!(status(&refused), "503");
    assert!(refused.contains("\r\nretry-after: 5\r\n"), "{refused}");
    assert!(refused.contains("all 100 sockets are open; try again later"), "{refused}");
    let mut one = open.pop().unwrap();
    one.close(None).await.unwrap();
    while let Some(Ok(_)) = one.next().await {}
    // The slot is released when the server has seen the end of the socket.
    loop {
        match status(&attempt(server.address, "/ws", &[]).await) {
            "503" => tokio::task::yield_now().await,
            other => break assert_eq!(other, "101"),
        }
    }
}

#[tokio::test]
async fn oversized_message_is_closed_with_1009() {
    let server = server(ClientIp::peer()).await;
    let url = format!("ws://{}/ws", server.address);
    let most = Message::binary(vec![7; 65_536]);
    for is_split in [false, true] {
        let (mut socket, _) = connect_async(&url).await.unwrap();
        socket.send(most.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), most);
        let frames = match is_split {
            false => vec![frame(vec![7; 65_537], true, true)],
            true => vec![frame(vec![7; 40_000], true, false), frame(vec![7; 40_000], false, true)],
        };
        for frame in frames {
            let _ = socket.send(Message::Frame(frame)).await;
        }
        assert_eq!(close_code(&mut socket).await, 1009);
    }
}

/// The code of the close frame that comes next.
async fn close_code<S>(socket: &mut WebSocketStream<S>) -> u16
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    match socket.next().await {
        Some(Ok(Message::Close(Some(close)))) => close.code.into(),
        other => panic!("no close frame: {other:?}"),
    }
}

#[tokio::test]
async fn bytes_that_the_standard_forbids_are_closed_with_1002_or_1007() {
    let server = server(ClientIp::peer()).await;
    let masked = |head: [u8; 2], bytes: &[u8]| [&head[..], &[0; 4], bytes].concat();
    for (name, bytes, code) in [
        ("reserved opcode", masked([0x83, 0x80], &[]), 1002),
        ("reserved bit", masked([0xc1, 0x81], b"x"), 1002),
        ("without a mask", vec![0x81, 0x01, b'x'], 1002),
        ("continuation of nothing", masked([0x80, 0x81], b"x"), 1002),
        ("control frame in two parts", masked([0x09, 0x80], &[]), 1002),
        ("text that is not UTF-8", masked([0x81, 0x82], b"\xc3\x28"), 1007),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(upgrade("/ws", &[]).as_bytes()).await.unwrap();
        assert_eq!(status(&head(&mut stream).await), "101");
        // More than the server reads: it must not reset the connection.
        stream.write_all(&[&bytes[..], &[0; 20_000]].concat()).await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.expect(name);
        let close = [rest[2], rest[3]];
        assert_eq!((rest[0], u16::from_be_bytes(close)), (0x88, code), "{name}");
    }
}

fn frame(bytes: Vec<u8>, is_first: bool, is_last: bool) -> Frame {
    let kind = if is_first { Data::Binary } else { Data::Continue };
    Frame::message(bytes, OpCode::Data(kind), is_last)
}

#[tokio::test]
async fn garbage_and_incomplete_requests_affect_no_other() {
    let server = server(ClientIp::peer()).await;
    let mut half = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /ws HTTP/1.1\r\nHos").await.unwrap();
        half.push(stream);
    }
    let huge = format!("GET /ws HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(40_000));
    for garbage in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "\u{16}\u{3}\u{1}", &huge] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let _ = stream.write_all(garbage.as_bytes()).await;
        let _ = stream.shutdown().await;
        let response = head(&mut stream).await;
        assert!(["none", "400", "431"].contains(&status(&response)), "{response}");
    }
    assert!(server.guard.is_empty(), "none of them was an attempt");
    assert_eq!(status(&attempt(server.address, "/ws", &[]).await), "101");
    drop(half);
}
