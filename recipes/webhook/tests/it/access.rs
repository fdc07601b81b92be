//! What comes before the limit: who sends, whose message it is, what it is.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::{PATIENCE, SECRET, health, post, request, send, update};
use crate::server::started;

#[tokio::test]
async fn without_the_secret_nothing_happens() {
    let mut server = started(&[("RATE_LIMIT_MAX", "1")]).await;
    let update = update(1, 7).to_string();
    for header in [
        String::new(),
        "X-Telegram-Bot-Api-Secret-Token: \r\n".to_owned(),
        "X-Telegram-Bot-Api-Secret-Token: wrong\r\n".to_owned(),
        format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}x\r\n"),
        format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n").repeat(2),
        format!("Authorization: {SECRET}\r\n"),
    ] {
        post(server.address, &header, update.as_bytes()).await.is_problem(401);
        // Not even what it is was looked at.
        post(server.address, &header, b"garbage").await.is_problem(401);
    }
    // None of it was charged.
    server.send(2, 7).await.is_ok();
    assert_eq!(server.agent.next_text().await, "message 2");
    assert!(server.agent.is_idle() && server.chat.is_idle());
}

#[tokio::test]
async fn others_than_those_listed_are_silently_ignored() {
    let mut server = started(&[("ALLOWED_USER_IDS", "7,9"), ("RATE_LIMIT_MAX", "1")]).await;
    for update_id in 0..5 {
        server.send(update_id, 8).await.is_ok();
    }
    server.send(10, 9).await.is_ok();
    assert_eq!(server.agent.next_text().await, "message 10");
    server.until(|health| health["agent"]["open"] == 0).await;
    assert!(server.agent.is_idle() && server.chat.is_idle(), "no work, and no reply");
}

#[tokio::test]
async fn updates_of_other_kinds_are_answered_and_cost_nothing() {
    let mut server = started(&[("RATE_LIMIT_MAX", "1")]).await;
    let message = update(1, 7)["message"].clone();
    let pressed = json!({ "id": "1", "from": { "id": 7 }, "message": message });
    let of_nobody = json!({ "message_id": 1, "chat": { "id": -1 }, "text": "x" });
    for other in [
        json!({ "update_id": 1, "edited_message": message }),
        json!({ "update_id": 2, "channel_post": message }),
        json!({ "update_id": 3, "callback_query": pressed }),
        json!({ "update_id": 4, "message": of_nobody }),
        json!({ "update_id": 5 }),
    ] {
        send(server.address, &other).await.is_ok();
    }
    server.send(6, 7).await.is_ok();
    assert_eq!(server.agent.next_text().await, "message 6");
    assert!(server.agent.is_idle() && server.chat.is_idle());
}

#[tokio::test]
async fn what_is_no_update_is_refused_and_costs_nothing() {
    let mut server = started(&[("RATE_LIMIT_MAX", "1")]).await;
    let secret = format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n");
    for garbage in [&b""[..], b"hello", b"{}", b"{\"update_id\":", &[0xff, 0x00]] {
        post(server.address, &secret, garbage).await.is_problem(400);
    }
    let long = format!(r#"{{"update_id":1,"x":"{}"}}"#, "x".repeat(1 << 20));
    post(server.address, &secret, long.as_bytes()).await.is_problem(413);
    server.send(1, 7).await.is_ok();
    assert_eq!(server.agent.next_text().await, "message 1");
}

#[tokio::test]
async fn other_requests_get_ordinary_answers() {
    let server = started(&[]).await;
    for (line, status) in [
        ("GET /telegram/webhook", 405),
        ("POST /telegram/webhook/", 404),
        ("POST /", 404),
        ("POST /healthz", 405),
    ] {
        let answer = request(server.address, &format!("{line} HTTP/1.1\r\n"), b"").await;
        assert_eq!(answer.status, status, "{line}");
    }
    let told = health(server.address).await;
    assert_eq!(told["ok"], true);
    assert_eq!(told["agent"], json!({ "open": 0, "succeeded": 0, "failed": 0 }));
}

/// Ten seconds for all of it.
#[tokio::test]
async fn an_update_that_never_ends_is_given_up() {
    let server = started(&[]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /telegram/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\
         X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}
