//! The daemon as a library: one policy and one store behind HTTP, gRPC, RESP and a local socket.
//!
//! ```
//! use tidegate::policy::Policy;
//! use tidegate_server::{Listener, Server, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = Policy::parse("policy.toml", br#"
//!     [[rule]]
//!     name   = "per-user"
//!     key    = ["user"]
//!     window = { max = 2, per = "1h" }
//! "#)?;
//! let server = Server::start(Settings::on_free_ports(file)).await?;
//! println!("HTTP listens on {}", server.address(Listener::Http).expect("HTTP is on"));
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # A request through the daemon
//!
//! 1. **accept** – one loop serves every listener; a connection gets a permit or is closed.
//! 2. **protocol** – reads requests from the connection, within bounds of time and size.
//! 3. **engine** – decides; see [`tidegate::Engine`].
//! 4. **body** – the one response body, which each protocol encodes in its own way.

#![forbid(unsafe_code)]

mod access;
mod admin;
mod audit;
mod body;
mod connections;
mod daemon;
mod dashboard;
mod file_watch;
mod grpc;
mod http;
mod listener;
mod load;
pub mod local;
mod open_store;
mod openapi;
mod policy_watcher;
mod reload;
mod resp;
mod rls;
mod server;
mod settings;
mod store_health;
mod telemetry;
mod throttles;
mod tls;
mod tls_files;
mod traffic;

pub use body::explanation;
pub use listener::Listener;
pub use load::{load, load_with};
pub use local::default_socket;
pub use server::{Server, StartError};
pub use settings::{Bounds, Settings};
pub use tidegate::policy::LoadError;
pub use tls_files::{TlsError, TlsPaths};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
