//! Telegram resends an update when the response got lost.

use crate::http::health;
use crate::server::started;

#[tokio::test]
async fn duplicate_message_is_charged_and_dispatched_once() {
    let mut server = started(&[("RATE_LIMIT_MAX", "2")]).await;
    for _ in 0..5 {
        server.send(1, 7).await.is_ok();
    }
    server.expect(1, true).await;
    server.send(2, 7).await.is_ok();
    server.expect(2, true).await;
    server.send(3, 7).await.is_ok();
    server.expect(3, false).await;
    // An allowed message stays allowed, even after the limit is reached.
    server.send(1, 7).await.is_ok();
    assert!(server.agent.is_idle() && server.chat.is_idle());
    assert_eq!(health(server.address).await["agent"]["succeeded"], 2);
}

#[tokio::test]
async fn concurrent_duplicates_are_dispatched_once() {
    let mut server = started(&[]).await;
    let (a, b, c) = tokio::join!(server.send(1, 7), server.send(1, 7), server.send(1, 7));
    [a, b, c].iter().for_each(crate::http::HttpResponse::is_ok);
    server.expect(1, true).await;
    server.until(|health| health["agent"]["open"] == 0).await;
    assert!(server.agent.is_idle());
}

/// Telegram resends a denied update too, when the response got lost.
#[tokio::test]
async fn repeated_denied_message_gets_one_reply() {
    let mut server = started(&[("RATE_LIMIT_MAX", "1")]).await;
    server.send(1, 7).await.is_ok();
    server.expect(1, true).await;
    for update_id in [2, 3] {
        for _ in 0..6 {
            server.send(update_id, 7).await.is_ok();
        }
        server.expect(update_id, false).await;
    }
    server.until(|health| health["replies"]["open"] == 0).await;
    assert!(server.chat.is_idle() && server.agent.is_idle());
}

/// A denial is not cached: a repeated message is decided again.
#[tokio::test]
async fn repeated_denied_message_is_decided_again() {
    let mut server = started(&[("RATE_LIMIT_MAX", "1")]).await;
    server.send(1, 7).await.is_ok();
    server.expect(1, true).await;
    server.send(2, 7).await.is_ok();
    server.expect(2, false).await;
    server.clock.advance(std::time::Duration::from_secs(3_600));
    server.send(2, 7).await.is_ok();
    server.expect(2, true).await;
}
