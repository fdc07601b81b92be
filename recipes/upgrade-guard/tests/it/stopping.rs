//! Graceful stop.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tidegate_listen::{ListenSocket, PermitLimits};
use tidegate_upgrade_guard::serve_within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn request_in_progress_completes_and_no_other_is_accepted() {
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, finished) = (Arc::clone(&begun), Arc::clone(&finish));
    let handler = async move || {
        begins.notify_one();
        finished.notified().await;
        "done"
    };
    let app = Router::new().route("/", get(handler));
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, stop_requested) = oneshot::channel::<()>();
    let stopping = async {
        let _ = stop_requested.await;
    };
    let server = tokio::spawn(serve_within(socket, PermitLimits::new(16), app, stopping));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(GET).await.unwrap();
    begun.notified().await;

    stop.send(()).unwrap();
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        assert!(!server.is_finished(), "a request is in progress");
        tokio::task::yield_now().await;
    }
    finish.notify_one();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("done"), "{response}");
    assert!(response.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{response}");
    server.await.unwrap();
}
