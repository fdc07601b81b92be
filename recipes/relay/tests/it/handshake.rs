//! The handshake: valid and invalid responses.

use std::time::Duration;

use futures_util::SinkExt;
use tidegate_relay::address_of;
use tokio_tungstenite::tungstenite::Message;

use crate::client::{TestClient, auth_response, challenge, closed, connect, key, result, wrapped};
use crate::raw::{BINARY, FINAL, PING, PONG, Raw};
use crate::server::{HOST, Server, TIMEOUT};

const REJECTED: (u16, &str) = (1008, "authentication failed");

#[tokio::test]
async fn valid_response_gives_an_address() {
    let server = Server::with_burst(10).await;
    let client = server.join(1).await;
    assert_eq!(client.address, address_of(key(1).verifying_key().as_bytes(), HOST));
    assert!(client.address.starts_with("pinch:") && client.address.ends_with("@relay.example"));
    assert_eq!(server.relay.connections(), 1);
}

#[tokio::test]
async fn challenge_contains_nonce_host_and_expiry() {
    let server = Server::with_burst(10).await;
    let mut socket = connect(server.address).await;
    let first = challenge(&mut socket).await;
    assert_eq!((first.version, first.nonce.len(), &*first.relay_host), (1, 32, HOST));
    assert_eq!(first.issued_at_ms, 1_700_000_000_000);
    assert_eq!(first.expires_at_ms - first.issued_at_ms, 10_000);
    let second = challenge(&mut connect(server.address).await).await;
    assert_ne!(first.nonce, second.nonce);
}

/// Sends this instead of a valid response, and expects a rejection.
async fn is_rejected(server: &Server, message: Message) {
    let mut socket = connect(server.address).await;
    challenge(&mut socket).await;
    let text = format!("{message:?}");
    socket.send(message).await.unwrap();
    let result = result(&mut socket).await;
    assert_eq!((result.success, &*result.error_message), (false, REJECTED.1), "{text}");
    assert_eq!(result.assigned_address, "");
    let (code, reason) = closed(&mut socket).await;
    assert_eq!((code, &*reason), REJECTED, "{text}");
}

#[tokio::test]
async fn garbage_instead_of_a_response_is_rejected() {
    let server = Server::with_burst(10).await;
    let garbage = [
        Message::binary(b"".as_slice()),
        Message::binary(b"\xff\xff\xff".as_slice()),
        Message::binary(vec![0; 70_000]),
        Message::text(""),
        Message::text("hello"),
    ];
    for message in garbage {
        is_rejected(&server, message).await;
    }
    assert_eq!((server.relay.connections(), server.relay.buckets()), (0, 0));
}

#[tokio::test]
async fn response_for_another_connection_is_rejected() {
    let server = Server::with_burst(10).await;
    let mut socket = connect(server.address).await;
    let overheard = challenge(&mut socket).await;
    is_rejected(&server, Message::binary(wrapped(auth_response(&key(1), &overheard)))).await;
}

#[tokio::test]
async fn response_signed_with_another_key_is_rejected() {
    let server = Server::with_burst(10).await;
    let mut socket = connect(server.address).await;
    let mut forged = auth_response(&key(1), &challenge(&mut socket).await);
    forged.public_key = key(2).verifying_key().to_bytes().to_vec();
    socket.send(Message::binary(wrapped(forged))).await.unwrap();
    assert!(!result(&mut socket).await.success);
    assert_eq!(closed(&mut socket).await.0, 1008);
}

#[tokio::test]
async fn challenge_expires() {
    let server = Server::with_burst(10).await;
    for (millis, is_let_in) in [(10_000, true), (10_001, false)] {
        let mut socket = connect(server.address).await;
        let auth_response = auth_response(&key(millis), &challenge(&mut socket).await);
        server.advance_ms(millis);
        socket.send(Message::binary(wrapped(auth_response))).await.unwrap();
        assert_eq!(result(&mut socket).await.success, is_let_in, "{millis}");
    }
}

#[tokio::test]
async fn silent_connection_is_closed_in_time() {
    let server =
        Server::start(|builder| builder.authenticate_within(Duration::from_millis(50))).await;
    let mut socket = connect(server.address).await;
    challenge(&mut socket).await;
    let result = result(&mut socket).await;
    assert_eq!((result.success, &*result.error_message), (false, REJECTED.1));
    let (code, reason) = closed(&mut socket).await;
    assert_eq!((code, &*reason), REJECTED);
}

/// Pings and half a frame are signs of life, but no response.
#[tokio::test]
async fn connection_with_pings_only_is_closed_in_time() {
    let server =
        Server::start(|builder| builder.authenticate_within(Duration::from_millis(200))).await;
    let mut raw = Raw::connect(server.address).await;
    raw.read().await;
    raw.write(PING | FINAL, b"x").await;
    assert_eq!(raw.read().await.opcode, PONG);
    raw.write(BINARY, b"the beginning of a message").await;
    let frames = raw.read_to_end().await;
    assert_eq!(frames.last().unwrap().close_code(), 1008);
}

#[tokio::test]
async fn second_connection_of_an_address_is_refused_and_the_first_stays() {
    let server = Server::with_burst(10).await;
    let mut first = server.join(1).await;
    let (mut second, denial) = TestClient::try_join(server.address, 1).await;
    assert_eq!((denial.success, &*denial.error_message), (false, "address already connected"));
    assert_eq!(closed(&mut second).await, (1008, "address already connected".to_owned()));
    assert_eq!(server.relay.connections(), 1);
    let own = first.address.clone();
    first.send_to(&own, b"me").await;
    assert_eq!(first.receive_envelope().await.message_id, b"me");
}

/// Many connect with one key at the same time: exactly one is admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_concurrent_connections_of_an_address_is_admitted() {
    let server = Server::with_burst(10).await;
    let address = server.address;
    let tries: Vec<_> = (0..24).map(|_| tokio::spawn(TestClient::try_join(address, 7))).collect();
    let mut sockets = Vec::new();
    let mut let_in = 0;
    for one in tries {
        let (socket, result) = one.await.unwrap();
        let_in += u32::from(result.success);
        sockets.push(socket);
    }
    assert_eq!((let_in, server.relay.connections()), (1, 1));
}

#[tokio::test]
async fn handshakes_of_an_address_are_bounded() {
    // An address gets a quarter.
    let server = Server::start(|builder| builder.max_handshakes(8)).await;
    let (mut one, two) = (connect(server.address).await, connect(server.address).await);
    is_refused(&server).await;
    drop(two);
    // Once one is authenticated and the other is gone, there are two free slots.
    let auth_response = auth_response(&key(1), &challenge(&mut one).await);
    one.send(Message::binary(wrapped(auth_response))).await.unwrap();
    assert!(result(&mut one).await.success);
    let _third = connect_when_there_is_room(&server).await;
    let _fourth = connect_when_there_is_room(&server).await;
    is_refused(&server).await;
}

#[tokio::test]
async fn clients_are_bounded() {
    let server = Server::start(|builder| builder.max_connections(1)).await;
    let _first = server.join(1).await;
    let (mut second, denial) = TestClient::try_join(server.address, 2).await;
    assert_eq!(denial.error_message, "the relay is full");
    assert_eq!(closed(&mut second).await.0, 1013);
}

async fn connect_when_there_is_room(server: &Server) -> Raw {
    let attempts = async {
        loop {
            match Raw::try_connect(server.address).await {
                Ok(raw) => return raw,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(TIMEOUT, attempts).await.expect("room in time")
}

async fn is_refused(server: &Server) {
    let head = Raw::try_connect(server.address).await.err().expect("no slot");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
}
