//! Graceful stop, and the bound on plain HTTP connections.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tidegate_upgrade_guard::{serve, stopped};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stop_requested) = oneshot::channel::<()>();
    let stopping = async {
        let _ = stop_requested.await;
    };
    let server = tokio::spawn(serve(listener, app, stopping));
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

#[tokio::test]
async fn plain_http_connections_are_bounded() {
    let app = Router::new().route("/", get(async || "hello"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, app, std::future::pending()));
    let mut silent = Vec::new();
    for _ in 0..2_048 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut refused = TcpStream::connect(address).await.unwrap();
    let _ = refused.write_all(GET).await;
    assert_eq!(refused.read(&mut [0; 8]).await.unwrap_or(0), 0, "closed unread");
    drop(silent);
    // Slots are released when the server has seen the connections end.
    loop {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(GET).await;
        match stream.read(&mut [0; 8]).await.unwrap_or(0) {
            0 => tokio::task::yield_now().await,
            _ => break,
        }
    }
}

#[tokio::test]
async fn signal_before_the_wait_is_not_lost() {
    for signal in ["-TERM", "-INT"] {
        let signalled = stopped();
        let pid = std::process::id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
        signalled.await;
    }
}
