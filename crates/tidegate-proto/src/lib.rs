//! Wire formats of rate limiting, without sockets: bytes in, values out, and back.
//!
//! - [`headers`]: rate-limit headers of HTTP responses, in several dialects;
//! - [`problem`]: the response body of a denial;
//! - [`grpc`]: the same for gRPC;
//! - [`client`]: the client's address behind proxies;
//! - [`proxy`]: the PROXY protocol, versions 1 and 2;
//! - [`ipc`]: frames and messages of a local socket;
//! - [`json`]: objects that are nothing else;
//! - [`resp`]: the Redis protocol, and its commands that carry their own limit;
//! - [`times`]: waits and times in response bodies;
//! - `rls`: Envoy's rate limit service, with the feature of that name.
//!
//! No input makes it panic or allocate without bound.
#![forbid(unsafe_code)]

pub mod client;
pub mod grpc;
pub mod headers;
pub mod ipc;
pub mod json;
pub mod percent;
pub mod problem;
pub mod proxy;
pub mod resp;
#[cfg(feature = "rls")]
pub mod rls;
pub mod times;
