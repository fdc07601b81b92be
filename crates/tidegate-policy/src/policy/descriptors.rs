//! The adapter between Envoy's descriptors and rules, which know attributes only.
//!
//! A descriptor is a list of entries, each a key with a value, in an order that may matter: the
//! [`Attributes`] of a request, whose order it is. Rules that are made from the files of
//! envoyproxy/ratelimit and Limitador (`yaml`) name entries by their positions.

use super::key::KeyPart;
use super::{Condition, Limit, Policy, Rule};
use crate::attributes::{AttributeName, Attributes};

#[cfg(feature = "yaml")]
mod rule_names;
#[cfg(feature = "yaml")]
pub(super) mod yaml;

impl Policy {
    /// Whether rules of a domain find the entries of descriptors by their positions, as those from
    /// files of envoyproxy/ratelimit do.
    #[must_use]
    pub fn reads_descriptors(&self, domain: &str) -> bool {
        self.rules.iter().any(|rule| rule.domain() == domain && rule.reads_descriptors())
    }
}

impl Rule {
    /// Whether it finds the entries of a descriptor by their positions.
    #[doc(hidden)]
    #[must_use]
    pub fn reads_descriptors(&self) -> bool {
        let in_conditions = self.conditions.iter().map(Condition::attribute);
        let in_key = self.key.parts.iter().map(KeyPart::attribute);
        let in_cost = self.cost.as_ref().and_then(|cost| cost.attribute());
        let in_queue = match &self.limit {
            Limit::Slots(slots) => slots.priority_attribute(),
            _ => None,
        };
        let mut all = in_conditions.chain(in_key).chain(in_cost).chain(in_queue);
        all.any(|name| name != Attributes::NUMBER && !Attributes::is_name(name))
    }

    /// Whether it takes all descriptors of a call but the first out of its group.
    #[doc(hidden)]
    #[must_use]
    pub fn excludes_later_descriptors(&self) -> bool {
        self.conditions.iter().any(|it| it.attribute() == Attributes::NUMBER)
    }

    /// Whether it limits nothing, and only keeps requests from the later rules of its group. An
    /// imported file makes such rules where a request must not fall through; they are not listed.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        matches!(self.key.parts(), [part] if part.attribute() == ABSENT_ATTRIBUTE)
    }
}

/// The key of an entry in its name by position.
pub(super) fn key_by_position(name: &str) -> Option<&str> {
    match AttributeName::of(name) {
        AttributeName::Position(_, key) => Some(key),
        _ => None,
    }
}

/// An attribute that no request has.
const ABSENT_ATTRIBUTE: &str = "a descriptor that is listed";

#[cfg(test)]
mod tests;
