//! Floods of connections: others are served, and the surplus learns why it is not.

use std::sync::Arc;

use axum::Router;
use axum::http::Response;
use axum::routing::{get, post};
use tidegate_listen::{Http, PermitLimits, Refusal, Surplus};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::support::{Server, long, rest_of, until};

/// `/` waits until it is released, `/health` does not.
fn app(release: &Arc<Notify>) -> Router {
    let release = Arc::clone(release);
    let wait = async move || {
        release.notified().await;
        "done\n"
    };
    Router::new().route("/", get(wait)).route("/health", get(async || "ok\n"))
}

fn http(release: &Arc<Notify>) -> Http<Router> {
    Http::new(app(release)).timeouts(long()).reserve_for(|it| it.uri.path() == "/health")
}

#[tokio::test]
async fn silent_connections_of_many_addresses_keep_no_client_out() {
    let server = Server::start(PermitLimits::new(64), http(&Arc::default())).await;
    let mut silent = Vec::new();
    for address in 0..40 {
        for _ in 0..4 {
            silent.push(server.connect([127, 0, 1, address]).await);
        }
    }
    until(|| server.permits.counts().accepted == 160).await;
    assert_eq!(server.permits.open_connections(), 64);
    for address in 0..20 {
        let response = server.get([127, 0, 2, address], "/health").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }
}

#[tokio::test]
async fn surplus_of_an_address_gets_a_503_with_the_reason() {
    let server = Server::start(PermitLimits::new(4), http(&Arc::default())).await;
    let mut first = server.connect([127, 0, 0, 1]).await;
    first.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    until(|| server.permits.open_connections() == 1).await;
    let response = server.get([127, 0, 0, 1], "/").await.to_ascii_lowercase();
    assert!(response.starts_with("http/1.1 503 "), "{response}");
    assert!(response.contains("\r\nretry-after: 1\r\n"), "{response}");
    assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
    assert!(response.ends_with("too many connections from this address; try again later\n"));
    let response = server.get([127, 0, 0, 1], "/health").await;
    assert!(response.ends_with("ok\n"), "the reserve serves it: {response}");
}

#[tokio::test]
async fn surplus_gets_the_response_of_the_service() {
    let refused = |why: Refusal| {
        let body = format!("{{\"detail\":\"{why}\"}}");
        Response::builder().status(529).body(body.into()).unwrap()
    };
    let http = http(&Arc::default()).refusal_response(refused);
    let server = Server::start(PermitLimits::new(4), http).await;
    let _first = server.connect([127, 0, 0, 1]).await;
    until(|| server.permits.open_connections() == 1).await;
    let response = server.get([127, 0, 0, 1], "/").await.to_ascii_lowercase();
    assert!(response.starts_with("http/1.1 529 "), "{response}");
    assert!(response.contains("\r\nretry-after: 1\r\n"), "{response}");
    assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
    assert!(response.ends_with(r#"{"detail":"too many connections from this address"}"#));
}

#[tokio::test]
async fn health_is_reachable_while_all_permits_are_busy() {
    let release = Arc::new(Notify::new());
    let server = Server::start(PermitLimits::new(16).reserve(4), http(&release)).await;
    let mut busy = Vec::new();
    for address in 0..16 {
        let mut stream = server.connect([127, 0, 1, address]).await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        busy.push(stream);
    }
    until(|| server.permits.open_connections() == 16).await;
    // Silent connections fill the reserve as well, and make room in it.
    let mut silent = Vec::new();
    for address in 0..40 {
        silent.push(server.connect([127, 0, 2, address]).await);
    }
    let response = server.get([127, 0, 3, 1], "/health").await;
    assert!(response.ends_with("ok\n"), "{response}");
    let response = server.get([127, 0, 3, 2], "/").await;
    assert!(response.ends_with("\r\n\r\ntoo many connections; try again later\n"), "{response}");
    for mut stream in busy {
        release.notify_one();
        assert!(rest_of(&mut stream).await.unwrap().ends_with("done\n"), "it was never closed");
    }
}

#[tokio::test]
async fn a_refused_upload_can_read_its_503() {
    let app = Router::new().route("/", post(async || "done\n"));
    let http = Http::new(app).timeouts(long());
    let server = Server::start(PermitLimits::new(4), http).await;
    let _first = server.connect([127, 0, 0, 1]).await;
    until(|| server.permits.open_connections() == 1).await;
    let mut stream = server.connect([127, 0, 0, 1]).await;
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&[b'x'; 100_000]).await.unwrap();
    let response = rest_of(&mut stream).await.expect("no reset");
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
}

#[tokio::test]
async fn surplus_can_be_closed_unread() {
    let http = http(&Arc::default()).surplus(Surplus::Close);
    let server = Server::start(PermitLimits::new(4), http).await;
    let _first = server.connect([127, 0, 0, 1]).await;
    until(|| server.permits.open_connections() == 1).await;
    assert_eq!(server.get([127, 0, 0, 1], "/health").await, "");
    assert!(server.get([127, 0, 0, 2], "/health").await.ends_with("ok\n"));
}
