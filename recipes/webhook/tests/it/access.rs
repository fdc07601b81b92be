//! The steps before the limit: secret, user, kind of update.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::{SECRET, TIMEOUT, health, post, request, send, update};
use crate::server::started;

#[tokio::test]
async fn wrong_secret_is_a_401_and_costs_nothing() {
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
        // The body was not even parsed.
        post(server.address, &header, b"garbage").await.is_problem(401);
    }
    // None of it was charged.
    server.send(2, 7).await.is_ok();
    assert_eq!(server.agent.next_text().await, "message 2");
    assert!(server.agent.is_idle() && server.chat.is_idle());
}

#[tokio::test]
async fn users_who_are_not_listed_are_silently_ignored() {
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
async fn updates_of_other_kinds_are_accepted_and_cost_nothing() {
    let mut server = started(&[("RATE_LIMIT_MAX", "1")]).await;
    let message = update(1, 7)["message"].clone();
    let button_press = json!({ "id": "1", "from": { "id": 7 }, "message": message });
    let without_user = json!({ "message_id": 1, "chat": { "id": -1 }, "text": "x" });
    for other in [
        json!({ "update_id": 1, "edited_message": message }),
        json!({ "update_id": 2, "channel_post": message }),
        json!({ "update_id": 3, "callback_query": button_press }),
        json!({ "update_id": 4, "message": without_user }),
        json!({ "update_id": 5 }),
    ] {
        send(server.address, &other).await.is_ok();
    }
    server.send(6, 7).await.is_ok();
    assert_eq!(server.agent.next_text().await, "message 6");
    assert!(server.agent.is_idle() && server.chat.is_idle());
}

#[tokio::test]
async fn invalid_update_is_refused_and_costs_nothing() {
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
async fn other_requests_get_ordinary_responses() {
    let server = started(&[]).await;
    for (line, status) in [
        ("GET /telegram/webhook", 405),
        ("POST /telegram/webhook/", 404),
        ("POST /", 404),
        ("POST /healthz", 405),
    ] {
        let response = request(server.address, &format!("{line} HTTP/1.1\r\n"), b"").await;
        assert_eq!(response.status, status, "{line}");
    }
    let report = health(server.address).await;
    assert_eq!(report["ok"], true);
    assert_eq!(report["agent"], json!({ "open": 0, "succeeded": 0, "failed": 0 }));
}

/// Ten seconds for the whole update.
#[tokio::test]
async fn endless_update_times_out() {
    let server = started(&[]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /telegram/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\
         X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut response)).await.unwrap().unwrap();
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
}
