//! Conditions and keys of the rules that are made from files.

use super::ABSENT_ATTRIBUTE;
use crate::attributes::{Attributes, small};
use crate::policy::key::{Key, KeyPart};
use crate::policy::{Condition, Pattern};

/// The name of the entry at a position, from 1.
pub(super) fn entry(position: usize, key: &str) -> String {
    format!("{position}.{key}")
}

/// The descriptor has so many entries.
pub(super) fn entries(count: usize) -> Condition {
    condition(Attributes::COUNT, Pattern::Equals(small(count).into()))
}

/// The descriptor has this number in its call; not for the first one, which has none.
pub(super) fn descriptor(number: usize) -> Condition {
    condition(Attributes::NUMBER, Pattern::Equals(small(number).into()))
}

/// The descriptor is not the first of its call.
pub(super) fn later_descriptor() -> Condition {
    condition(Attributes::NUMBER, Pattern::Glob("*".into()))
}

/// The attribute has a value.
pub(super) fn condition(attribute: &str, pattern: Pattern) -> Condition {
    Condition { attribute: attribute.into(), any_of: vec![pattern] }
}

/// The key of a rule that limits nothing: no request has the attribute.
pub(super) fn placeholder_key() -> Key {
    Key { parts: vec![KeyPart::Text(ABSENT_ATTRIBUTE.into())] }
}
