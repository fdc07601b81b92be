//! A slow, failing or hanging agent, and a webhook that stops.

use std::collections::BTreeSet;

use axum::http::StatusCode;

use crate::http::{health, send, update};
use crate::server::{silent, started_with};
use crate::stand_in::StandIn;

#[tokio::test]
async fn telegram_does_not_wait_and_agent_calls_are_bounded() {
    let variables = [("AGENT_CONCURRENCY", "2"), ("AGENT_QUEUE", "3")];
    let mut server = started_with(&variables, silent().await, StandIn::new().await).await;
    for update_id in 0..5 {
        server.send(update_id, 7).await.is_ok();
    }
    server.agent.next().await;
    server.agent.next().await;
    assert_eq!(health(server.address).await["agent"]["open"], 5);
    assert!(server.agent.is_idle(), "the others are queued");
    server.agent.respond(1);
    server.agent.next().await;
    server.agent.respond(4);
    server.agent.next().await;
    server.agent.next().await;
    server.until(|health| health["agent"]["open"] == 0).await;
    assert_eq!(health(server.address).await["agent"]["succeeded"], 5);
}

/// Telegram resends every update that got no 200, so nothing is lost, and nothing is charged before.
#[tokio::test]
async fn full_queue_makes_telegram_resend() {
    let variables = [("AGENT_CONCURRENCY", "1"), ("AGENT_QUEUE", "1"), ("RATE_LIMIT_MAX", "3")];
    let mut server = started_with(&variables, silent().await, StandIn::new().await).await;
    server.send(1, 7).await.is_ok();
    server.send(2, 7).await.is_ok();
    for _ in 0..3 {
        server.send(3, 7).await.is_problem(503);
    }
    // Nothing is charged for it: another message is not denied either.
    server.send(4, 7).await.is_problem(503);
    server.send(1, 7).await.is_ok();
    assert!(server.chat.is_idle());
    server.agent.respond(2);
    server.until(|health| health["agent"]["succeeded"] == 2).await;
    server.send(3, 7).await.is_ok();
    for _ in 0..3 {
        server.agent.next().await;
    }
    server.agent.respond(1);
    server.until(|health| health["agent"]["succeeded"] == 3).await;
    server.send(3, 7).await.is_ok();
    assert!(server.agent.is_idle(), "it was dispatched once");
    server.send(4, 7).await.is_ok();
    assert_eq!(server.chat.next().await.body["chat_id"], crate::http::chat_of(7));
}

#[tokio::test]
async fn accepted_bytes_are_bounded() {
    let variables = [("AGENT_QUEUE_BYTES", "600000"), ("RATE_LIMIT_MAX", "4")];
    let mut server = started_with(&variables, silent().await, StandIn::new().await).await;
    let large = |update_id: i64| {
        let mut update = update(update_id, 7);
        update["message"]["text"] = "x".repeat(250_000).into();
        update
    };
    for update_id in 0..2 {
        send(server.address, &large(update_id)).await.is_ok();
    }
    send(server.address, &large(2)).await.is_problem(503);
    // A short one fits.
    server.send(3, 7).await.is_ok();
    for _ in 0..3 {
        server.agent.next().await;
    }
    server.agent.respond(3);
    server.until(|health| health["agent"]["open"] == 0).await;
    // What got a 503 was not charged, so that it is the fourth.
    server.agent.respond(1);
    send(server.address, &large(2)).await.is_ok();
    assert_eq!(server.agent.next().await.body["update_id"], 2);
    server.send(4, 7).await.is_ok();
    server.chat.next().await;
}

/// An agent that is not there yet gets what was accepted when it comes.
#[tokio::test]
async fn unreachable_agent_is_called_again() {
    let agent = StandIn::new().await;
    let address = agent.address;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let later = free.local_addr().unwrap();
    drop(free);
    let url = format!("http://{later}/agent");
    let mut server = started_with(&[("AGENT_URL", &url)], agent, StandIn::new().await).await;
    for update_id in 0..3 {
        server.send(update_id, 7).await.is_ok();
    }
    assert_eq!(health(server.address).await["agent"]["open"], 3);
    let mut agent = StandIn::at(later).await;
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        seen.insert(agent.next_text().await);
    }
    assert_eq!(seen.len(), 3);
    server.until(|health| health["agent"]["succeeded"] == 3).await;
    assert!(server.agent.is_idle() && address != later);
}

#[tokio::test]
async fn failing_or_hanging_agent_shows_in_the_health() {
    let failing = StandIn::responding(StatusCode::INTERNAL_SERVER_ERROR).await;
    let server = started_with(&[], failing, StandIn::new().await).await;
    server.send(1, 7).await.is_ok();
    server.until(|health| health["agent"]["failed"] == 1).await;
    let hanging = started_with(&[("AGENT_TIMEOUT_MS", "20")], silent().await, StandIn::new().await);
    let server = hanging.await;
    server.send(1, 7).await.is_ok();
    server.until(|health| health["agent"]["failed"] == 1 && health["agent"]["open"] == 0).await;
}

#[tokio::test]
async fn accepted_messages_are_delivered_before_the_stop() {
    let variables = [("AGENT_CONCURRENCY", "1")];
    let mut server = started_with(&variables, silent().await, StandIn::new().await).await;
    for update_id in 0..3 {
        server.send(update_id, 7).await.is_ok();
    }
    let (agent, address) = (server.agent.address, server.address);
    server.stop();
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(tokio::net::TcpStream::connect(agent).await.is_ok());
    for _ in 0..3 {
        assert!(!server.stop().is_finished(), "messages are queued");
        server.agent.next().await;
        server.agent.respond(1);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn stop_is_bounded_by_the_grace_period() {
    let variables = [("STOP_GRACE_MS", "20")];
    let mut server = started_with(&variables, silent().await, StandIn::new().await).await;
    server.send(1, 7).await.is_ok();
    server.agent.next().await;
    server.stop().await.unwrap();
}
