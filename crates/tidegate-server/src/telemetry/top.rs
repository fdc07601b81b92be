//! The busiest and the most denied keys, in bounded memory and with bounded errors.

use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tidegate::policy::RuleId;
use tidegate::{Timestamp, report::KeyName};

use space_saving::SpaceSaving;

mod space_saving;

/// The busiest and the most denied keys.
#[derive(Debug)]
pub(crate) struct Top {
    hides_keys: bool,
    sketches: Mutex<Sketches>,
}

#[derive(Debug, Default)]
struct Sketches {
    busiest: SpaceSaving,
    most_denied: SpaceSaving,
    halved_at: Timestamp,
}

/// A key in its printable form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct TopKey {
    pub(crate) domain: Box<str>,
    pub(crate) rule: Box<str>,
    /// Attributes and values; long ones are truncated.
    pub(crate) key: Vec<(Box<str>, Option<Box<str>>)>,
}

/// The count of a key.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KeyCount {
    #[serde(flatten)]
    pub(crate) key: TopKey,
    /// An estimate: the true count is at most this, and at least this minus the error.
    pub(crate) count: u64,
    pub(crate) error: u64,
}

/// The content of [`Top`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TopKeys {
    pub(crate) busiest: Vec<KeyCount>,
    pub(crate) most_denied: Vec<KeyCount>,
}

impl Top {
    pub(crate) fn new(hides_keys: bool) -> Self {
        Self { hides_keys, sketches: Mutex::default() }
    }

    /// Counts a decision on a key, which stands for `weight` of them.
    pub(crate) fn add(&self, key: &KeyName, is_allowed: bool, weight: u64, now: Timestamp) {
        let key = self.printable(key);
        let mut sketches = self.sketches.lock().unwrap_or_else(PoisonError::into_inner);
        sketches.halve(now);
        if !is_allowed {
            sketches.most_denied.add(&key, weight);
        }
        sketches.busiest.add(&key, weight);
    }

    /// A key in its printable form, hashed if keys are hidden.
    pub(crate) fn printable(&self, key: &KeyName) -> TopKey {
        TopKey::new(key, self.hides_keys)
    }

    /// The names of the keys, as far as they are whole: neither hidden nor truncated.
    pub(crate) fn names(&self) -> Vec<KeyName> {
        if self.hides_keys {
            return Vec::new();
        }
        let sketches = self.sketches.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = sketches.busiest.keys().chain(sketches.most_denied.keys());
        let is_whole = |key: &&TopKey| {
            let mut values = key.key.iter().filter_map(|(_, value)| value.as_ref());
            values.all(|value| value.len() <= MOST_BYTES)
        };
        keys.filter(is_whole).map(TopKey::name).collect()
    }

    /// The first `count` of both.
    pub(crate) fn read(&self, count: usize, now: Timestamp) -> TopKeys {
        let mut sketches = self.sketches.lock().unwrap_or_else(PoisonError::into_inner);
        sketches.halve(now);
        TopKeys {
            busiest: sketches.busiest.first(count),
            most_denied: sketches.most_denied.first(count),
        }
    }
}

impl Sketches {
    /// Halves all counts once per half-life.
    fn halve(&mut self, now: Timestamp) {
        if self.halved_at == Timestamp::default() {
            self.halved_at = now;
        }
        let since_ns = now.as_nanos().saturating_sub(self.halved_at.as_nanos());
        let halvings = u128::from(since_ns) / HALF_LIFE.as_nanos();
        if halvings > 0 {
            let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
            self.busiest.halve(halvings);
            self.most_denied.halve(halvings);
            self.halved_at = now;
        }
    }
}

impl TopKey {
    /// The printable form of a key: long values are truncated, hidden ones hashed.
    pub(crate) fn new(name: &KeyName, is_hidden: bool) -> Self {
        let shown = |value: &str| printable_value(value, is_hidden);
        Self {
            domain: name.rule().domain().into(),
            rule: name.rule().name().into(),
            key: name.parts().map(|(name, value)| (name.into(), value.map(shown))).collect(),
        }
    }

    /// The name of a key whose printable form is whole.
    fn name(&self) -> KeyName {
        KeyName::new(RuleId::named(&self.rule).in_domain(&self.domain), self.key.clone())
    }

    /// `domain/rule user="ada"`, on one line, without control characters.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{}/{}", self.domain.escape_debug(), self.rule.escape_debug());
        for (name, value) in &self.key {
            // Writing to a string cannot fail.
            let _ = match value {
                Some(value) => write!(text, " {}={value:?}", name.escape_debug()),
                None => write!(text, " {} is missing", name.escape_debug()),
            };
        }
        text
    }
}

/// The printable form of a value: truncated if it is long, hashed if it is to be hidden.
pub(crate) fn printable_value(value: &str, is_hidden: bool) -> Box<str> {
    if is_hidden { hidden(value) } else { shortened(value) }
}

/// A hash of a value, with a seed of this process.
fn hidden(value: &str) -> Box<str> {
    static SEED: std::sync::LazyLock<RandomState> = std::sync::LazyLock::new(RandomState::new);
    format!("#{:016x}", SEED.hash_one(value)).into()
}

/// A value, truncated if it is long.
fn shortened(value: &str) -> Box<str> {
    if value.len() <= MOST_BYTES {
        return value.into();
    }
    let end = (0..=MOST_BYTES).rev().find(|&at| value.is_char_boundary(at)).unwrap_or(0);
    format!("{}… ({} bytes)", &value[..end], value.len()).into()
}

/// The most keys of a sketch.
const MOST_KEYS: usize = 512;
/// The most bytes of a printed value.
const MOST_BYTES: usize = 128;
/// The time after which a decision counts half.
const HALF_LIFE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
