//! A local service: serves small JSON requests of local users over a Unix domain socket, with a
//! limit per user and one for all.
//!
//! The limits are tidegate's: a policy of two rules in an [`Engine`](tidegate::Engine) for
//! requests. So are the accept loop, with permits for connections per user and in total, and the
//! socket's file and the peer's identity, from the daemon's own local socket. This crate adds the
//! order of the steps:
//!
//! 1. [`Server`] accepts a connection, with the peer's credentials ([`PeerCredentials`]) from the
//!    kernel.
//! 2. The connection's task reads frames, within bounds of size and time.
//! 3. [`Service::handle`] authorises, checks the version, checks the [`RequestLimiter`], processes.
//! 4. The response is written, within a bound of time.

#![forbid(unsafe_code)]

mod args;
mod client;
mod connection;
mod connection_limits;
mod limits;
mod request_limiter;
mod run;
mod server;
mod service;
mod setting;

pub use connection::{Timeouts, serve_connection};
pub use connection_limits::ConnectionLimits;
pub use limits::{Grant, LimitNumbers, Limits, UserOverride, policy_from_file};
pub use request_limiter::{LimitOutcome, RequestLimiter};
pub use run::main;
pub use server::{Server, ServerSettings};
pub use service::{Next, Reply, Service};
pub use setting::SettingError;
pub use tidegate_server::local::{
    Access, AccessEntry, BindError, Ended, PeerCredentials, SocketFile, StopReceiving,
};

/// The code of the guide, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/local-service.md")]
struct Guide;
