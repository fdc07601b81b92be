//! The adapter between Envoy's descriptors and rules, which know attributes only.
//!
//! A descriptor is a list of entries, each a key with a value, in an order that may matter. Here is
//! how its parts are named as attributes, and nowhere else. Two sides use the names: rules that are
//! made from the files of envoyproxy/ratelimit and Limitador (`yaml`), and requests, whose
//! attributes [`DescriptorNames`] makes, of descriptors and of attributes that stand for one.

use std::fmt::Write;

use super::key::KeyPart;
use super::{Condition, Limit, Policy, Rule};

#[cfg(feature = "yaml")]
mod rule_names;
#[cfg(feature = "yaml")]
pub(super) mod yaml;

/// Names and values of the attributes of one descriptor: an ordered list of keys with values.
///
/// Rules find an entry by its key. Rules from a tree of descriptors, where the order matters, find
/// it by its position, as `2.path`, and the number of entries as [`ENTRIES`](Self::ENTRIES). All
/// descriptors of one call but the first also have their number, as [`NUMBER`](Self::NUMBER). A key
/// that equals one of these names is found by its position only, and of entries with the same key
/// the last counts.
///
/// ```
/// use tidegate::policy::DescriptorNames;
///
/// let entries = [("plan", "free"), ("path", "/search")];
/// let names = DescriptorNames::new(entries.iter().map(|(key, _)| *key));
/// let attributes: Vec<_> = names.attributes(entries, 0).collect();
/// assert_eq!(attributes[0], (DescriptorNames::ENTRIES, "2"));
/// assert_eq!(attributes[1..3], [("1.plan", "free"), ("2.path", "/search")]);
/// assert_eq!(attributes[3..], [("path", "/search"), ("plan", "free")]);
/// ```
///
/// They are those of `Request::of_descriptor`. An engine takes the attributes of any other request for one descriptor, in their order, where the
/// rules of the domain [need one](Policy::reads_descriptors).
#[derive(Clone, Debug, Default)]
pub struct DescriptorNames {
    /// All names by position, one after the other.
    names: String,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl DescriptorNames {
    /// The attribute with the number of entries of a descriptor.
    pub const ENTRIES: &'static str = "entries of the descriptor";

    /// The attribute with the number of a descriptor in its call, from 1; the first one has none.
    pub const NUMBER: &'static str = "number of the descriptor";

    /// The names for the keys of a descriptor.
    pub fn new<'k>(keys: impl IntoIterator<Item = &'k str>) -> Self {
        let mut made = Self::default();
        for (position, key) in (1..).zip(keys) {
            write_name(&mut made.names, position, key);
            made.ends.push(made.names.len());
        }
        made
    }

    /// The attributes of the descriptor whose keys these are, the `number`th of its call.
    pub fn attributes<'a, I>(
        &'a self,
        entries: I,
        number: usize,
    ) -> impl Iterator<Item = (&'a str, &'a str)>
    where
        I: IntoIterator<Item = (&'a str, &'a str), IntoIter: DoubleEndedIterator + Clone>,
    {
        self.attributes_with(entries, number, |_, value| value)
    }

    /// The same attributes, but for rules that find an entry by its key it has the value that
    /// `by_key` makes of both. Rules that find it by its position get it as it is.
    pub fn attributes_with<'a, I>(
        &'a self,
        entries: I,
        number: usize,
        by_key: impl Fn(&'a str, &'a str) -> &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)>
    where
        I: IntoIterator<Item = (&'a str, &'a str), IntoIter: DoubleEndedIterator + Clone>,
    {
        let entries = entries.into_iter();
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let names = starts.zip(&self.ends).map(|(start, end)| &self.names[start..*end]);
        let by_position = names.zip(entries.clone()).map(|(name, (_, value))| (name, value));
        let number = (number > 0).then(|| (Self::NUMBER, small(number)));
        // A client may choose a key, but not what it stands for.
        let others = entries.rev().filter(|(key, _)| !Self::is_one(key));
        // Of attributes with the same name the first counts.
        std::iter::once((Self::ENTRIES, small(self.ends.len())))
            .chain(number)
            .chain(by_position)
            .chain(others.map(move |(key, value)| (key, by_key(key, value))))
    }

    /// The entries, in their order, that the name of a key has by their positions, as `1.plan`;
    /// `None` if it names something else.
    #[doc(hidden)]
    #[must_use]
    pub fn entries_of_key<'a>(
        parts: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<Vec<(&'a str, &'a str)>> {
        let entry = |(name, value): (&'a str, &'a str)| {
            let key = key_by_position(name)?;
            let position: usize = name.strip_suffix(key)?.strip_suffix('.')?.parse().ok()?;
            Some((position, (key, value)))
        };
        let mut entries = parts.into_iter().map(entry).collect::<Option<Vec<_>>>()?;
        entries.sort_unstable();
        let is_whole = entries.iter().zip(1..).all(|((position, _), number)| *position == number);
        is_whole.then(|| entries.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Whether an attribute of this name exists only where there is a descriptor: the number of its
    /// entries, its own number, or one entry by its position.
    #[doc(hidden)]
    #[must_use]
    pub fn is_one(name: &str) -> bool {
        name == Self::ENTRIES || name == Self::NUMBER || key_by_position(name).is_some()
    }
}

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
        all.any(|name| name != DescriptorNames::NUMBER && DescriptorNames::is_one(name))
    }

    /// Whether it takes all descriptors of a call but the first out of its group.
    #[doc(hidden)]
    #[must_use]
    pub fn excludes_later_descriptors(&self) -> bool {
        self.conditions.iter().any(|it| it.attribute() == DescriptorNames::NUMBER)
    }

    /// Whether it limits nothing, and only keeps requests from the later rules of its group. An
    /// imported file makes such rules where a request must not fall through; they are not listed.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        matches!(self.key.parts(), [part] if part.attribute() == ABSENT_ATTRIBUTE)
    }
}

/// Writes the name of an entry by its position, from 1.
fn write_name(name: &mut String, position: usize, key: &str) {
    // Writing to a string does not fail.
    let _ = write!(name, "{position}.{key}");
}

/// The key of an entry in its name by position.
pub(super) fn key_by_position(name: &str) -> Option<&str> {
    let (position, key) = name.split_once('.')?;
    let is_position = matches!(position.as_bytes(), [b'1'..=b'9', rest @ ..]
        if rest.iter().all(u8::is_ascii_digit));
    is_position.then_some(key)
}

/// A number as text; all numbers above the largest that rules distinguish are the same.
fn small(number: usize) -> &'static str {
    NUMBERS.get(number).unwrap_or(&"more")
}

/// The most entries that rules distinguish.
const MOST_ENTRIES: usize = 16;

const NUMBERS: [&str; MOST_ENTRIES + 1] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];

/// An attribute that no request has.
const ABSENT_ATTRIBUTE: &str = "a descriptor that is listed";

#[cfg(test)]
mod tests;
