//! A local service: answers small JSON requests of users of this machine over a Unix domain socket,
//! and limits each of them and all of them together.
//!
//! Everything about limits is tidegate's: a policy of two rules in an [`Engine`](tidegate::Engine)
//! for requests, and one of two kinds of places for connections. So is the socket's file, and who is at
//! its other end: the daemon has a local socket of its own. What is here is the order of the steps:
//!
//! 1. [`Server`] accepts a connection and asks the kernel whose it is ([`Peer`]).
//! 2. The connection's task reads frames, within bounds of size and time.
//! 3. [`Service::answer`] authorises, looks at the version, asks the [`Gate`], processes.
//! 4. The answer is written, within a bound of time.

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
    Access, AccessEntry, BindError, Ended, PeerCredentials, SocketFile,
};

/// The code of the guide is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/local-service.md")]
struct Guide;
