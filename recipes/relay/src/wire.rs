//! The messages of the protocol, as far as a relay has to read or write them.
//!
//! What a relay only passes on (encrypted payloads and the like) has no type here: envelopes are
//! forwarded as the bytes that came.

use prost::Message;

/// The only version of the protocol.
pub const VERSION: u32 = 1;

/// The wrapper of everything that is sent, either way.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Envelope {
    /// The version of the protocol, 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Who sends it.
    #[prost(string, tag = "2")]
    pub from_address: String,
    /// Who shall get it.
    #[prost(string, tag = "3")]
    pub to_address: String,
    /// What it is.
    #[prost(enumeration = "MessageType", tag = "4")]
    pub r#type: i32,
    /// The sender's name for it.
    #[prost(bytes = "vec", tag = "5")]
    pub message_id: Vec<u8>,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "6")]
    pub timestamp: i64,
    /// What is in it, if it is between a client and the relay.
    #[prost(oneof = "Payload", tags = "13, 14, 15, 22, 23, 24")]
    pub payload: Option<Payload>,
}

/// What an envelope can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MessageType {
    /// Nobody said.
    Unspecified = 0,
    /// The beginning of a conversation between clients.
    Handshake = 1,
    /// The relay asks who somebody is.
    AuthChallenge = 2,
    /// A client says who it is.
    AuthResponse = 3,
    /// An encrypted message.
    Message = 4,
    /// A message has arrived.
    DeliveryConfirm = 5,
    /// A client wants to talk to another one.
    ConnectionRequest = 6,
    /// The other one agrees or not.
    ConnectionResponse = 7,
    /// Somebody is still there.
    Heartbeat = 8,
    /// The relay says whether it believes.
    AuthResult = 9,
    /// A client no longer wants to talk.
    ConnectionRevoke = 10,
    /// A client wants nothing from somebody; for the relay.
    BlockNotification = 11,
    /// A client takes that back; for the relay.
    UnblockNotification = 12,
    /// The relay says what waits for a client.
    QueueStatus = 13,
    /// The relay says that no more can wait.
    QueueFull = 14,
    /// The relay says that a message came too early.
    RateLimited = 15,
}

/// What passes between a client and the relay itself.
#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
pub enum Payload {
    /// Who are you?
    #[prost(message, tag = "13")]
    AuthChallenge(AuthChallenge),
    /// I am.
    #[prost(message, tag = "14")]
    AuthResponse(AuthResponse),
    /// You are, or are not.
    #[prost(message, tag = "15")]
    AuthResult(AuthResult),
    /// What waits for you.
    #[prost(message, tag = "22")]
    QueueStatus(OpaquePayload),
    /// No more can wait for you.
    #[prost(message, tag = "23")]
    QueueFull(OpaquePayload),
    /// Not so fast.
    #[prost(message, tag = "24")]
    RateLimited(RateLimited),
}

/// Something to sign.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AuthChallenge {
    /// The version of the handshake, 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// 32 random bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub nonce: Vec<u8>,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "3")]
    pub issued_at_ms: i64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "4")]
    pub expires_at_ms: i64,
    /// The host that is part of what is signed.
    #[prost(string, tag = "5")]
    pub relay_host: String,
}

/// A signed challenge.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AuthResponse {
    /// The version of the handshake, 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// An Ed25519 key of 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub public_key: Vec<u8>,
    /// A signature of 64 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub signature: Vec<u8>,
    /// The nonce of the challenge.
    #[prost(bytes = "vec", tag = "4")]
    pub nonce: Vec<u8>,
}

/// How a handshake ended.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AuthResult {
    /// Whether the client is let in.
    #[prost(bool, tag = "1")]
    pub success: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error_message: String,
    /// The client's address from now on.
    #[prost(string, tag = "3")]
    pub assigned_address: String,
}

/// A message was refused, and when to send it again.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RateLimited {
    /// How long to wait, in milliseconds.
    #[prost(int64, tag = "1")]
    pub retry_after_ms: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// A message whose contents do not matter here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct OpaquePayload {}

impl Envelope {
    /// An envelope from the relay itself.
    #[must_use]
    pub fn from_relay(r#type: MessageType, timestamp_ms: i64, payload: Payload) -> Self {
        Self {
            version: VERSION,
            r#type: r#type.into(),
            timestamp: timestamp_ms,
            payload: Some(payload),
            ..Self::default()
        }
    }

    /// Whether only a relay says such things, or only to a relay, and never one client to another.
    #[must_use]
    pub fn is_between_client_and_relay(&self) -> bool {
        use MessageType::{AuthChallenge, AuthResponse, AuthResult};
        use MessageType::{QueueFull, QueueStatus, RateLimited};
        let is_spoken_by_type = matches!(
            self.r#type(),
            AuthChallenge | AuthResponse | AuthResult | QueueStatus | QueueFull | RateLimited
        );
        is_spoken_by_type || self.payload.is_some()
    }
}

#[cfg(test)]
mod tests;
