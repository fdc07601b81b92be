//! A limit that a request brings.

use crate::any_limit::AnyLimit;
use tidegate_core::{Algorithm, Window};
use tidegate_policy::WindowUnit;

/// A limit that a request brings, in place of the rules of its domain: a maximum of units in each
/// window of a length, aligned to the epoch.
///
/// Its state belongs to the domain, all attributes of the request and the length: the same
/// request with another maximum has the same count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestLimit {
    pub(crate) limit: AnyLimit,
    pub(crate) unit: WindowUnit,
}

impl RequestLimit {
    /// At most `max` units in each window; 0 allows nothing.
    #[must_use]
    pub fn new(max: u32, unit: WindowUnit) -> Self {
        let per_ns = u64::try_from(unit.length().as_nanos()).unwrap_or(u64::MAX);
        // A policy rejects a maximum of 0 as a mistake; in a request it is meant.
        let window = Window::from_words([max.into(), per_ns, 1, 0]);
        Self { limit: AnyLimit::Window(window), unit }
    }

    /// How long its windows are.
    #[must_use]
    pub const fn unit(&self) -> WindowUnit {
        self.unit
    }
}
