//! Conditions and keys of the rules that are made from files.

use super::{ABSENT_ATTRIBUTE, DescriptorNames, small, write_name};
use crate::policy::key::{Key, KeyPart};
use crate::policy::{Condition, Pattern};

/// The name of the entry at a position, from 1.
pub(super) fn entry(position: usize, key: &str) -> String {
    let mut name = String::new();
    write_name(&mut name, position, key);
    name
}

/// The descriptor has so many entries.
pub(super) fn entries(count: usize) -> Condition {
    condition(DescriptorNames::ENTRIES, Pattern::Equals(small(count).into()))
}

/// The descriptor has this number in its call; not for the first one, which has none.
pub(super) fn descriptor(number: usize) -> Condition {
    condition(DescriptorNames::NUMBER, Pattern::Equals(small(number).into()))
}

/// The descriptor is not the first of its call.
pub(super) fn later_descriptor() -> Condition {
    condition(DescriptorNames::NUMBER, Pattern::Glob("*".into()))
}

/// The attribute has a value.
pub(super) fn condition(attribute: &str, pattern: Pattern) -> Condition {
    Condition { attribute: attribute.into(), any_of: vec![pattern] }
}

/// The key of a rule that limits nothing: no request has the attribute.
pub(super) fn placeholder_key() -> Key {
    Key { parts: vec![KeyPart::Text(ABSENT_ATTRIBUTE.into())] }
}
