//! SKELETON: to be replaced by the policy helper with the same names.
use std::net::IpAddr;

use super::Limit;

/// Whose bucket: attributes of the request. None of them means one for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    pub(crate) parts: Vec<KeyPart>,
}

/// One attribute of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The text of an attribute.
    Text(Box<str>),
    /// An address, cut to its network.
    Address {
        /// The attribute; `ip`.
        attribute: Box<str>,
        /// Bits of an IPv4 address that count.
        v4_bits: u8,
        /// Bits of an IPv6 address that count.
        v6_bits: u8,
    },
}

/// What one attribute must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub(crate) attribute: Box<str>,
    pub(crate) any_of: Vec<Pattern>,
}

/// What a value must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This very text.
    Equals(Box<str>),
    /// Text with `*` for any bytes.
    Glob(Box<str>),
    /// An integer from the first to the second, both included.
    Range(i64, i64),
    /// An address in a network.
    Network(IpAddr, u8),
}

/// What a request costs, by the value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    pub(crate) by: Box<str>,
    pub(crate) rows: Vec<(Pattern, u64)>,
}

impl CostTable {
    /// The cost for a value; `None` if no row covers it.
    pub fn cost(&self, value: &str) -> Option<u64> {
        let _ = value;
        None
    }
}

/// Another limit for some keys of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    pub(crate) key: Vec<Condition>,
    pub(crate) grant: Grant,
    /// Unix nanoseconds.
    pub(crate) until_ns: Option<u64>,
}

/// What an override gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Grant {
    /// Everything.
    Unlimited,
    /// Another limit of the same algorithm.
    Limit(Limit),
}
