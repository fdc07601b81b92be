//! An agent that is slow, fails or hangs, and a webhook that stops.

use axum::http::StatusCode;

use crate::http::health;
use crate::server::{silent, started_with};
use crate::stand_in::StandIn;

#[tokio::test]
async fn nobody_waits_for_the_agent_and_it_gets_so_many_at_a_time() {
    let variables = [("AGENT_CONCURRENCY", "2"), ("AGENT_QUEUE", "3")];
    let mut server = started_with(&variables, silent().await, StandIn::new().await).await;
    for update_id in 0..5 {
        server.send(update_id, 7).await.is_ok();
    }
    server.agent.next().await;
    server.agent.next().await;
    assert_eq!(health(server.address).await["agent"]["open"], 5);
    assert!(server.agent.is_idle(), "the others wait");
    server.agent.answer(1);
    server.agent.next().await;
    server.agent.answer(4);
    server.agent.next().await;
    server.agent.next().await;
    server.until(|health| health["agent"]["open"] == 0).await;
    assert_eq!(health(server.address).await["agent"]["succeeded"], 5);
}

/// Telegram sends again what was not answered with 200, so nothing is lost, and nothing is charged
/// twice.
#[tokio::test]
async fn when_too_many_wait_telegram_is_asked_to_come_again() {
    let variables = [("AGENT_CONCURRENCY", "1"), ("AGENT_QUEUE", "1"), ("RATE_LIMIT_MAX", "3")];
    let mut server = started_with(&variables, silent().await, StandIn::new().await).await;
    server.send(1, 7).await.is_ok();
    server.send(2, 7).await.is_ok();
    for _ in 0..3 {
        server.send(3, 7).await.is_problem(503);
    }
    // Its unit is set aside: three are three.
    server.send(4, 7).await.is_ok();
    assert_eq!(server.chat.next().await.body["chat_id"], crate::http::chat_of(7));
    server.agent.answer(2);
    server.until(|health| health["agent"]["succeeded"] == 2).await;
    server.send(3, 7).await.is_ok();
    for _ in 0..3 {
        server.agent.next().await;
    }
    server.agent.answer(1);
    server.until(|health| health["agent"]["succeeded"] == 3).await;
    server.send(3, 7).await.is_ok();
    assert!(server.agent.is_idle(), "it was dispatched once");
}

#[tokio::test]
async fn an_agent_that_fails_or_hangs_is_told_in_the_health() {
    let failing = StandIn::answering(StatusCode::INTERNAL_SERVER_ERROR).await;
    let server = started_with(&[], failing, StandIn::new().await).await;
    server.send(1, 7).await.is_ok();
    server.until(|health| health["agent"]["failed"] == 1).await;
    let hanging = started_with(&[("AGENT_TIMEOUT_MS", "20")], silent().await, StandIn::new().await);
    let server = hanging.await;
    server.send(1, 7).await.is_ok();
    server.until(|health| health["agent"]["failed"] == 1 && health["agent"]["open"] == 0).await;
}

#[tokio::test]
async fn what_was_accepted_is_delivered_before_it_stops() {
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
        assert!(!server.stop().is_finished(), "messages wait");
        server.agent.next().await;
        server.agent.answer(1);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn it_does_not_wait_for_ever() {
    let variables = [("STOP_GRACE_MS", "20")];
    let mut server = started_with(&variables, silent().await, StandIn::new().await).await;
    server.send(1, 7).await.is_ok();
    server.agent.next().await;
    server.stop().await.unwrap();
}
