//! A minimal client that sends updates.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time-out of every step of a test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const SECRET: &str = "s3cret-of_Telegram";

/// A whole response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Asserts the response that Telegram expects.
    #[track_caller]
    pub(crate) fn is_ok(&self) {
        assert_eq!((self.status, &*self.body), (200, r#"{"ok":true}"#));
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
    }

    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        assert_eq!(self.json()["status"], status);
    }
}

/// The whole response to a request; `None` if the server is gone.
async fn try_request(server: SocketAddr, head: &str, body: &[u8]) -> Option<HttpResponse> {
    let length = body.len();
    let head = format!("{head}Host: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    let mut response = Vec::new();
    let sent = async {
        let mut stream = TcpStream::connect(server).await.ok()?;
        stream.write_all(head.as_bytes()).await.ok()?;
        // The server may close before it has read the whole request.
        let _ = stream.write_all(body).await;
        let _ = stream.read_to_end(&mut response).await;
        let response = String::from_utf8(response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(HttpResponse { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    };
    timeout(TIMEOUT, sent).await.expect("a response in time")
}

pub(crate) async fn request(server: SocketAddr, head: &str, body: &[u8]) -> HttpResponse {
    try_request(server, head, body).await.expect("a response")
}

/// Sends an update to a server that may be gone.
pub(crate) async fn try_post(
    server: SocketAddr,
    headers: &str,
    body: &[u8],
) -> Option<HttpResponse> {
    try_request(server, &format!("POST /telegram/webhook HTTP/1.1\r\n{headers}"), body).await
}

/// Sends an update with additional headers.
pub(crate) async fn post(server: SocketAddr, headers: &str, body: &[u8]) -> HttpResponse {
    request(server, &format!("POST /telegram/webhook HTTP/1.1\r\n{headers}"), body).await
}

/// Sends an update as Telegram does.
pub(crate) async fn send(server: SocketAddr, update: &Value) -> HttpResponse {
    let secret = format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n");
    let headers = format!("{secret}Content-Type: application/json\r\n");
    post(server, &headers, update.to_string().as_bytes()).await
}

pub(crate) async fn health(server: SocketAddr) -> Value {
    let response = request(server, "GET /healthz HTTP/1.1\r\n", b"").await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

/// An update with a message of a user, from the user's own chat.
pub(crate) fn update(update_id: i64, user: u64) -> Value {
    json!({
        "update_id": update_id,
        "message": {
            "message_id": update_id + 1_000,
            "date": 1_700_000_000,
            "from": { "id": user, "is_bot": false, "first_name": "Ada" },
            "chat": { "id": chat_of(user), "type": "private" },
            "text": format!("message {update_id}"),
        },
    })
}

pub(crate) fn chat_of(user: u64) -> u64 {
    user + 500
}
