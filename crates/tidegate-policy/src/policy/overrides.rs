use super::{Condition, Limit};
use crate::attributes::Attributes;

/// Another limit for some keys of a rule. Each of them keeps its own state.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    pub(crate) key: Vec<Condition>,
    pub(crate) grant: Grant,
    /// Unix nanoseconds.
    pub(crate) until_ns: Option<u64>,
}

/// What an override grants.
#[derive(Clone, Debug, PartialEq)]
pub enum Grant {
    /// No limit.
    Unlimited,
    /// Another limit of the same algorithm.
    Limit(Limit),
}

impl Override {
    /// An override for the keys that meet all the conditions.
    #[must_use]
    pub fn new(key: Vec<Condition>, grant: Grant) -> Self {
        Self { key, grant, until_ns: None }
    }

    /// The same override, which ends at a time, in nanoseconds since 1970 in UTC.
    #[must_use]
    pub fn until(self, unix_ns: u64) -> Self {
        Self { until_ns: Some(unix_ns), ..self }
    }

    /// The keys that it applies to.
    #[must_use]
    pub fn key(&self) -> &[Condition] {
        &self.key
    }

    /// What these keys get.
    #[must_use]
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// When it ends, in nanoseconds since 1970 in UTC; `None`: never.
    #[must_use]
    pub const fn until_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// Whether it has not ended at this time.
    #[doc(hidden)]
    #[must_use]
    pub fn is_on(&self, unix_ns: u64) -> bool {
        self.until_ns.is_none_or(|until_ns| unix_ns < until_ns)
    }

    /// Whether it applies to this request, at this time.
    #[must_use]
    pub fn applies(&self, attributes: &Attributes<'_>, unix_ns: u64) -> bool {
        self.is_on(unix_ns) && self.key.iter().all(|condition| condition.holds(attributes))
    }
}
