//! The harness itself: reads the key, decides nothing.

use super::{Contender, Limit};
use crate::workload::Value;
use std::hint::black_box;

/// Answers what the row expects after looking at the key.
pub struct Nothing {
    answer: bool,
}

impl Nothing {
    fn of(limit: Limit) -> Self {
        Self { answer: !limit.refuses() }
    }
}

impl Contender<str> for Nothing {
    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        Ok(Self::of(limit))
    }

    #[inline]
    fn allow(&self, key: &str) -> bool {
        black_box(key.as_bytes().last().copied());
        self.answer
    }
}

impl Contender<String> for Nothing {
    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        Ok(Self::of(limit))
    }

    #[inline]
    fn allow(&self, key: &String) -> bool {
        black_box(key.as_bytes().last().copied());
        self.answer
    }
}

impl<K: Value> Contender<K> for Nothing {
    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        Ok(Self::of(limit))
    }

    #[inline]
    fn allow(&self, key: &K) -> bool {
        black_box(*key);
        self.answer
    }
}
