//! The smallest client that can send an update.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const SECRET: &str = "s3cret-of_Telegram";

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// What Telegram wants to hear.
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

/// The whole answer to a request; `None` if the server is not there any more.
async fn try_request(server: SocketAddr, head: &str, body: &[u8]) -> Option<Answer> {
    let length = body.len();
    let head = format!("{head}Host: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    let mut answer = Vec::new();
    let sent = async {
        let mut stream = TcpStream::connect(server).await.ok()?;
        stream.write_all(head.as_bytes()).await.ok()?;
        // A server that has heard enough may hang up on the rest.
        let _ = stream.write_all(body).await;
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    };
    timeout(PATIENCE, sent).await.expect("an answer in time")
}

pub(crate) async fn request(server: SocketAddr, head: &str, body: &[u8]) -> Answer {
    try_request(server, head, body).await.expect("an answer")
}

/// Sends an update to a server that may not be there any more.
pub(crate) async fn try_post(server: SocketAddr, headers: &str, body: &[u8]) -> Option<Answer> {
    try_request(server, &format!("POST /telegram/webhook HTTP/1.1\r\n{headers}"), body).await
}

/// Sends an update with more headers than those that every request has.
pub(crate) async fn post(server: SocketAddr, headers: &str, body: &[u8]) -> Answer {
    request(server, &format!("POST /telegram/webhook HTTP/1.1\r\n{headers}"), body).await
}

/// Sends an update as Telegram does.
pub(crate) async fn send(server: SocketAddr, update: &Value) -> Answer {
    let secret = format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n");
    let headers = format!("{secret}Content-Type: application/json\r\n");
    post(server, &headers, update.to_string().as_bytes()).await
}

pub(crate) async fn health(server: SocketAddr) -> Value {
    let answer = request(server, "GET /healthz HTTP/1.1\r\n", b"").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// An update with a message of a user, who writes from a chat of their own.
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
