//! A WebSocket relay that passes envelopes between connected clients by address, with one tidegate
//! bucket per connection.
//!
//! Clients prove who they are with an Ed25519 key, and get the address that belongs to it. Every
//! message is charged to that address before anything else is done with it; one that comes too early
//! is answered with the true wait. The bucket is forgotten when the client leaves.
//!
//! What the relay holds is bounded: clients, handshakes in progress, the size of messages, and what
//! waits for clients that read slowly. A sender never waits for a recipient.

#![forbid(unsafe_code)]

mod address;
mod builder;
mod connection;
mod handshake;
mod outbox;
mod registry;
mod relay;
mod routing;
mod session;
mod settings;
pub mod wire;

pub use address::address_of;
pub use builder::{RelayBuilder, RelayError};
pub use handshake::signed_bytes;
pub use relay::Relay;
pub use settings::{Guard, SettingError, Settings, VARIABLES, Variable};
pub use tidegate_upgrade_guard::serve;
