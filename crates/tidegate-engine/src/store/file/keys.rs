//! Numbers that stand for keys, and the names that only the log has.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tidegate_log::LogReader;
use tidegate_policy::policy::RuleId;
use tidegate_table::locks::lock;

use super::{FileStore, OpenError};
use crate::mixing::Mixing;
use crate::plan::KeyName;
use crate::store::record::Record;
use crate::store::replay::{Background, HASHED, Threads};

/// The keys with numbers.
///
/// Records refer to keys by numbers, and one record for each has its name: without that record the
/// name is lost.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) by_hash: KnownKeys,
    /// Every rule that has had a key, by its number.
    pub(super) rules: Vec<RuleName>,
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
        let rule = self.rule(name.rule.domain(), name.rule.name());
        self.by_hash.insert(hash, KnownKey { number, rule });
        self.last = number;
        number
    }

    pub(super) fn remove(&mut self, hash: u64) {
        self.by_hash.remove(&hash);
    }

    /// The number of a rule.
    fn rule(&mut self, domain: &str, name: &str) -> u32 {
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
}

/// [`Keys`] that are read from a log. With many of them, the map is filled by another thread: it is
/// needed when all are there.
#[derive(Debug)]
pub(super) struct LoadingKeys {
    /// Everything but the map.
    keys: Keys,
    /// Keys by hash, with their numbers; without one a key is removed.
    by_hash: Background<(u64, Option<KnownKey>), KnownKeys>,
}

impl LoadingKeys {
    pub(super) fn new() -> Self {
        let by_hash = Background::new(Threads::ForWork, KnownKeys::default(), apply_batch);
        Self { keys: Keys::default(), by_hash }
    }

    /// The number of a rule, for its keys.
    pub(super) fn rule(&mut self, domain: &str, name: &str) -> u32 {
        self.keys.rule(domain, name)
    }

    /// Adds a key with its number.
    pub(super) fn insert(&mut self, hash: u64, key: KnownKey) {
        self.keys.last = self.keys.last.max(key.number);
        self.by_hash.push((hash, Some(key)));
    }

    pub(super) fn remove(&mut self, hash: u64) {
        self.by_hash.push((hash, None));
    }

    /// The keys, when all are there.
    pub(super) fn finish(self) -> Keys {
        let mut keys = Keys { by_hash: self.by_hash.finish(), ..self.keys };
        keys.begin_snapshot();
        keys
    }
}

fn apply_batch(by_hash: &mut KnownKeys, keys: &mut Vec<(u64, Option<KnownKey>)>) {
    for (hash, key) in keys.drain(..) {
        match key {
            Some(key) => by_hash.insert(hash, key),
            None => by_hash.remove(&hash),
        };
    }
}

/// Names of keys that are in use.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyNames {
    /// The names.
    pub names: Vec<KeyName>,
    /// Whether there are no others.
    pub is_complete: bool,
}

/// How much is read for a list of names.
#[derive(Clone, Copy, Debug)]
pub struct KeyNamesBound {
    /// The most names.
    pub names: usize,
    /// After so many bytes no other segment of the log is read.
    pub bytes: u64,
}

impl FileStore {
    /// The names of keys that are in use, of the rules that are wanted. The segments of the log are
    /// read from the newest to the oldest, until the bound is reached.
    ///
    /// A name is missing if the log has only a hash of a value, because that is too long.
    pub fn key_names(
        &self,
        bound: KeyNamesBound,
        is_wanted: impl Fn(&RuleId) -> bool,
    ) -> Result<KeyNames, OpenError> {
        let mut log = LogReader::newest_first(Arc::clone(&self.shared.disk))?;
        let mut found = KeyNames { names: Vec::new(), is_complete: true };
        loop {
            if log.is_next_segment_after(bound.bytes) {
                found.is_complete = false;
                break;
            }
            let note = |record| {
                let Record::Key(key) = record else { return };
                // A key that is idle or was erased is no longer in use under this number.
                let number = lock(&self.shared.recorder.keys).number(key.hash);
                let is_used = !key.is_erased && number == Some(key.number);
                if !is_used || !is_wanted(&key.name.rule) {
                    return;
                }
                let values = key.name.parts.iter().filter_map(|(_, value)| value.as_deref());
                if found.names.len() >= bound.names || values.clone().any(is_logged_as_hash) {
                    found.is_complete = false;
                } else {
                    found.names.push(key.name);
                }
            };
            match log.read_batch(|batch| Record::each(batch, note)) {
                Ok(true) => {}
                Ok(false) => break,
                // The next segment can be read without this one.
                Err(_) => found.is_complete = false,
            }
        }
        Ok(found)
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
fn is_logged_as_hash(value: &str) -> bool {
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
