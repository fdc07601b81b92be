//! A WebSocket relay that passes envelopes between connected clients by address, with one tidegate
//! bucket per connection.
//!
//! Clients authenticate with an Ed25519 key and get the address derived from it. Every message is
//! charged to that address before anything else; a denied one gets the true wait. The
//! bucket is removed when the client disconnects.
//!
//! The relay's memory is bounded: clients, handshakes in progress, the size of messages, and the
//! queues of slow clients. A sender never waits for a recipient.

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
