//! Limiters without keys: they ignore the key and appear only in rows with a single one.

use super::{Contender, Limit};
use std::time::Duration;

/// The ratelimit crate.
pub struct Ratelimit {
    inner: ratelimit::Ratelimiter,
}

impl<Q: ?Sized> Contender<Q> for Ratelimit {
    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        ratelimit::Ratelimiter::builder(u64::from(limit.count))
            .period(limit.period)
            .max_tokens(u64::from(limit.burst))
            .initial_available(u64::from(limit.burst))
            .build()
            .map(|inner| Self { inner })
            .map_err(|error| format!("ratelimit: {error}"))
    }

    #[inline]
    fn allow(&self, _key: &Q) -> bool {
        self.inner.try_wait().is_ok()
    }
}

/// The leaky-bucket crate, called without waiting.
pub struct LeakyBucket {
    inner: leaky_bucket::RateLimiter,
}

impl<Q: ?Sized> Contender<Q> for LeakyBucket {
    fn build(limit: Limit, _hint: usize) -> Result<Self, String> {
        // It refills in ticks of at least a millisecond.
        let (interval, refill) = if limit.count >= 1_000 {
            (limit.period / 1_000, limit.count / 1_000)
        } else {
            (limit.period, limit.count)
        };
        let inner = leaky_bucket::RateLimiter::builder()
            .interval(interval.max(Duration::from_millis(1)))
            .refill(refill as usize)
            .initial(limit.burst as usize)
            .max(limit.burst as usize)
            .build();
        Ok(Self { inner })
    }

    #[inline]
    fn allow(&self, _key: &Q) -> bool {
        self.inner.try_acquire(1)
    }
}
