//! pingora-limits: a rate estimator over a count-min sketch, so its decisions are inexact.

use super::{Contender, Limit};
use pingora_limits::rate::Rate;
use std::hash::Hash;

/// Counts the key, then compares the count with the limit.
pub struct Pingora {
    rate: Rate,
    most: isize,
}

impl<Q: Hash + ?Sized> Contender<Q> for Pingora {
    const EXACT: bool = false;

    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        let most = limit.count.max(limit.burst);
        let most = isize::try_from(most).map_err(|_| "pingora: the count")?;
        Ok(Self { rate: Rate::new(limit.period), most })
    }

    #[inline]
    fn allow(&self, key: &Q) -> bool {
        self.rate.observe(&key, 1) <= self.most
    }
}
