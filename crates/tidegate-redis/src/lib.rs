//! One limit over many machines: the store on Redis and Valkey.
//!
//! Every process decides by itself, with the same function that the store in memory uses, from the
//! values that it has last seen; the server only compares and sets. So decisions are exact, for all
//! limits and algorithms, whatever the number of processes.
//!
//! ```no_run
//! use tidegate::policy::Policy;
//! use tidegate::redis::Redis;
//! use tidegate::{Engine, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = Redis::builder("redis://127.0.0.1:6379").secret("shared by all processes").build()?;
//! let policy = Policy::from_toml(
//!     r#"
//!     [[rule]]
//!     name   = "search"
//!     key    = ["user"]
//!     bucket = { rate = "10/s", burst = 20 }
//!     "#,
//! )?;
//! let engine = Engine::builder(policy).store(redis.store()).clock(redis.clock()).build().unwrap();
//! let attributes = [("user", "ada")];
//! assert!(engine.check(&Request::new("default", &attributes)).block()?.is_allowed());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod address;
mod batch;
mod cache;
mod commands;
mod control;
mod driver;
mod durability;
mod error;
mod facts;
mod frame;
mod inbox;
mod key_map;
mod link;
mod locks;
mod nodes;
mod records;
mod route;
mod server_time;
mod settings;
mod stats;
mod tls;

pub use durability::DurabilityError;
pub use error::RedisError;
pub use facts::{LogSync, ReplicaLag, ServerFacts};
pub use nodes::Node;
pub use records::{Redis, RedisBuilder};
pub use server_time::{ClockStep, ServerClock};
pub use stats::RedisStats;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
