//! An accept loop that floods do not stop, for servers of any protocol.
//!
//! ```no_run
//! use std::time::Duration;
//! use axum::{Router, routing::get};
//! use tidegate_listen::{Connections, Http, ListenSocket, PermitLimits, serve, terminated};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let app: Router = Router::new().route("/health", get(|| async { "ok\n" }));
//! let http = Http::new(app).reserve_for(|request| request.uri.path() == "/health");
//! let permits = Connections::default().listener("http", PermitLimits::new(10_000));
//! let socket = ListenSocket::bind("127.0.0.1:8080").await?;
//! serve(socket, permits, http, terminated(), Duration::from_secs(10)).await;
//! # Ok(())
//! # }
//! ```
//!
//! - A connection gets a [`Permit`] or is refused. An address (IPv6: a /64 network; on a Unix socket
//!   a user) gets a quarter of them, and the last eighth is for addresses without a connection.
//!   When all are taken, the connection that has been idle longest is closed.
//! - A refused connection is closed, or answered with a `503`, [as chosen](Surplus); a reserve keeps
//!   health checks reachable when all permits are taken.
//! - [`Http`] serves a tower service with [time-outs](Timeouts), bounded heads, graceful shutdown
//!   and upgrades. Other protocols implement [`Protocol`].
//! - What all connections together hold is bounded in bytes: see [`ByteBudgets`].
//! - [`serve`] stops on a signal: connections that have arrived are served, requests in work are
//!   finished.
//! - With the feature `tls`, [`tls::TlsProtocol`] puts TLS before any protocol, with the certificates
//!   of clients where they are wanted.
//! - Log lines are bounded: one per second and kind here, and with the feature `log` those of the
//!   whole process.
#![forbid(unsafe_code)]

mod accept;
mod byte_budget;
#[cfg(feature = "tls")]
mod certificate;
mod descriptors;
#[cfg(feature = "http")]
pub mod http;
mod linger;
#[cfg(feature = "log")]
pub mod log;
mod peer;
mod permits;
mod read_gate;
mod shutdown;
mod socket;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "tls")]
mod tls_stream;
mod warnings;

pub use accept::{Connection, Protocol, accept, is_of_one_connection, serve};
pub use byte_budget::{BudgetKind, ByteBudgets, Victims};
pub use descriptors::descriptors;
#[cfg(feature = "http")]
pub use http::{Http, Surplus, Timeouts};
pub use linger::linger;
pub use peer::{Peer, PeerId};
pub use permits::{
    ConnectionCounts, ConnectionState, Connections, Permit, PermitLimits, Permits, QueuedRequest,
    Refusal,
};
pub use read_gate::ReadGate;
pub use shutdown::{ShutdownSignal, ShutdownTrigger, terminated};
pub use socket::{Accept, ListenSocket, PeerStream, bind_tcp};
pub use warnings::Warnings;

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
