//! Two clients of a running relay: one sends to the other until the relay denies a message.
//!
//! `cargo run -p tidegate-recipe-relay --example visit -- 127.0.0.1:8080`

use std::error::Error;
use std::io::{self, Write};

use ed25519_dalek::{Signer, SigningKey};
use futures_util::{SinkExt, StreamExt};
use prost::Message as _;
use tidegate_relay::signed_bytes;
use tidegate_relay::wire::{AuthResponse, Envelope, MessageType, Payload};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

type Socket = WebSocketStream<TcpStream>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let relay = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let (mut ada, ada_address) = join(&relay).await?;
    let (mut bob, bob_address) = join(&relay).await?;
    let mut out = io::stdout();
    writeln!(out, "Ada is {ada_address}\nBob is {bob_address}")?;
    for number in 1..=1_000_u32 {
        let envelope = Envelope {
            version: 1,
            from_address: ada_address.clone(),
            to_address: bob_address.clone(),
            r#type: MessageType::Message.into(),
            message_id: number.to_be_bytes().to_vec(),
            ..Envelope::default()
        };
        ada.send(Message::binary(envelope.encode_to_vec())).await?;
        tokio::select! {
            received = receive(&mut bob) => {
                writeln!(out, "{number:3}  Bob got {} bytes", received?.encoded_len())?;
            }
            response = receive(&mut ada) => {
                let Some(Payload::RateLimited(limited)) = response?.payload else { continue };
                let wait_ms = limited.retry_after_ms;
                writeln!(out, "{number:3}  Ada was denied: {}, retry after {wait_ms} ms", limited.reason)?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Connects with a new key and authenticates; returns the assigned address.
async fn join(relay: &str) -> Result<(Socket, String), Box<dyn Error>> {
    let stream = TcpStream::connect(relay).await?;
    let (mut socket, _) = client_async(format!("ws://{relay}/ws"), stream).await?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    let key = SigningKey::from_bytes(&seed);
    let Some(Payload::AuthChallenge(challenge)) = receive(&mut socket).await?.payload else {
        return Err("the relay sent no challenge".into());
    };
    let signed = signed_bytes(&challenge.relay_host, &challenge.nonce);
    let response = Envelope {
        version: 1,
        r#type: MessageType::AuthResponse.into(),
        payload: Some(Payload::AuthResponse(AuthResponse {
            version: 1,
            public_key: key.verifying_key().to_bytes().to_vec(),
            signature: key.sign(&signed).to_bytes().to_vec(),
            nonce: challenge.nonce,
        })),
        ..Envelope::default()
    };
    socket.send(Message::binary(response.encode_to_vec())).await?;
    match receive(&mut socket).await?.payload {
        Some(Payload::AuthResult(result)) if result.success => {
            Ok((socket, result.assigned_address))
        }
        Some(Payload::AuthResult(result)) => Err(result.error_message.into()),
        _ => Err("the relay sent no authentication result".into()),
    }
}

/// The next envelope.
async fn receive(socket: &mut Socket) -> Result<Envelope, Box<dyn Error>> {
    while let Some(message) = socket.next().await {
        if let Message::Binary(bytes) = message? {
            return Ok(Envelope::decode(bytes)?);
        }
    }
    Err("the relay closed the connection".into())
}
