use crate::descriptor::{DescriptorNames, small};

/// The attributes of a request: names and values.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [(&'a str, &'a str)]);

impl<'a> Attributes<'a> {
    /// These names and values.
    #[inline]
    #[must_use]
    pub const fn new(attributes: &'a [(&'a str, &'a str)]) -> Self {
        Self(attributes)
    }

    /// All of them, as they were given.
    #[inline]
    #[must_use]
    pub const fn as_slice(&self) -> &'a [(&'a str, &'a str)] {
        self.0
    }

    /// The value of an attribute; of a repeated name, the first.
    ///
    /// Where a rule needs [a descriptor of Envoy](crate::policy::DescriptorNames), other attributes
    /// are taken for one, with an entry for each of them in their order.
    #[inline]
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        if found.is_none() && is_of_descriptors(name) { self.as_entry(name) } else { found }
    }

    /// The value of a name that only descriptors have, in attributes that are not of one.
    #[cold]
    fn as_entry(&self, name: &str) -> Option<&'a str> {
        if self.are_of_descriptor() {
            return None;
        }
        if name == DescriptorNames::ENTRIES {
            return Some(small(self.0.len()));
        }
        let (position, key) = name.split_once('.')?;
        let index = position.parse::<usize>().ok()?.checked_sub(1)?;
        self.0.get(index).filter(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// Whether they are the entries of a descriptor.
    pub(crate) fn are_of_descriptor(&self) -> bool {
        self.0.iter().any(|(name, _)| *name == DescriptorNames::ENTRIES)
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().copied()
    }
}

/// Whether only descriptors have such a name: the number of entries, or one entry by its position.
#[inline]
pub(crate) fn is_of_descriptors(name: &str) -> bool {
    name.as_bytes().first().is_some_and(u8::is_ascii_digit) || name == DescriptorNames::ENTRIES
}
