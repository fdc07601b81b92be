//! Numbers that stand for keys.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::plan::KeyName;
use crate::store::mixing::Mixing;
use crate::store::replay::HASHED;

pub(super) use loading::LoadingKeys;

mod loading;

/// The keys with numbers.
///
/// Records refer to keys by numbers, and one record for each has its name: without that record the
/// name is lost.
#[derive(Debug, Default)]
pub(super) struct Keys {
    by_hash: KnownKeys,
    /// Every rule that has had a key.
    rules: Vec<RuleName>,
    rule_numbers: HashMap<RuleName, u32>,
    /// The rule that was last looked up: it often is the next one, too.
    last_rule: u32,
    /// The last number that was assigned; 0 is no key's.
    last: u64,
    /// The last number that was assigned before the snapshot that a start would read.
    last_before_snapshot: u64,
}

/// Numbers and rules of keys, by hash.
pub(super) type KnownKeys = HashMap<u64, KnownKey, Mixing>;

/// The domain and the name of a rule.
pub(super) type RuleName = (Box<str>, Box<str>);

/// The number and the rule of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownKey {
    pub(super) number: u64,
    pub(super) rule: u32,
}

impl Keys {
    /// Whether the name of a key may be in the log only before the newest snapshot.
    pub(super) const fn is_before_snapshot(&self, number: u64) -> bool {
        number <= self.last_before_snapshot
    }

    /// Notes that a snapshot begins: the names recorded so far are before it.
    pub(super) const fn begin_snapshot(&mut self) {
        self.last_before_snapshot = self.last;
    }

    /// The rule of a key, with its number.
    pub(super) fn rule_of(&self, hash: u64) -> Option<(u64, &RuleName)> {
        let KnownKey { number, rule } = *self.by_hash.get(&hash)?;
        Some((number, self.rules.get(rule as usize)?))
    }

    pub(super) fn number(&self, hash: u64) -> Option<u64> {
        self.by_hash.get(&hash).map(|known| known.number)
    }

    /// Assigns a number to a key.
    pub(super) fn add(&mut self, hash: u64, name: &KeyName) -> u64 {
        let number = self.last + 1;
        let rule = self.rule((name.rule.domain(), name.rule.name()));
        self.by_hash.insert(hash, KnownKey { number, rule });
        self.last = number;
        number
    }

    pub(super) fn remove(&mut self, hash: u64) {
        self.by_hash.remove(&hash);
    }

    /// The number of a rule.
    fn rule(&mut self, (domain, name): (&str, &str)) -> u32 {
        if let Some((last_domain, last_name)) = self.rules.get(self.last_rule as usize)
            && (&**last_domain, &**last_name) == (domain, name)
        {
            return self.last_rule;
        }
        let name: RuleName = (domain.into(), name.into());
        let next = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        let number = *self.rule_numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.rules.push(name);
        }
        self.last_rule = number;
        number
    }

    /// All keys, by hash.
    pub(super) fn known(&self) -> KnownKeys {
        self.by_hash.clone()
    }

    /// The domains and names of rules, by their numbers.
    pub(super) fn rules(&self) -> Vec<RuleName> {
        self.rules.clone()
    }
}

/// The value of an attribute as the log has it: a long one is hashed.
pub(super) fn logged_value(value: &str) -> Cow<'_, str> {
    if value.len() <= LONGEST_VALUE {
        return value.into();
    }
    let mut hashed = String::from(HASHED);
    for byte in Sha256::digest(value) {
        // Writing to a string does not fail.
        let _ = write!(hashed, "{byte:02x}");
    }
    hashed.into()
}

/// Whether the log may have a hash in place of this value.
pub(super) fn is_logged_as_hash(value: &str) -> bool {
    value.starts_with(HASHED)
}

/// The name of a key as the log has it.
pub(super) fn logged_name(name: &KeyName) -> KeyName {
    let mut name = name.clone();
    for value in name.parts.iter_mut().filter_map(|(_, value)| value.as_mut()) {
        if let Cow::Owned(hashed) = logged_value(value) {
            *value = hashed.into();
        }
    }
    name
}

/// The longest value of an attribute that is in the log as it is, in bytes.
const LONGEST_VALUE: usize = 256;
