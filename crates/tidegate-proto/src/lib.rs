//! Wire formats of rate limiting, without sockets: bytes in, values out, and back.
//!
//! - [`headers`]: what an HTTP response tells about limits, in several dialects;
//! - [`problem`]: the body of a refusal;
//! - [`grpc`]: the same for gRPC;
//! - [`client`]: whose request it is, where proxies stand in between;
//! - [`proxy`]: the PROXY protocol, versions 1 and 2;
//! - [`ipc`]: frames and messages of a local socket;
//! - [`resp`]: the Redis protocol, and the commands of it that bring their own limit;
//! - `rls`: Envoy's rate limit service, with the feature of that name.
//!
//! Nothing here panics or allocates without bound, whatever the bytes are.
#![forbid(unsafe_code)]

pub mod client;
pub mod grpc;
pub mod headers;
pub mod ipc;
pub mod problem;
pub mod proxy;
pub mod resp;
#[cfg(feature = "rls")]
pub mod rls;
