//! Clients that leave release everything.

use futures_util::StreamExt;

use crate::client::{TestClient, closed};
use crate::raw::Raw;
use crate::server::{Server, TIMEOUT};

#[tokio::test]
async fn reconnect_has_a_fresh_full_burst() {
    let server = Server::with_burst(2).await;
    for _ in 0..3 {
        let mut ada = server.join(1).await;
        for _ in 0..2 {
            ada.send_to("absent", b"x").await;
        }
        ada.receives_nothing().await;
        ada.send_to("absent", b"x").await;
        ada.denied().await;
        assert_eq!((server.relay.connections(), server.relay.buckets()), (1, 1));
        // After a clean close the address is free: no waiting before the next connection.
        ada.leave().await;
        assert_eq!((server.relay.connections(), server.relay.buckets()), (0, 0));
    }
}

#[tokio::test]
async fn lost_connection_leaves_no_bucket_either() {
    let server = Server::with_burst(2).await;
    let mut ada = server.join(1).await;
    ada.send_to("absent", b"x").await;
    ada.receives_nothing().await;
    drop(ada);
    server.until_connections(0).await;
    assert_eq!(server.relay.buckets(), 0);
}

/// The last messages of a closing connection, and the first of the next one with the same address:
/// in any order, the next one has a full bucket.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn late_message_of_the_old_connection_is_not_charged_to_the_new_one() {
    const BURST: u64 = 5;
    let server = Server::with_burst(BURST).await;
    for round in 0..100_u64 {
        let mut old = server.join(1).await;
        for _ in 0..3 {
            old.send_to("absent", b"late").await;
        }
        if round % 2 == 0 {
            drop(old)
        } else {
            old.leave().await
        }
        let mut new = join_when_free(&server).await;
        for _ in 0..BURST {
            new.send_to("absent", b"early").await;
        }
        new.receives_nothing().await;
        new.send_to("absent", b"one too many").await;
        assert_eq!(new.denied().await.1, b"one too many");
        assert_eq!((server.relay.connections(), server.relay.buckets()), (1, 1));
        new.leave().await;
        assert_eq!((server.relay.connections(), server.relay.buckets()), (0, 0));
    }
}

#[tokio::test]
async fn refused_second_connection_does_not_remove_the_firsts_bucket() {
    let server = Server::with_burst(1).await;
    let mut ada = server.join(1).await;
    ada.send_to("absent", b"x").await;
    ada.receives_nothing().await;
    let (mut twin, denial) = TestClient::try_join(server.address, 1).await;
    assert!(!denial.success);
    closed(&mut twin).await;
    drop(twin);
    ada.send_to("absent", b"y").await;
    assert_eq!(ada.denied().await.1, b"y");
}

#[tokio::test]
async fn closing_relay_closes_connections_and_accepts_no_more() {
    let server = Server::with_burst(1).await;
    let (mut ada, mut unauthenticated) =
        (server.join(1).await, crate::client::connect(server.address).await);
    crate::client::challenge(&mut unauthenticated).await;
    let (relay, closing) = (
        server.relay.clone(),
        tokio::spawn({
            let relay = server.relay.clone();
            async move { relay.close().await }
        }),
    );
    assert_eq!(closed(&mut ada.socket).await.0, 1001);
    assert_eq!(closed(&mut unauthenticated).await.0, 1001);
    // Their replies to the close are sent when they read on.
    while ada.socket.next().await.is_some() {}
    while unauthenticated.next().await.is_some() {}
    tokio::time::timeout(TIMEOUT, closing).await.unwrap().unwrap();
    assert_eq!((relay.connections(), relay.buckets()), (0, 0));
    let head = Raw::try_connect(server.address).await.err().expect("no slot");
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
