//! Telegram sends an update again when the answer to it got lost.

use crate::http::health;
use crate::server::started;

#[tokio::test]
async fn a_message_that_comes_twice_is_charged_and_dispatched_once() {
    let mut server = started(&[("RATE_LIMIT_MAX", "2")]).await;
    for _ in 0..5 {
        server.send(1, 7).await.is_ok();
    }
    server.expect(1, true).await;
    server.send(2, 7).await.is_ok();
    server.expect(2, true).await;
    server.send(3, 7).await.is_ok();
    server.expect(3, false).await;
    // What passed stays what it was, also when the limit is reached.
    server.send(1, 7).await.is_ok();
    assert!(server.agent.is_idle() && server.chat.is_idle());
    assert_eq!(health(server.address).await["agent"]["succeeded"], 2);
}

#[tokio::test]
async fn at_the_same_time_as_well() {
    let mut server = started(&[]).await;
    let (a, b, c) = tokio::join!(server.send(1, 7), server.send(1, 7), server.send(1, 7));
    [a, b, c].iter().for_each(crate::http::Answer::is_ok);
    server.expect(1, true).await;
    server.until(|health| health["agent"]["open"] == 0).await;
    assert!(server.agent.is_idle());
}

/// A refusal is not remembered: what comes again is decided again.
#[tokio::test]
async fn a_refused_message_that_comes_again_is_a_new_one() {
    let mut server = started(&[("RATE_LIMIT_MAX", "1")]).await;
    server.send(1, 7).await.is_ok();
    server.expect(1, true).await;
    server.send(2, 7).await.is_ok();
    server.expect(2, false).await;
    server.clock.advance(std::time::Duration::from_secs(3_600));
    server.send(2, 7).await.is_ok();
    server.expect(2, true).await;
}
