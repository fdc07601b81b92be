//! Envoy's rate limit service, version 3: its messages, in protobuf and in the JSON of protobuf.
//!
//! Domains, keys and values are bytes: Envoy passes on what clients send, and that need not be text.
//!
//! ```
//! use tollgate_proto::rls;
//!
//! let request = rls::request_from_json(
//!     br#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ada"}]}]}"#,
//! )?;
//! assert_eq!(request.descriptors[0].entries[0].value, b"ada");
//! # Ok::<(), rls::JsonError>(())
//! ```

pub use code::envoy::config::core::v3::HeaderValue;
pub use code::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor,
};
pub use code::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response,
};
pub use code::envoy::r#type::v3::RateLimitUnit;
pub use json::{JsonError, request_from_json, response_to_json};
pub use prost::{DecodeError, Message};
pub use prost_types::Duration;

mod json;

/// Made of the files in `proto`; a test says when it is old.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "it is generated")]
mod code {
    include!("rls/code.rs");
}

/// The path of the one method.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The name of the service.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// A `FileDescriptorSet` of all of it, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("rls/descriptors.bin");
