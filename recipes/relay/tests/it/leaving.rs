//! What is left when clients leave: nothing.

use futures_util::StreamExt;

use crate::client::{TestClient, closed};
use crate::raw::Raw;
use crate::server::{PATIENCE, Server};

#[tokio::test]
async fn leaving_gives_a_fresh_full_burst() {
    let server = Server::with_burst(2).await;
    for _ in 0..3 {
        let mut ada = server.join(1).await;
        for _ in 0..2 {
            ada.send_to("nobody", b"x").await;
        }
        ada.hears_nothing().await;
        ada.send_to("nobody", b"x").await;
        ada.refused().await;
        assert_eq!((server.relay.connections(), server.relay.buckets()), (1, 1));
        // An orderly goodbye is over when the address is free: no waiting before the next one.
        ada.leave().await;
        assert_eq!((server.relay.connections(), server.relay.buckets()), (0, 0));
    }
}

#[tokio::test]
async fn who_is_cut_off_leaves_nothing_behind_either() {
    let server = Server::with_burst(2).await;
    let mut ada = server.join(1).await;
    ada.send_to("nobody", b"x").await;
    ada.hears_nothing().await;
    drop(ada);
    server.until_connections(0).await;
    assert_eq!(server.relay.buckets(), 0);
}

/// The last messages of a connection that is leaving, and the first of the next one under the same
/// address: whatever the order, what the next one finds is a full bucket.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_late_message_of_the_old_connection_is_not_charged_to_the_new_one() {
    const BURST: u64 = 5;
    let server = Server::with_burst(BURST).await;
    for round in 0..100_u64 {
        let mut old = server.join(1).await;
        for _ in 0..3 {
            old.send_to("nobody", b"late").await;
        }
        if round % 2 == 0 {
            drop(old)
        } else {
            old.leave().await
        }
        let mut new = join_when_free(&server).await;
        for _ in 0..BURST {
            new.send_to("nobody", b"early").await;
        }
        new.hears_nothing().await;
        new.send_to("nobody", b"one too many").await;
        assert_eq!(new.refused().await.1, b"one too many");
        assert_eq!((server.relay.connections(), server.relay.buckets()), (1, 1));
        new.leave().await;
        assert_eq!((server.relay.connections(), server.relay.buckets()), (0, 0));
    }
}

#[tokio::test]
async fn a_refused_twin_does_not_take_the_first_ones_bucket_along() {
    let server = Server::with_burst(1).await;
    let mut ada = server.join(1).await;
    ada.send_to("nobody", b"x").await;
    ada.hears_nothing().await;
    let (mut twin, denial) = TestClient::try_join(server.address, 1).await;
    assert!(!denial.success);
    closed(&mut twin).await;
    drop(twin);
    ada.send_to("nobody", b"y").await;
    assert_eq!(ada.refused().await.1, b"y");
}

#[tokio::test]
async fn a_relay_that_goes_away_says_so_and_lets_nobody_in() {
    let server = Server::with_burst(1).await;
    let (mut ada, mut nobody) =
        (server.join(1).await, crate::client::connect(server.address).await);
    crate::client::challenge(&mut nobody).await;
    let (relay, closing) = (
        server.relay.clone(),
        tokio::spawn({
            let relay = server.relay.clone();
            async move { relay.close().await }
        }),
    );
    assert_eq!(closed(&mut ada.socket).await.0, 1001);
    assert_eq!(closed(&mut nobody).await.0, 1001);
    // Their answers to the farewell are sent when they read on.
    while ada.socket.next().await.is_some() {}
    while nobody.next().await.is_some() {}
    tokio::time::timeout(PATIENCE, closing).await.unwrap().unwrap();
    assert_eq!((relay.connections(), relay.buckets()), (0, 0));
    let head = Raw::try_connect(server.address).await.err().expect("no place");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
}

async fn join_when_free(server: &Server) -> TestClient {
    loop {
        let (socket, result) = TestClient::try_join(server.address, 1).await;
        if result.success {
            return TestClient { socket, address: result.assigned_address };
        }
        assert_eq!(result.error_message, "address already connected");
    }
}
