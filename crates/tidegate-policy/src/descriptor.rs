//! How the descriptors of Envoy's rate limit service become attributes.

use std::fmt::Write;

/// Names and values of the attributes of one descriptor: an ordered list of keys with values.
///
/// Rules find an entry by its key. Rules from a tree of descriptors, where the order matters, find
/// it by its position, as `2.path`, and the number of entries as [`ENTRIES`](Self::ENTRIES). All
/// descriptors of one call but the first also have their number, as [`NUMBER`](Self::NUMBER). A key
/// that equals one of these names hides none of them, and of entries with the same key the last
/// counts.
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
            Self::write(&mut made.names, position, key);
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
        let keys = entries.into_iter();
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let names = starts.zip(&self.ends).map(|(start, end)| &self.names[start..*end]);
        let by_position = names.zip(keys.clone()).map(|(name, (_, value))| (name, value));
        let number = (number > 0).then(|| (Self::NUMBER, small(number)));
        // Of attributes with the same name the first counts.
        std::iter::once((Self::ENTRIES, small(self.ends.len())))
            .chain(number)
            .chain(by_position)
            .chain(keys.rev().filter(|(key, _)| *key != Self::NUMBER))
    }

    /// The name of an entry by its position, from 1.
    #[cfg(feature = "yaml")]
    pub(crate) fn at(position: usize, key: &str) -> String {
        let mut name = String::new();
        Self::write(&mut name, position, key);
        name
    }

    fn write(name: &mut String, position: usize, key: &str) {
        // Writing to a string does not fail.
        let _ = write!(name, "{position}.{key}");
    }
}

/// A number as text; all numbers above the largest that rules distinguish are the same.
pub(crate) fn small(number: usize) -> &'static str {
    NUMBERS.get(number).unwrap_or(&"more")
}

/// The most entries that rules distinguish.
pub(crate) const MOST_ENTRIES: usize = 16;

const NUMBERS: [&str; MOST_ENTRIES + 1] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
