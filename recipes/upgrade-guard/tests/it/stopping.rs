//! How a server stops, and for how many it is there.

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
async fn a_request_that_has_begun_is_answered_and_nobody_else_is_let_in() {
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
    let (stop, asked_to_stop) = oneshot::channel::<()>();
    let stopping = async {
        let _ = asked_to_stop.await;
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
        assert!(!server.is_finished(), "somebody is still being served");
        tokio::task::yield_now().await;
    }
    finish.notify_one();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
    server.await.unwrap();
}

#[tokio::test]
async fn at_most_so_many_are_served_before_they_are_sockets() {
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
    // Places come back when the server has seen that they have gone.
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
async fn a_signal_that_comes_before_anybody_waits_is_heard() {
    for signal in ["-TERM", "-INT"] {
        let asked_to_stop = stopped();
        let pid = std::process::id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
        asked_to_stop.await;
    }
}
