//! Routing: which envelopes are delivered.

use prost::Message as _;
use tidegate_relay::wire::{
    AuthResult, Envelope, MessageType, OpaquePayload, Payload, RateLimited,
};

use crate::server::Server;

#[tokio::test]
async fn envelope_is_forwarded_byte_for_byte() {
    let server = Server::with_burst(10).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    // Fields out of order, one of them twice, one unknown.
    let mut bytes = vec![0x90, 0x3f, 5, 0x12, 1, b'x'];
    bytes.extend(ada.envelope(&bob.address, b"id"));
    ada.send(bytes.clone()).await;
    assert_eq!(bob.receive().await, bytes);
}

#[tokio::test]
async fn every_type_between_clients_is_forwarded() {
    let server = Server::with_burst(100).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for kind in [0, 1, 4, 5, 6, 7, 8, 10, 16, 99, -1] {
        let bytes = of_type(&ada.address, &bob.address, kind).encode_to_vec();
        ada.send(bytes.clone()).await;
        assert_eq!(bob.receive().await, bytes, "type {kind}");
    }
}

#[tokio::test]
async fn block_notices_are_consumed_silently() {
    let server = Server::with_burst(100).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for kind in [MessageType::BlockNotification, MessageType::UnblockNotification] {
        for to in [&*bob.address, ""] {
            ada.send(of_type(&ada.address, to, kind.into()).encode_to_vec()).await;
        }
    }
    ada.receives_nothing().await;
    bob.receives_nothing().await;
    ada.send_to(&bob.address, b"after").await;
    assert_eq!(bob.receive_envelope().await.message_id, b"after");
}

/// A client that trusted these would take its neighbour for the relay.
#[tokio::test]
async fn relay_messages_from_clients_are_not_forwarded() {
    let server = Server::with_burst(100).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for kind in [2, 3, 9, 13, 14, 15] {
        ada.send(of_type(&ada.address, &bob.address, kind).encode_to_vec()).await;
    }
    let payloads = [
        Payload::AuthResult(AuthResult { success: true, ..AuthResult::default() }),
        Payload::RateLimited(RateLimited { retry_after_ms: 1 << 40, reason: "hush".to_owned() }),
        Payload::QueueStatus(OpaquePayload {}),
        Payload::QueueFull(OpaquePayload {}),
    ];
    for payload in payloads {
        let message = of_type(&ada.address, &bob.address, MessageType::Message.into());
        ada.send(Envelope { payload: Some(payload), ..message }.encode_to_vec()).await;
    }
    ada.receives_nothing().await;
    bob.receives_nothing().await;
}

#[tokio::test]
async fn forged_senders_are_dropped_and_charged() {
    let server = Server::with_burst(3).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    let carol = server.join(3).await;
    let padded = format!("{} ", ada.address);
    for from in [&*carol.address, &*bob.address, &*padded] {
        ada.send(of_type(from, &bob.address, 4).encode_to_vec()).await;
    }
    ada.receives_nothing().await;
    bob.receives_nothing().await;
    ada.send_to(&bob.address, b"fourth").await;
    assert_eq!(ada.denied().await.1, b"fourth");
}

#[tokio::test]
async fn empty_sender_is_accepted() {
    let server = Server::with_burst(1).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    ada.send(of_type("", &bob.address, 4).encode_to_vec()).await;
    assert_eq!(bob.receive_envelope().await.from_address, "");
}

/// The last of several `from_address` counts, as in every decoder of the format.
#[tokio::test]
async fn sender_cannot_be_hidden_behind_another() {
    let server = Server::with_burst(4).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    let forged = Envelope { from_address: bob.address.clone(), ..Envelope::default() };
    let bytes = [ada.envelope(&bob.address, b"x"), forged.encode_to_vec()].concat();
    ada.send(bytes).await;
    ada.receives_nothing().await;
    bob.receives_nothing().await;
}

#[tokio::test]
async fn envelope_without_a_recipient_is_dropped() {
    let server = Server::with_burst(10).await;
    let (mut ada, bob) = (server.join(1).await, server.join(2).await);
    let gone = bob.address.clone();
    bob.leave().await;
    for to in ["", "absent", &*gone] {
        ada.send_to(to, b"x").await;
    }
    ada.receives_nothing().await;
}

#[tokio::test]
async fn client_can_write_to_itself() {
    let server = Server::with_burst(10).await;
    let mut ada = server.join(1).await;
    let own = ada.address.clone();
    ada.send_to(&own, b"note").await;
    assert_eq!(ada.receive_envelope().await.message_id, b"note");
}

#[tokio::test]
async fn envelopes_arrive_in_the_order_in_which_they_were_sent() {
    let server = Server::with_burst(250).await;
    let (mut ada, mut bob) = (server.join(1).await, server.join(2).await);
    for id in 0..250_u8 {
        ada.send_to(&bob.address, &[id]).await;
    }
    for id in 0..250_u8 {
        assert_eq!(bob.receive_envelope().await.message_id, [id]);
    }
}

fn of_type(from: &str, to: &str, kind: i32) -> Envelope {
    Envelope {
        version: 1,
        from_address: from.to_owned(),
        to_address: to.to_owned(),
        r#type: kind,
        ..Envelope::default()
    }
}
