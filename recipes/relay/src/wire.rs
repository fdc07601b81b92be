//! The messages of the protocol that a relay reads or writes.
//!
//! Payloads that a relay only forwards (encrypted ones, for example) have no type here: envelopes
//! are forwarded as received.

use prost::Message;

/// The only version of the protocol.
pub const VERSION: u32 = 1;

/// The wrapper of every message, in both directions.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Envelope {
    /// The version of the protocol, 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The sender's address.
    #[prost(string, tag = "2")]
    pub from_address: String,
    /// The recipient's address.
    #[prost(string, tag = "3")]
    pub to_address: String,
    /// The type of the message.
    #[prost(enumeration = "MessageType", tag = "4")]
    pub r#type: i32,
    /// The sender's id of the message.
    #[prost(bytes = "vec", tag = "5")]
    pub message_id: Vec<u8>,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "6")]
    pub timestamp: i64,
    /// The payload, if it is between a client and the relay.
    #[prost(oneof = "Payload", tags = "13, 14, 15, 22, 23, 24")]
    pub payload: Option<Payload>,
}

/// The type of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MessageType {
    /// No type was set.
    Unspecified = 0,
    /// Starts a conversation between clients.
    Handshake = 1,
    /// The relay requests authentication.
    AuthChallenge = 2,
    /// A client authenticates.
    AuthResponse = 3,
    /// An encrypted message.
    Message = 4,
    /// A message was delivered.
    DeliveryConfirm = 5,
    /// A client requests a connection to another one.
    ConnectionRequest = 6,
    /// The other client accepts or declines.
    ConnectionResponse = 7,
    /// A sign of life.
    Heartbeat = 8,
    /// The result of the authentication.
    AuthResult = 9,
    /// A client revokes a connection.
    ConnectionRevoke = 10,
    /// A client blocks a sender; for the relay.
    BlockNotification = 11,
    /// A client unblocks a sender; for the relay.
    UnblockNotification = 12,
    /// The relay reports what is queued for a client.
    QueueStatus = 13,
    /// The relay reports that a queue is full.
    QueueFull = 14,
    /// The relay denied a message.
    RateLimited = 15,
}

/// The payloads between a client and the relay itself.
#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
pub enum Payload {
    /// The challenge of the relay.
    #[prost(message, tag = "13")]
    AuthChallenge(AuthChallenge),
    /// The response of a client.
    #[prost(message, tag = "14")]
    AuthResponse(AuthResponse),
    /// The result of the authentication.
    #[prost(message, tag = "15")]
    AuthResult(AuthResult),
    /// What is queued for the client.
    #[prost(message, tag = "22")]
    QueueStatus(OpaquePayload),
    /// The client's queue is full.
    #[prost(message, tag = "23")]
    QueueFull(OpaquePayload),
    /// A message was denied.
    #[prost(message, tag = "24")]
    RateLimited(RateLimited),
}

/// A challenge to sign.
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
    /// The host in the signed data.
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

/// The result of a handshake.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AuthResult {
    /// Whether the client is authenticated.
    #[prost(bool, tag = "1")]
    pub success: bool,
    /// The reason of a failure.
    #[prost(string, tag = "2")]
    pub error_message: String,
    /// The client's assigned address.
    #[prost(string, tag = "3")]
    pub assigned_address: String,
}

/// A denied message, and the wait until a retry.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RateLimited {
    /// The wait in milliseconds.
    #[prost(int64, tag = "1")]
    pub retry_after_ms: i64,
    /// The reason.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// An envelope that blocks or unblocks a sender. Only notices are decoded like this: in other
/// envelopes the relay does not look into these fields.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct BlockEnvelope {
    /// The payload of a BLOCK_NOTIFICATION.
    #[prost(message, optional, tag = "19")]
    pub block: Option<BlockNotice>,
    /// The payload of an UNBLOCK_NOTIFICATION.
    #[prost(message, optional, tag = "20")]
    pub unblock: Option<BlockNotice>,
}

/// A sender to be blocked or unblocked.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct BlockNotice {
    /// The client that blocks. Not trusted: it is the client that sends the notice.
    #[prost(string, tag = "1")]
    pub blocker_address: String,
    /// The sender.
    #[prost(string, tag = "2")]
    pub blocked_address: String,
}

/// A payload whose content is not decoded.
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

    /// Whether it is only sent by or to a relay, and never between clients.
    #[must_use]
    pub fn is_between_client_and_relay(&self) -> bool {
        use MessageType::{AuthChallenge, AuthResponse, AuthResult};
        use MessageType::{QueueFull, QueueStatus, RateLimited};
        let is_relay_type = matches!(
            self.r#type(),
            AuthChallenge | AuthResponse | AuthResult | QueueStatus | QueueFull | RateLimited
        );
        is_relay_type || self.payload.is_some()
    }
}

#[cfg(test)]
mod tests;
