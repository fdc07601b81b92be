//! The limit: which messages reach the agent, and the reply to the others.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;

use crate::http::{chat_of, send, update};
use crate::server::{silent, started, started_with};
use crate::stand_in::StandIn;

const TOO_MANY: &str = "You've reached the message limit. Please try again later.";

#[tokio::test(flavor = "multi_thread")]
async fn twenty_of_fifty_at_once_reach_the_agent_and_thirty_get_a_reply() {
    let mut server = started(&[]).await;
    let address = server.address;
    let mut sent: JoinSet<_> = (0..50)
        .map(|update_id| async move { send(address, &update(update_id, 7)).await })
        .collect();
    while let Some(response) = sent.join_next().await {
        response.unwrap().is_ok();
    }
    let mut dispatched = BTreeSet::new();
    for _ in 0..20 {
        assert!(dispatched.insert(server.agent.next_text().await), "no duplicates");
    }
    for _ in 0..30 {
        let reply = server.chat.next().await;
        assert_eq!(reply.path, "/bot123:token/sendMessage");
        assert_eq!(reply.headers["content-type"], "application/json");
        assert_eq!(reply.body, json!({ "chat_id": chat_of(7), "text": TOO_MANY }));
    }
    server.until(|health| health["agent"]["open"] == 0 && health["replies"]["open"] == 0).await;
    assert!(server.agent.is_idle() && server.chat.is_idle());
}

#[tokio::test]
async fn agent_gets_the_update_unchanged() {
    let mut server = started(&[]).await;
    server.send(77, 7).await.is_ok();
    let call = server.agent.next().await;
    assert_eq!(call.path, "/agent");
    assert_eq!(call.body, update(77, 7));
    assert_eq!(call.headers["content-type"], "application/json");
    assert_eq!(call.headers["idempotency-key"], "77");
    assert!(!call.headers.contains_key("x-telegram-bot-api-secret-token"));
}

#[tokio::test]
async fn next_window_begins_by_the_clock() {
    let mut server = started(&[("RATE_LIMIT_MAX", "2"), ("RATE_LIMIT_WINDOW_MS", "60000")]).await;
    // 1 700 000 000 s is 20 s into a minute.
    for (update_id, passes) in [(1, true), (2, true), (3, false), (4, false)] {
        server.send(update_id, 7).await.is_ok();
        server.expect(update_id, passes).await;
    }
    server.clock.advance(Duration::from_millis(39_999));
    server.send(5, 7).await.is_ok();
    server.expect(5, false).await;
    server.clock.advance(Duration::from_millis(1));
    for (update_id, passes) in [(6, true), (7, true), (8, false)] {
        server.send(update_id, 7).await.is_ok();
        server.expect(update_id, passes).await;
    }
}

#[tokio::test]
async fn each_user_has_a_count_and_some_another_limit() {
    let users = [("RATE_LIMIT_MAX", "1"), ("RATE_LIMIT_USERS", "8=2,9=unlimited")];
    let mut server = started(&users).await;
    let mut update_id = 0;
    for (user, passes) in [(7, 1), (8, 2), (9, 4)] {
        for round in 0..4 {
            update_id += 1;
            server.send(update_id, user).await.is_ok();
            server.expect(update_id, round < passes).await;
        }
    }
}

#[tokio::test]
async fn sliding_window_has_no_double_burst() {
    for (algorithm, passes) in [("window", true), ("sliding", false), ("bucket", false)] {
        let algorithm = [("RATE_LIMIT_ALGORITHM", algorithm), ("RATE_LIMIT_MAX", "1")];
        let mut server = started(&algorithm).await;
        // The last moment of an hour, and the next one.
        server.clock.advance(Duration::from_secs(3_600 - 1_700_000_000 % 3_600 - 1));
        server.send(1, 7).await.is_ok();
        server.expect(1, true).await;
        server.clock.advance(Duration::from_secs(1));
        server.send(2, 7).await.is_ok();
        server.expect(2, passes).await;
    }
}

#[tokio::test]
async fn failed_reply_changes_nothing() {
    let chat = StandIn::responding(StatusCode::INTERNAL_SERVER_ERROR).await;
    let mut server = started_with(&[("RATE_LIMIT_MAX", "1")], StandIn::new().await, chat).await;
    server.send(1, 7).await.is_ok();
    for update_id in 2..5 {
        server.send(update_id, 7).await.is_ok();
        server.chat.next().await;
    }
    server.until(|health| health["replies"]["failed"] == 3).await;
    assert_eq!(server.agent.next_text().await, "message 1");
    assert!(server.agent.is_idle());
}

#[tokio::test]
async fn unreachable_chat_api_changes_nothing() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let server = started(&[("RATE_LIMIT_MAX", "1"), ("TELEGRAM_API_BASE", &base)]).await;
    for update_id in 0..3 {
        server.send(update_id, 7).await.is_ok();
    }
    server.until(|health| health["replies"]["failed"] == 2).await;
}

#[tokio::test]
async fn hanging_reply_times_out_and_delays_nothing() {
    let hanging = silent().await;
    let variables = [("RATE_LIMIT_MAX", "1"), ("REPLY_TIMEOUT_MS", "20")];
    let mut server = started_with(&variables, StandIn::new().await, hanging).await;
    for update_id in 0..4 {
        server.send(update_id, 7).await.is_ok();
    }
    for _ in 0..3 {
        server.chat.next().await;
    }
    server.until(|health| health["replies"]["failed"] == 3).await;
    server.until(|health| health["replies"]["open"] == 0).await;
}
