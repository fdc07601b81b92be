//! quota: a pool of buckets, called through `check`, the variant that returns a bool.

use super::{Contender, Limit};
use quota::{QuotaPolicy, QuotaPool, RefillRate};
use std::borrow::Borrow;
use std::hash::Hash;

/// A `QuotaPool` with continuous refill, its compact slot.
pub struct Quota<K: Eq + Hash + Clone> {
    pool: QuotaPool<K>,
}

impl<K, Q> Contender<Q> for Quota<K>
where
    K: Eq + Hash + Clone + Borrow<Q> + Send + Sync,
    Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
{
    fn build(limit: Limit, hint: usize) -> Result<Self, String> {
        let per_second = f64::from(limit.count) / limit.period.as_secs_f64();
        let policy = QuotaPolicy::new()
            .set_capacity(f64::from(limit.burst))
            .set_refill_rate(RefillRate::per_sec(per_second));
        Ok(Self { pool: QuotaPool::with_capacity(policy, u64::from(limit.burst), hint) })
    }

    #[inline]
    fn allow(&self, key: &Q) -> bool {
        self.pool.check(key, 1)
    }
}
