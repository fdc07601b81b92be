//! The harness itself: reads the key, decides nothing.

use super::{Contender, Limit};
use crate::workload::Value;
use std::hint::black_box;

/// Returns what the row expects after reading the key.
pub struct Nothing {
    allowed: bool,
}

impl Nothing {
    fn of(limit: Limit) -> Self {
        Self { allowed: !limit.denies() }
    }
}

impl Contender<str> for Nothing {
    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        Ok(Self::of(limit))
    }

    #[inline]
    fn allow(&self, key: &str) -> bool {
        black_box(key.as_bytes().last().copied());
        self.allowed
    }
}

impl Contender<String> for Nothing {
    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        Ok(Self::of(limit))
    }

    #[inline]
    fn allow(&self, key: &String) -> bool {
        black_box(key.as_bytes().last().copied());
        self.allowed
    }
}

impl<K: Value> Contender<K> for Nothing {
    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        Ok(Self::of(limit))
    }

    #[inline]
    fn allow(&self, key: &K) -> bool {
        black_box(*key);
        self.allowed
    }
}
