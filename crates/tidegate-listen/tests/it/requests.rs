//! Time-outs and sizes of requests and responses.

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::routing::{get, post};
use tidegate_listen::{Http, PeerId, PermitLimits, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{SHORT, Server, long, rest_of, until};

fn app() -> Router {
    let peer = async |request: Request| {
        let peer = request.extensions().get::<PeerId>().unwrap();
        peer.address().unwrap().ip().to_string()
    };
    Router::new()
        .route("/peer", get(peer))
        .route("/length", post(async |body: Bytes| body.len().to_string()))
        .route("/large", get(async || vec![b'x'; 64 << 20]))
}

async fn server(timeouts: Timeouts) -> Server {
    Server::start(PermitLimits::new(100), Http::new(app()).timeouts(timeouts)).await
}

#[tokio::test]
async fn the_service_gets_the_peer_and_several_requests_per_connection() {
    let server = server(long()).await;
    let mut stream = server.connect([127, 0, 0, 9]).await;
    let first = "GET /peer HTTP/1.1\r\nHost: x\r\n\r\n";
    let second = "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345";
    let third = "GET /peer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all([first, second, third].concat().as_bytes()).await.unwrap();
    let responses = rest_of(&mut stream).await.unwrap();
    let bodies: Vec<_> = responses.split("HTTP/1.1 200 OK").skip(1).collect();
    assert_eq!(bodies.len(), 3, "{responses}");
    for (body, expected) in bodies.iter().zip(["127.0.0.9", "5", "127.0.0.9"]) {
        assert!(body.ends_with(expected), "{body}");
    }
}

#[tokio::test]
async fn each_phase_has_its_time_out() {
    let head = Timeouts { head_time: SHORT, ..long() };
    let body = Timeouts { request_time: SHORT, ..long() };
    let idle = Timeouts { idle_time: SHORT, ..long() };
    let upload = "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123";
    for (name, timeouts, sent) in [
        ("silence", head, ""),
        ("half a head", head, "GET /peer HTTP/1.1\r\nHos"),
        ("half a body", body, upload),
        ("silence after a response", idle, "GET /peer HTTP/1.1\r\nHost: x\r\n\r\n"),
    ] {
        let server = server(timeouts).await;
        let mut stream = server.connect([127, 0, 0, 1]).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let response = rest_of(&mut stream).await.unwrap_or_default();
        assert_eq!(response.is_empty(), !name.contains("response"), "{name}: {response}");
        until(|| server.permits.open_connections() == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let server = server(Timeouts { write_time: SHORT, ..long() }).await;
    let mut stream = server.connect([127, 0, 0, 1]).await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 9];
    stream.read_exact(&mut first).await.unwrap();
    until(|| server.permits.counts().closed == 1).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_rejected() {
    let server = server(long()).await;
    let mut stream = server.connect([127, 0, 0, 1]).await;
    let head = format!("GET /peer HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(40_000));
    let _ = stream.write_all(head.as_bytes()).await;
    let response = rest_of(&mut stream).await.unwrap_or_default();
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 431 "), "{response}");
    until(|| server.permits.open_connections() == 0).await;
}
