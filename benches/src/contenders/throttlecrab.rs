//! throttlecrab as a library: its limiter is not `Sync` and goes into a mutex, as documented.

use super::{Contender, Limit};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use throttlecrab::{PeriodicStore, RateLimiter};

/// The limiter over a `PeriodicStore`; each call passes its limit and the time.
pub struct Throttlecrab {
    inner: Mutex<RateLimiter<PeriodicStore>>,
    burst: i64,
    count: i64,
    seconds: i64,
}

impl Contender<str> for Throttlecrab {
    fn build(limit: Limit, hint: usize) -> Result<Self, String> {
        let store =
            if hint == 0 { PeriodicStore::new() } else { PeriodicStore::with_capacity(hint) };
        Ok(Self {
            inner: Mutex::new(RateLimiter::new(store)),
            burst: i64::from(limit.burst),
            count: i64::from(limit.count),
            seconds: limit.period.as_secs().try_into().map_err(|_| "throttlecrab: the period")?,
        })
    }

    #[inline]
    fn allow(&self, key: &str) -> bool {
        let now = SystemTime::now();
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .rate_limit(key, self.burst, self.count, self.seconds, 1, now)
            .is_ok_and(|(allowed, _)| allowed)
    }
}
