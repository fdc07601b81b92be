//! A client of the protocol, for tests.

use std::net::SocketAddr;

use ed25519_dalek::{Signer, SigningKey};
use futures_util::{SinkExt, StreamExt};
use prost::Message as _;
use tidegate_relay::signed_bytes;
use tidegate_relay::wire::{
    AuthChallenge, AuthResponse, AuthResult, BlockEnvelope, BlockNotice, Envelope, MessageType,
    Payload, RateLimited,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::server::TIMEOUT;

/// A connected and authenticated client.
pub(crate) struct TestClient {
    pub(crate) socket: WebSocketStream<TcpStream>,
    pub(crate) address: String,
}

impl TestClient {
    pub(crate) async fn join(relay: SocketAddr, number: u64) -> Self {
        let (socket, result) = Self::try_join(relay, number).await;
        assert!(result.success, "{result:?}");
        Self { socket, address: result.assigned_address }
    }

    /// A whole handshake, and the relay's result.
    pub(crate) async fn try_join(
        relay: SocketAddr,
        number: u64,
    ) -> (WebSocketStream<TcpStream>, AuthResult) {
        let mut socket = connect(relay).await;
        let challenge = challenge(&mut socket).await;
        let auth_response = auth_response(&key(number), &challenge);
        socket.send(Message::binary(wrapped(auth_response))).await.unwrap();
        let result = result(&mut socket).await;
        (socket, result)
    }

    /// An envelope from this client, with an encrypted payload and an unknown field.
    pub(crate) fn envelope(&self, to: &str, message_id: &[u8]) -> Vec<u8> {
        let envelope = Envelope {
            version: 1,
            from_address: self.address.clone(),
            to_address: to.to_owned(),
            r#type: MessageType::Message.into(),
            message_id: message_id.to_vec(),
            timestamp: 1_234,
            payload: None,
        };
        [envelope.encode_to_vec().as_slice(), ENCRYPTED, FROM_THE_FUTURE].concat()
    }

    pub(crate) async fn send(&mut self, bytes: impl Into<Vec<u8>>) {
        self.socket.send(Message::binary(bytes.into())).await.unwrap();
    }

    /// Blocks or unblocks a sender. The notice claims to be of another client, which has no effect.
    pub(crate) async fn notify(&mut self, kind: MessageType, sender: &str) {
        let notice = BlockNotice {
            blocker_address: "pinch:another@relay.example".to_owned(),
            blocked_address: sender.to_owned(),
        };
        let is_block = kind == MessageType::BlockNotification;
        let (block, unblock) = if is_block { (Some(notice), None) } else { (None, Some(notice)) };
        let head = Envelope {
            version: 1,
            from_address: self.address.clone(),
            r#type: kind.into(),
            ..Envelope::default()
        };
        let payload = BlockEnvelope { block, unblock }.encode_to_vec();
        self.send([head.encode_to_vec(), payload].concat()).await;
        // The relay handles messages in order: with the pong the notice is in force.
        self.receives_nothing().await;
    }

    pub(crate) async fn send_to(&mut self, to: &str, message_id: &[u8]) {
        self.send(self.envelope(to, message_id)).await;
    }

    /// The bytes of the next binary message.
    pub(crate) async fn receive(&mut self) -> Vec<u8> {
        receive(&mut self.socket).await
    }

    pub(crate) async fn receive_envelope(&mut self) -> Envelope {
        Envelope::decode(&*self.receive().await).unwrap()
    }

    /// The next message, which must be a denial, and the id of the denied message.
    pub(crate) async fn denied(&mut self) -> (RateLimited, Vec<u8>) {
        let envelope = self.receive_envelope().await;
        assert_eq!((envelope.version, envelope.r#type()), (1, MessageType::RateLimited));
        match envelope.payload {
            Some(Payload::RateLimited(limited)) => (limited, envelope.message_id),
            other => panic!("not a denial: {other:?}"),
        }
    }

    /// Asserts that the relay has sent nothing so far: the pong of a ping comes next.
    pub(crate) async fn receives_nothing(&mut self) {
        self.socket.send(Message::Ping("still there?".into())).await.unwrap();
        let auth_response = timeout(TIMEOUT, self.socket.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(auth_response, Message::Pong("still there?".into()));
    }

    /// Closes the connection; returns when the relay has closed too.
    pub(crate) async fn leave(mut self) {
        self.socket.close(None).await.unwrap();
        let end = async { while self.socket.next().await.is_some() {} };
        timeout(TIMEOUT, end).await.expect("a close in time");
    }
}

pub(crate) async fn connect(relay: SocketAddr) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(relay).await.unwrap();
    // Without this every second small message waits for an acknowledgement, 40 ms.
    stream.set_nodelay(true).unwrap();
    client_async(format!("ws://{relay}/ws"), stream).await.unwrap().0
}

pub(crate) async fn receive(socket: &mut WebSocketStream<TcpStream>) -> Vec<u8> {
    let next = async {
        loop {
            match socket.next().await.expect("a message").unwrap() {
                Message::Binary(bytes) => return bytes.to_vec(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("not binary: {other:?}"),
            }
        }
    };
    timeout(TIMEOUT, next).await.expect("a message in time")
}

pub(crate) async fn challenge(socket: &mut WebSocketStream<TcpStream>) -> AuthChallenge {
    let envelope = Envelope::decode(&*receive(socket).await).unwrap();
    assert_eq!((envelope.version, envelope.r#type()), (1, MessageType::AuthChallenge));
    match envelope.payload {
        Some(Payload::AuthChallenge(challenge)) => challenge,
        other => panic!("not a challenge: {other:?}"),
    }
}

pub(crate) async fn result(socket: &mut WebSocketStream<TcpStream>) -> AuthResult {
    let envelope = Envelope::decode(&*receive(socket).await).unwrap();
    assert_eq!((envelope.version, envelope.r#type()), (1, MessageType::AuthResult));
    match envelope.payload {
        Some(Payload::AuthResult(result)) => result,
        other => panic!("not a result: {other:?}"),
    }
}

/// The code and reason with which the relay closes; data before that is skipped.
pub(crate) async fn closed(socket: &mut WebSocketStream<TcpStream>) -> (u16, String) {
    let end = async {
        loop {
            match socket.next().await.expect("a close").expect("a close") {
                Message::Close(Some(frame)) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Message::Close(None) => panic!("closed without a code"),
                _ => {}
            }
        }
    };
    timeout(TIMEOUT, end).await.expect("a close in time")
}

pub(crate) fn key(number: u64) -> SigningKey {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    SigningKey::from_bytes(&seed)
}

pub(crate) fn auth_response(key: &SigningKey, challenge: &AuthChallenge) -> AuthResponse {
    let signed = signed_bytes(&challenge.relay_host, &challenge.nonce);
    AuthResponse {
        version: 1,
        public_key: key.verifying_key().to_bytes().to_vec(),
        signature: key.sign(&signed).to_bytes().to_vec(),
        nonce: challenge.nonce.clone(),
    }
}

pub(crate) fn wrapped(auth_response: AuthResponse) -> Vec<u8> {
    let payload = Payload::AuthResponse(auth_response);
    let envelope = Envelope {
        version: 1,
        r#type: MessageType::AuthResponse.into(),
        payload: Some(payload),
        ..Envelope::default()
    };
    envelope.encode_to_vec()
}

/// Field 10: nonce, ciphertext and key of an encrypted payload.
const ENCRYPTED: &[u8] = &[0x52, 9, 0x0a, 1, 1, 0x12, 1, 2, 0x1a, 1, 3];

/// Field 1010, a varint.
const FROM_THE_FUTURE: &[u8] = &[0x90, 0x3f, 5];
