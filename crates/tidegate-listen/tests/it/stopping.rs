//! Graceful shutdown.

use std::process::Command;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tidegate_listen::{Connections, Http, ListenSocket, PermitLimits, serve};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::support::{LONG, Server, long, rest_of, until};

#[tokio::test]
async fn requests_in_work_complete_and_idle_connections_are_closed() {
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, finished) = (Arc::clone(&begun), Arc::clone(&finish));
    let handler = async move || {
        begins.notify_one();
        finished.notified().await;
        "done"
    };
    let app = Router::new().route("/", get(handler));
    let limits = PermitLimits::new(16);
    let Server { address, permits, stop } =
        Server::start(limits, Http::new(app).timeouts(long())).await;
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    begun.notified().await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET / HT").await.unwrap();
    until(|| permits.open_connections() == 3).await;
    let stopping = tokio::spawn(async move { stop.stop(LONG).await });
    assert_eq!(rest_of(&mut idle).await.unwrap_or_default(), "");
    assert_eq!(rest_of(&mut half).await.unwrap_or_default(), "");
    assert!(!stopping.is_finished(), "a request is in work");
    finish.notify_one();
    assert!(rest_of(&mut busy).await.unwrap().ends_with("done"));
    assert!(stopping.await.unwrap(), "all connections have ended");
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn requests_that_have_arrived_when_shutdown_begins_are_answered() {
    let app = Router::new().route("/", get(async || "done"));
    let permits = Connections::default().listener("http", PermitLimits::new(64).per_peer(Some(64)));
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        clients.push(client);
    }
    let http = Http::new(app).timeouts(long());
    assert!(serve(socket, permits, http, std::future::ready(()), LONG).await);
    for mut client in clients {
        assert!(rest_of(&mut client).await.unwrap().ends_with("done"));
    }
}

#[tokio::test]
async fn signal_before_the_wait_is_not_lost() {
    for signal in ["-TERM", "-INT"] {
        let signalled = tidegate_listen::terminated();
        let pid = std::process::id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        timeout(LONG, signalled).await.expect("the signal in time");
    }
}
