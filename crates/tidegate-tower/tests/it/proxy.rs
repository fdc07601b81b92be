//! Connections that begin with a PROXY header.

use std::net::SocketAddr;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get as route;
use tidegate_tower::{Peer, ProxyListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that responds with the client's address.
async fn serve(configure: impl FnOnce(ProxyListener) -> ProxyListener) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = configure(ProxyListener::new(listener));
    let address = listener.local_addr().unwrap();
    let handler = |ConnectInfo(Peer(peer)): ConnectInfo<Peer>| async move { peer.to_string() };
    let app = Router::new().route("/", route(handler));
    let service = app.into_make_service_with_connect_info::<Peer>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

/// The response to bytes that are sent piece by piece.
async fn response(server: SocketAddr, pieces: &[&[u8]]) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        // A server that has closed does not respond, whatever else is written.
        if stream.write_all(piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response).await;
    response
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

fn v2(command: u8) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([command, 0x11, 0, 12, 192, 0, 2, 7, 10, 0, 0, 1, 0, 9, 1, 0xbb]);
    bytes
}

#[tokio::test]
async fn header_determines_the_client() {
    let server = serve(|listener| listener).await;
    let line = b"PROXY TCP6 2001:db8::7 2001:db8::1 9 443\r\n";
    assert!(response(server, &[line, GET]).await.ends_with("\r\n\r\n[2001:db8::7]:9"));
    assert!(response(server, &[&v2(0x21), GET]).await.ends_with("\r\n\r\n192.0.2.7:9"));
    // In one piece with the request, and byte by byte.
    let whole = [line.as_slice(), GET].concat();
    assert!(response(server, &[&whole]).await.ends_with("[2001:db8::7]:9"));
    let bytes: Vec<&[u8]> = whole.chunks(1).collect();
    assert!(response(server, &bytes).await.ends_with("[2001:db8::7]:9"));
    // The balancer's own connection.
    assert!(response(server, &[&v2(0x20), GET]).await.contains("\r\n\r\n127.0.0.1:"));
    assert!(response(server, &[b"PROXY UNKNOWN\r\n", GET]).await.contains("127.0.0.1:"));
}

#[tokio::test]
async fn without_the_header_the_connection_is_closed_and_others_are_served() {
    let server = serve(|listener| listener).await;
    let endless = [b'A'; 10_000];
    for wrong in [GET, b"PROXY TCP4 x y 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n\x41", &endless] {
        assert_eq!(response(server, &[wrong]).await, "");
    }
    assert!(response(server, &[&v2(0x21), GET]).await.ends_with("192.0.2.7:9"));
}

#[tokio::test]
async fn slow_connection_delays_no_other_and_is_closed() {
    for timeout in [Duration::from_millis(200), Duration::from_secs(3_600)] {
        let server = serve(|listener| listener.header_timeout(timeout)).await;
        let mut slow = Vec::new();
        for _ in 0..50 {
            let mut stream = TcpStream::connect(server).await.unwrap();
            stream.write_all(b"PROXY TC").await.unwrap();
            slow.push(stream);
        }
        assert!(response(server, &[&v2(0x21), GET]).await.ends_with("192.0.2.7:9"));
        for mut stream in slow {
            if timeout > Duration::from_secs(1) {
                // A peer that has shut down its writing half is closed without waiting.
                stream.shutdown().await.unwrap();
            }
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0, "closed");
        }
    }
}

#[tokio::test]
async fn pending_headers_are_bounded_and_silent_connections_make_room() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut listener = ProxyListener::new(listener).header_timeout(Duration::from_secs(3_600));
    let server = listener.local_addr().unwrap();
    let is_pending = |listener: &mut ProxyListener| {
        let accepting = std::pin::pin!(listener.accept());
        accepting.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    };
    let mut slow = Vec::new();
    for _ in 0..1_024 {
        slow.push(TcpStream::connect(server).await.unwrap());
        assert!(is_pending(&mut listener));
    }
    let mut next = TcpStream::connect(server).await.unwrap();
    next.write_all(&v2(0x21)).await.unwrap();
    let (stream, source) = listener.accept().await;
    assert_eq!(source, "192.0.2.7:9".parse().unwrap());
    assert_eq!(stream.source(), source);
    assert_eq!(slow[0].read(&mut [0; 8]).await.unwrap_or(0), 0, "the first one made room");
    let info = tonic::transport::server::Connected::connect_info(&stream);
    assert_eq!(info.remote_addr(), Some(source), "tonic gets the same address");
}

#[tokio::test]
async fn without_networks_only_loopback_is_served() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let mut listener = ProxyListener::new(listener);
    let port = listener.local_addr().unwrap().port();
    // The address that reaches other machines is not loopback.
    let probe = tokio::net::UdpSocket::bind("0.0.0.0:0").await.unwrap();
    let Ok(()) = probe.connect("192.0.2.1:9").await else { return };
    let own = SocketAddr::new(probe.local_addr().unwrap().ip(), port);
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    let mut stream = TcpStream::connect(own).await.unwrap();
    stream.write_all(&v2(0x21)).await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0, "closed");
}

#[tokio::test]
async fn connections_from_other_networks_are_closed() {
    let server = serve(|listener| listener.only_from(["10.0.0.0/8"]).unwrap()).await;
    assert_eq!(response(server, &[&v2(0x21), GET]).await, "");
    let balancers = ["127.0.0.0/8", "10.0.0.0/8"];
    let server = serve(|listener| listener.only_from(balancers).unwrap()).await;
    assert!(response(server, &[&v2(0x21), GET]).await.ends_with("192.0.2.7:9"));
}
