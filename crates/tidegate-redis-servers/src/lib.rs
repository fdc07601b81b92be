//! Real Redis and Valkey servers, a TCP proxy that makes faults, and certificates, for tests.
//!
//! Every server has a folder and ports of its own on loopback, so tests run in parallel. All processes end
//! with the test process, however it ends. Nothing here is skipped: a missing program is a failure that
//! names the script that installs it.
//!
//! The functions are for tests: they panic with a message that says what failed, and never wait without a
//! bound. They block; in async tests call them from anywhere that may block for some milliseconds.
//!
//! ```no_run
//! use tidegate_redis_servers::{Appendfsync, Program, Proxy, Server};
//!
//! let server = Server::builder(Program::Valkey9).appendonly(Appendfsync::Always).start();
//! let proxy = Proxy::start(server.address());
//! proxy.lose_replies("INCR", 1);
//! // A client of `proxy.address()` that sends `INCR n` gets no reply, but:
//! assert_eq!(server.command(&["GET", "n"]).text(), "1");
//! ```

#![forbid(unsafe_code)]

mod certificates;
mod cluster;
mod folder;
mod port;
mod process;
mod program;
mod proxy;
mod replication;
mod resp;
mod sentinel;
mod server;
mod wait;

pub use certificates::{Authority, Certificate, Issue};
pub use cluster::{Cluster, SlotMigration};
pub use program::Program;
pub use proxy::{Cut, Fault, Proxy};
pub use replication::Replication;
pub use resp::{Connection, Reply};
pub use sentinel::Sentinel;
pub use server::{Appendfsync, Server, ServerBuilder, TlsFiles};
pub use wait::until;
