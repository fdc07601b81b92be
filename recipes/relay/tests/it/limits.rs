//! One bucket per connection, on a stopped clock.

use std::time::Duration;

use futures_util::SinkExt;
use tidegate::{Bucket, Rate};
use tidegate_relay::wire::MessageType;
use tokio_tungstenite::tungstenite::Message;

use crate::server::{Server, bucket};

const REASON: &str = "per-connection rate limit exceeded";

#[tokio::test]
async fn first_message_is_allowed() {
    let server = Server::with_burst(1).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    ada.send_to(&bob.address, b"1").await;
    assert_eq!(bob.receive_envelope().await.message_id, b"1");
    ada.receives_nothing().await;
}

#[tokio::test]
async fn one_more_than_the_burst_is_denied_and_not_delivered() {
    let server = Server::with_burst(10).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for id in 0..11 {
        ada.send_to(&bob.address, &[id]).await;
    }
    let (limited, id) = ada.denied().await;
    assert_eq!((limited.retry_after_ms, &*limited.reason), (1_000, REASON));
    assert_eq!(id, [10]);
    for id in 0..10 {
        assert_eq!(bob.receive_envelope().await.message_id, [id]);
    }
    bob.receives_nothing().await;
    ada.receives_nothing().await;
}

#[tokio::test]
async fn denial_is_an_envelope_of_the_relay() {
    let server = Server::with_burst(1).await;
    let mut ada = server.join(1).await;
    ada.send_to("absent", b"1").await;
    ada.send_to("absent", b"a name of any length").await;
    let envelope = ada.receive_envelope().await;
    assert_eq!((envelope.version, envelope.r#type()), (1, MessageType::RateLimited));
    assert_eq!((&*envelope.from_address, &*envelope.to_address), ("", ""));
    assert_eq!(envelope.timestamp, 1_700_000_000_000);
    assert_eq!(envelope.message_id, b"a name of any length");
}

/// The wait is exact: a millisecond earlier the message is denied, after the wait it is allowed.
#[tokio::test]
async fn wait_is_the_true_wait_rounded_up() {
    // Three per two seconds: one every 666 666 666.6 ns.
    let limit = Bucket::try_new(Rate::per_second_decimal("1.5").unwrap(), 1).unwrap();
    let server = Server::with_limit(Some(limit)).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    ada.send_to(&bob.address, b"1").await;
    assert_eq!(bob.receive_envelope().await.message_id, b"1");
    ada.send_to(&bob.address, b"2").await;
    assert_eq!(ada.denied().await.0.retry_after_ms, 667);
    server.advance_ms(600);
    ada.send_to(&bob.address, b"2").await;
    assert_eq!(ada.denied().await.0.retry_after_ms, 67);
    server.advance_ms(66);
    ada.send_to(&bob.address, b"2").await;
    assert_eq!(ada.denied().await.0.retry_after_ms, 1);
    server.clock.advance(Duration::from_nanos(666_666));
    ada.send_to(&bob.address, b"2").await;
    assert_eq!(ada.denied().await.0.retry_after_ms, 1, "a nanosecond is left, never zero");
    server.clock.advance(Duration::from_nanos(1));
    ada.send_to(&bob.address, b"2").await;
    assert_eq!(bob.receive_envelope().await.message_id, b"2");
}

#[tokio::test]
async fn sustained_rate_is_met_after_the_burst() {
    let server = Server::with_burst(3).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for id in 0..3 {
        ada.send_to(&bob.address, &[id]).await;
    }
    for id in 3..10 {
        ada.send_to(&bob.address, b"too early").await;
        assert_eq!(ada.denied().await.0.retry_after_ms, 1_000);
        server.advance_ms(1_000);
        ada.send_to(&bob.address, &[id]).await;
    }
    for id in 0..10 {
        assert_eq!(bob.receive_envelope().await.message_id, [id]);
    }
}

/// The limit comes before the size and before decoding: every message is charged.
#[tokio::test]
async fn every_message_is_charged_first() {
    let wrong: [Message; 7] = [
        Message::text("text"),
        Message::text(""),
        Message::binary(b"".as_slice()),
        Message::binary(b"\xff\xff\xff".as_slice()),
        Message::binary(vec![0x0a; 65_537]),
        Message::binary(vec![0; 131_072]),
        Message::binary(b"\x20\x0b".as_slice()),
    ];
    let server = Server::with_burst(1).await;
    for (number, message) in (0..).zip(wrong) {
        let mut ada = server.join(number).await;
        ada.socket.send(message.clone()).await.unwrap();
        ada.socket.send(message).await.unwrap();
        let (limited, id) = ada.denied().await;
        assert_eq!((limited.retry_after_ms, id), (1_000, vec![]), "number {number}");
        ada.receives_nothing().await;
    }
}

#[tokio::test]
async fn pings_cost_nothing() {
    let server = Server::with_burst(1).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for _ in 0..50 {
        ada.receives_nothing().await;
    }
    ada.send_to(&bob.address, b"1").await;
    assert_eq!(bob.receive_envelope().await.message_id, b"1");
}

/// A denied message of up to the socket's limit is decoded for its id.
#[tokio::test]
async fn denial_echoes_ids_of_large_messages_but_is_never_too_large() {
    let server = Server::with_burst(1).await;
    let mut ada = server.join(1).await;
    ada.send_to("absent", b"1").await;
    let padding = |len: usize| {
        // Field 10, encrypted.
        let mut bytes = vec![0x52, (len & 0x7f) as u8 | 0x80, (len >> 7 & 0x7f) as u8 | 0x80];
        bytes.push((len >> 14) as u8);
        bytes.extend(vec![0; len]);
        bytes
    };
    ada.send([ada.envelope("absent", b"large"), padding(130_000)].concat()).await;
    assert_eq!(ada.denied().await.1, b"large");
    ada.send_to("absent", &[9; 60_000]).await;
    assert_eq!(ada.denied().await.1, [9; 60_000]);
    ada.send_to("absent", &[9; 100_000]).await;
    assert_eq!(ada.denied().await.1, b"", "its denial would be too large an envelope");
}

#[tokio::test]
async fn each_client_has_its_own_bucket() {
    let server = Server::with_burst(2).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for _ in 0..3 {
        ada.send_to("absent", b"x").await;
    }
    ada.denied().await;
    bob.send_to(&ada.address, b"hello").await;
    assert_eq!(ada.receive_envelope().await.message_id, b"hello");
}

#[tokio::test]
async fn bucket_is_created_by_the_first_message() {
    let server = Server::with_burst(2).await;
    let mut ada = server.join(1).await;
    ada.receives_nothing().await;
    assert_eq!(server.relay.buckets(), 0);
    ada.send_to("absent", b"x").await;
    ada.receives_nothing().await;
    assert_eq!(server.relay.buckets(), 1);
}

#[tokio::test]
async fn relay_without_a_limiter_forwards_everything() {
    let server = Server::with_limit(None).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for id in 0..=200 {
        ada.send_to(&bob.address, &[id]).await;
        assert_eq!(bob.receive_envelope().await.message_id, [id]);
    }
    ada.receives_nothing().await;
    assert_eq!(server.relay.buckets(), 0);
}

/// Concurrent use is safe and the counts are exact: the clock is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_floods_get_exactly_their_burst_each() {
    const BURST: u64 = 7;
    const SENDS: u64 = 40;
    let server = Server::with_limit(Some(bucket(BURST))).await;
    let mut sink = server.join(0).await;
    let senders = (1..=16).map(|number| {
        let (relay, to) = (server.address, sink.address.clone());
        tokio::spawn(async move {
            let mut client = crate::client::TestClient::join(relay, number).await;
            for id in 0..SENDS {
                client.send_to(&to, &id.to_be_bytes()).await;
            }
            for id in BURST..SENDS {
                let (limited, denied) = client.denied().await;
                assert_eq!((limited.retry_after_ms, denied), (1_000, id.to_be_bytes().to_vec()));
            }
            client.receives_nothing().await;
            client
        })
    });
    let mut clients = Vec::new();
    for sender in senders.collect::<Vec<_>>() {
        clients.push(sender.await.unwrap());
    }
    for _ in 0..16 * BURST {
        sink.receive().await;
    }
    sink.receives_nothing().await;
    assert_eq!(server.relay.buckets(), 16);
}
