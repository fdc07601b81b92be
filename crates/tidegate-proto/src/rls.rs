//! Envoy's rate limit service, version 3: its messages in protobuf and in protobuf's JSON.
//!
//! Domains, keys and values are bytes: Envoy forwards what clients send, which need not be UTF-8.
//!
//! ```
//! use tidegate_proto::rls;
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
pub use json::{JsonError, count_json_objects, request_from_json, response_to_json};
use prost::encoding::{self, DecodeContext, WireType};
pub use prost::{DecodeError, Message};
pub use prost_types::{Duration, ListValue, Struct, Value, value};

mod json;

/// Generated from the files in `proto`; a test detects drift.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "it is generated")]
mod code {
    include!("rls/code.rs");
}

/// The number of descriptors and entries in an encoded [`RateLimitRequest`], without decoding them:
/// decoded they take more memory. Counting ends at the first malformed byte.
///
/// ```
/// use tidegate_proto::rls::{self, Message};
///
/// let call = br#"{"descriptors": [{"entries": [{"key": "a"}, {"key": "b"}]}, {}]}"#;
/// let call = rls::request_from_json(call)?;
/// assert_eq!(rls::count_parts(&call.encode_to_vec()), 4);
/// # Ok::<(), rls::JsonError>(())
/// ```
#[must_use]
pub fn count_parts(message: &[u8]) -> usize {
    fields(message, DESCRIPTORS_FIELD).map(|it| 1 + fields(it, ENTRIES_FIELD).count()).sum()
}

/// The contents of all fields of a message with this number, up to the first malformed byte.
fn fields(mut message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while !message.is_empty() {
            let (found, kind) = encoding::decode_key(&mut message).ok()?;
            if (found, kind) == (number, WireType::LengthDelimited) {
                let length = usize::try_from(encoding::decode_varint(&mut message).ok()?).ok()?;
                let (field, rest) = message.split_at_checked(length)?;
                message = rest;
                return Some(field);
            }
            encoding::skip_field(kind, found, &mut message, DecodeContext::default()).ok()?;
        }
        None
    })
}

/// The field number of `descriptors` in a request.
const DESCRIPTORS_FIELD: u32 = 2;
/// The field number of `entries` in a descriptor.
const ENTRIES_FIELD: u32 = 1;

/// The path of the one method.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The name of the service.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The `FileDescriptorSet` of the service, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("rls/descriptors.bin");
