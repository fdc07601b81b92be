//! governor: keyed, over a DashMap, with its default clock and hasher.

use super::{Contender, Limit};
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use std::hash::Hash;
use std::num::NonZeroU32;

/// The keyed limiter that its documentation starts with.
///
/// `check_key` needs `&K`: string rows pass a `&String` built before the timed region, so that it
/// allocates only where it clones a new key itself.
pub struct Governor<K: Hash + Eq + Clone> {
    inner: RateLimiter<K, DashMapStateStore<K>, DefaultClock>,
}

impl<K: Hash + Eq + Clone + Send + Sync> Contender<K> for Governor<K> {
    fn build(limit: Limit, hint: usize) -> Result<Self, String> {
        let burst = NonZeroU32::new(limit.burst).ok_or("governor: a burst of zero")?;
        let quota = Quota::with_period(limit.period / limit.count)
            .ok_or("governor: a period of zero")?
            .allow_burst(burst);
        let inner = if hint == 0 {
            RateLimiter::dashmap(quota)
        } else {
            let store = DashMapStateStore::with_capacity(hint);
            RateLimiter::new(quota, store, DefaultClock::default())
        };
        Ok(Self { inner })
    }

    #[inline]
    fn allow(&self, key: &K) -> bool {
        self.inner.check_key(key).is_ok()
    }
}
