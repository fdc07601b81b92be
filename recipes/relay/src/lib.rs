//! A WebSocket relay that passes envelopes between connected clients by address, with one tidegate
//! bucket per connection.
//!
//! Clients authenticate with an Ed25519 key and get the address derived from it. Every message is
//! charged to that address before anything else; a denied one gets the true wait. The
//! bucket is removed when the client disconnects, or kept over reconnects, as chosen. What a sender
//! sends to a client that has blocked it is dropped.
//!
//! The relay's memory is bounded: clients, handshakes in progress, the size of messages, and the
//! queues of slow clients. A sender never waits for a recipient.

#![forbid(unsafe_code)]

mod address;
mod blocks;
mod builder;
mod connection;
mod handshake;
mod origins;
mod outbox;
mod registry;
mod relay;
mod routing;
mod server;
mod session;
mod settings;
pub mod wire;

pub use address::address_of;
pub use blocks::BlocksError;
pub use builder::{BucketLife, RelayBuilder, RelayError};
pub use handshake::signed_bytes;
pub use origins::AllowedOrigins;
pub use relay::Relay;
pub use server::serve;
pub use settings::{Guard, SettingError, Settings, VARIABLES, Variable, unknown_variables};

/// The code of the guide, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/replace-a-relay-limiter.md")]
struct Guide;
