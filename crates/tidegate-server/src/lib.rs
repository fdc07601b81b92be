//! The daemon as a library: one policy and one store, spoken to over HTTP, gRPC, the Redis protocol and a
//! local socket.
//!
//! ```
//! use tidegate::policy::Policy;
//! use tidegate_server::{Door, Server, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::from_toml(r#"
//!     [[rule]]
//!     name   = "per-user"
//!     key    = ["user"]
//!     window = { max = 2, per = "1h" }
//! "#)?;
//! let server = Server::start(Settings::on_free_ports(policy)).await?;
//! println!("HTTP is at {}", server.address(Door::Http).expect("it listens"));
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # A request's way
//!
//! 1. **accept** – one loop accepts for every listener, and gives each connection a place or closes it.
//! 2. **protocol** – reads requests off the connection, within bounds of time and size.
//! 3. **engine** – decides; see [`tidegate::Engine`].
//! 4. **body** – the one form of an answer, which each protocol writes in its own way.

#![forbid(unsafe_code)]

mod accept;
mod admin;
mod audit;
mod body;
mod daemon;
mod grpc;
mod http;
mod listener;
mod load;
pub mod local;
mod percent_utf8;
mod policy_watcher;
mod resp;
mod rls;
mod server;
mod settings;
mod store_health;
mod telemetry;

pub use listener::Listener;
pub use load::{LoadError, load};
pub use local::default_socket;
pub use server::{Server, StartError};
pub use settings::{Bounds, Settings};
