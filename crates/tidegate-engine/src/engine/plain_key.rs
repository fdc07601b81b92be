//! The key of a plain rule: found in a request without a call, and hashed without a loop.

use std::hash::{Hash, Hasher};

use tidegate_policy::Attributes;
use tidegate_policy::policy::KeyPart;
use tidegate_table::hash::{KeyedHash, spread};

use super::planning::{key_hash, write_text};

/// How the key of a rule is made.
#[derive(Debug)]
pub(super) enum PlainKey {
    /// All requests have the same key, with this hash.
    Same(u64),
    /// The value of this attribute is the key.
    Value(AttributeName),
    /// As the parts of the key say.
    Other,
}

/// A name of up to 16 bytes, as what it is compared by: its length, and its first and last bytes,
/// which overlap or meet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AttributeName {
    len: usize,
    ends: [u64; 2],
}

/// A family and the one value of its key, hashed as the key's parts are.
struct ValueKey<'a> {
    family: u64,
    value: &'a str,
}

impl PlainKey {
    pub(super) fn new(family: u64, parts: &[KeyPart], hash: &KeyedHash) -> Self {
        match parts {
            [] => Self::Same(key_hash(family, parts, &Attributes::new(&[]), hash)),
            [KeyPart::Text(name)] => AttributeName::new(name).map_or(Self::Other, Self::Value),
            _ => Self::Other,
        }
    }

    /// The hash of a request's key; `None` if the request lacks it, or the parts have to be looked at.
    #[inline(always)]
    pub(super) fn hash(
        &self,
        family: u64,
        attributes: &Attributes<'_>,
        hash: &KeyedHash,
    ) -> Option<u64> {
        match self {
            Self::Same(hash) => Some(*hash),
            Self::Value(name) => {
                let value = name.value_in(attributes)?;
                Some(spread(hash.hash_parts(&ValueKey { family, value })).max(1))
            }
            Self::Other => None,
        }
    }
}

impl AttributeName {
    fn new(name: &str) -> Option<Self> {
        // Others are not found by comparing names.
        Attributes::is_name(name).then_some(())?;
        Some(Self { len: name.len(), ends: ends(name)? })
    }

    /// The value of the attribute; of a repeated name, the first.
    #[inline(always)]
    fn value_in<'a>(&self, attributes: &Attributes<'a>) -> Option<&'a str> {
        for (name, value) in attributes.as_slice() {
            if name.len() == self.len && ends(name) == Some(self.ends) {
                return Some(value);
            }
        }
        None
    }
}

/// The first and the last bytes of a text of 1 to 16, all of them together: texts of the same length
/// and ends are the same.
#[inline(always)]
fn ends(text: &str) -> Option<[u64; 2]> {
    let bytes = text.as_bytes();
    match bytes.len() {
        4..8 => Some(
            [bytes.first_chunk()?, bytes.last_chunk()?].map(|it| u32::from_le_bytes(*it).into()),
        ),
        8..=16 => {
            Some([bytes.first_chunk()?, bytes.last_chunk()?].map(|it| u64::from_le_bytes(*it)))
        }
        2..4 => Some(
            [bytes.first_chunk()?, bytes.last_chunk()?].map(|it| u16::from_le_bytes(*it).into()),
        ),
        1 => Some([bytes[0].into(), 0]),
        _ => None,
    }
}

impl Hash for ValueKey<'_> {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.family);
        write_text(self.value, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values of all lengths up to 40.
    fn texts() -> Vec<String> {
        (0..40)
            .map(|len| {
                "αbcdefghijklmnopqrstuvwxyz0123456789abcd".chars().skip(len % 2).take(len).collect()
            })
            .collect()
    }

    #[test]
    fn hash_of_a_plain_key_is_that_of_its_parts() {
        let hash = KeyedHash::stored();
        for name in texts().iter().filter(|name| !name.is_empty()) {
            let parts = [KeyPart::Text(name.as_str().into())];
            let key = PlainKey::new(7, &parts, &hash);
            assert_eq!(matches!(key, PlainKey::Value(_)), name.len() <= 16, "{name}");
            for value in &texts() {
                let attributes = [("", "x"), ("other", "y"), (name, value), (name, "second")];
                let attributes = Attributes::new(&attributes);
                let expected = key_hash(7, &parts, &attributes, &hash);
                if let Some(found) = key.hash(7, &attributes, &hash) {
                    assert_eq!(found, expected, "{name}: {value}");
                } else {
                    assert!(name.len() > 16, "{name}");
                }
            }
            assert_eq!(key.hash(7, &Attributes::new(&[("other", "y")]), &hash), None, "{name}");
        }
        let same = PlainKey::new(7, &[], &hash);
        let expected = key_hash(7, &[], &Attributes::new(&[("user", "ada")]), &hash);
        assert_eq!(same.hash(7, &Attributes::new(&[("user", "ada")]), &hash), Some(expected));
    }

    #[test]
    fn names_that_differ_in_any_byte_are_different() {
        for len in 1..=16 {
            let name = "abcdefghijklmnop"[..len].to_owned();
            for at in 0..len {
                let mut other = name.clone();
                other.replace_range(at..=at, "Z");
                assert_ne!(AttributeName::new(&name), AttributeName::new(&other), "{name} {other}");
                let longer = format!("{name}a");
                let attributes = [(other.as_str(), "x"), (longer.as_str(), "y"), (&name, "z")];
                let found = AttributeName::new(&name).unwrap();
                assert_eq!(found.value_in(&Attributes::new(&attributes)), Some("z"));
            }
        }
        assert_eq!(AttributeName::new("abcdefghijklmnopq"), None);
        assert_eq!(AttributeName::new(""), None);
    }
}
