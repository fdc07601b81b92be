//! Who are you? Right and wrong answers.

use std::time::Duration;

use futures_util::SinkExt;
use tidegate_relay::address_of;
use tokio_tungstenite::tungstenite::Message;

use crate::client::{TestClient, answer, challenge, closed, connect, key, result, wrapped};
use crate::raw::{BINARY, FINAL, PING, PONG, Raw};
use crate::server::{HOST, PATIENCE, Server};

const NOT_LET_IN: (u16, &str) = (1008, "authentication failed");

#[tokio::test]
async fn the_right_answer_gives_an_address() {
    let server = Server::with_burst(10).await;
    let client = server.join(1).await;
    assert_eq!(client.address, address_of(key(1).verifying_key().as_bytes(), HOST));
    assert!(client.address.starts_with("pinch:") && client.address.ends_with("@relay.example"));
    assert_eq!(server.relay.connections(), 1);
}

#[tokio::test]
async fn the_challenge_says_what_to_sign_and_until_when() {
    let server = Server::with_burst(10).await;
    let mut socket = connect(server.address).await;
    let first = challenge(&mut socket).await;
    assert_eq!((first.version, first.nonce.len(), &*first.relay_host), (1, 32, HOST));
    assert_eq!(first.issued_at_ms, 1_700_000_000_000);
    assert_eq!(first.expires_at_ms - first.issued_at_ms, 10_000);
    let second = challenge(&mut connect(server.address).await).await;
    assert_ne!(first.nonce, second.nonce);
}

/// What is sent instead of a right answer.
async fn is_not_let_in(server: &Server, message: Message) {
    let mut socket = connect(server.address).await;
    challenge(&mut socket).await;
    let text = format!("{message:?}");
    socket.send(message).await.unwrap();
    let result = result(&mut socket).await;
    assert_eq!((result.success, &*result.error_message), (false, NOT_LET_IN.1), "{text}");
    assert_eq!(result.assigned_address, "");
    let (code, reason) = closed(&mut socket).await;
    assert_eq!((code, &*reason), NOT_LET_IN, "{text}");
}

#[tokio::test]
async fn garbage_before_the_answer_is_told_off() {
    let server = Server::with_burst(10).await;
    let garbage = [
        Message::binary(b"".as_slice()),
        Message::binary(b"\xff\xff\xff".as_slice()),
        Message::binary(vec![0; 70_000]),
        Message::text(""),
        Message::text("hello"),
    ];
    for message in garbage {
        is_not_let_in(&server, message).await;
    }
    assert_eq!((server.relay.connections(), server.relay.buckets()), (0, 0));
}

#[tokio::test]
async fn an_answer_for_another_connection_is_not_believed() {
    let server = Server::with_burst(10).await;
    let mut socket = connect(server.address).await;
    let overheard = challenge(&mut socket).await;
    is_not_let_in(&server, Message::binary(wrapped(answer(&key(1), &overheard)))).await;
}

#[tokio::test]
async fn an_answer_signed_by_somebody_else_is_not_believed() {
    let server = Server::with_burst(10).await;
    let mut socket = connect(server.address).await;
    let mut forged = answer(&key(1), &challenge(&mut socket).await);
    forged.public_key = key(2).verifying_key().to_bytes().to_vec();
    socket.send(Message::binary(wrapped(forged))).await.unwrap();
    assert!(!result(&mut socket).await.success);
    assert_eq!(closed(&mut socket).await.0, 1008);
}

#[tokio::test]
async fn a_challenge_expires() {
    let server = Server::with_burst(10).await;
    for (millis, is_let_in) in [(10_000, true), (10_001, false)] {
        let mut socket = connect(server.address).await;
        let answer = answer(&key(millis), &challenge(&mut socket).await);
        server.advance_ms(millis);
        socket.send(Message::binary(wrapped(answer))).await.unwrap();
        assert_eq!(result(&mut socket).await.success, is_let_in, "{millis}");
    }
}

#[tokio::test]
async fn who_says_nothing_is_sent_away_in_time() {
    let server =
        Server::start(|builder| builder.authenticate_within(Duration::from_millis(50))).await;
    let mut socket = connect(server.address).await;
    challenge(&mut socket).await;
    let result = result(&mut socket).await;
    assert_eq!((result.success, &*result.error_message), (false, NOT_LET_IN.1));
    let (code, reason) = closed(&mut socket).await;
    assert_eq!((code, &*reason), NOT_LET_IN);
}

/// Pings and half a frame are signs of life, but no answer.
#[tokio::test]
async fn who_only_stays_alive_is_sent_away_in_time() {
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
async fn the_same_address_twice_is_refused_and_the_first_one_stays() {
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

/// Many arrive with one key at the same time: exactly one is let in.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_with_one_address_one_is_let_in() {
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
async fn handshakes_in_progress_are_bounded() {
    let server = Server::start(|builder| builder.max_handshakes(2)).await;
    let (mut one, two) = (connect(server.address).await, connect(server.address).await);
    is_refused(&server).await;
    drop(two);
    // Once one of them is let in, and the other is gone, there is room for two.
    let answer = answer(&key(1), &challenge(&mut one).await);
    one.send(Message::binary(wrapped(answer))).await.unwrap();
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
    tokio::time::timeout(PATIENCE, attempts).await.expect("room in time")
}

async fn is_refused(server: &Server) {
    let head = Raw::try_connect(server.address).await.err().expect("no place");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
}
