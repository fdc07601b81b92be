//! Metadata of a rule: values that say nothing about limits, and are passed on to Envoy.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A table of metadata: values by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(pub(crate) BTreeMap<Box<str>, MetadataValue>);

/// A value of [`Metadata`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataValue {
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(MetadataNumber),
    /// A text.
    Text(Box<str>),
    /// A list.
    List(Vec<MetadataValue>),
    /// A table.
    Table(Metadata),
}

/// A finite number. Two of them are equal if they are the same 64-bit float.
#[derive(Clone, Copy, Debug)]
pub struct MetadataNumber(f64);

impl Metadata {
    /// The names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MetadataValue)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what another table has and this one does not. Where both have a table, those are
    /// merged; other values stay as they are.
    pub fn merge(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            match (self.0.get_mut(name), value) {
                (None, _) => {
                    self.0.insert(name.clone(), value.clone());
                }
                (Some(MetadataValue::Table(mine)), MetadataValue::Table(other)) => {
                    mine.merge(other)
                }
                (Some(_), _) => {}
            }
        }
    }
}

impl MetadataNumber {
    /// A number; `None` if it is not finite.
    #[must_use]
    pub fn new(number: f64) -> Option<Self> {
        // There is one zero.
        number.is_finite().then_some(Self(if number == 0.0 { 0.0 } else { number }))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for MetadataNumber {
    fn eq(&self, other: &Self) -> bool {
        self.0.total_cmp(&other.0) == Ordering::Equal
    }
}

impl Eq for MetadataNumber {}

/// How deep tables and lists of metadata are nested at most.
pub(crate) const MOST_DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> MetadataValue {
        MetadataValue::Text(text.into())
    }

    fn table(entries: &[(&str, MetadataValue)]) -> Metadata {
        Metadata(entries.iter().map(|(name, value)| ((*name).into(), value.clone())).collect())
    }

    #[test]
    fn the_first_value_stays_and_tables_are_merged() {
        fn inner(entries: &[(&str, MetadataValue)]) -> MetadataValue {
            MetadataValue::Table(table(entries))
        }
        let mut all = table(&[("a", text("1")), ("t", inner(&[("x", text("1"))]))]);
        all.merge(&table(&[
            ("a", text("2")),
            ("b", text("2")),
            ("t", inner(&[("x", text("2")), ("y", text("2"))])),
        ]));
        all.merge(&table(&[("t", text("3")), ("a", inner(&[]))]));
        let expected = table(&[
            ("a", text("1")),
            ("t", inner(&[("x", text("1")), ("y", text("2"))])),
            ("b", text("2")),
        ]);
        assert_eq!(all, expected);
    }

    #[test]
    fn numbers_are_finite_and_zero_is_one_number() {
        assert_eq!(MetadataNumber::new(0.0), MetadataNumber::new(-0.0));
        assert_eq!(MetadataNumber::new(f64::NAN), None);
        assert_eq!(MetadataNumber::new(f64::INFINITY), None);
        assert_eq!(MetadataNumber::new(1.5).map(MetadataNumber::get), Some(1.5));
    }
}
