//! tidegate itself.

use super::{Contender, Limit};
use std::net::IpAddr;
use tidegate::{Bucket, Decision, Limiter, Rate, WhenFull};

/// A token bucket per key; growing without a hint, sized in advance with one.
pub struct Tidegate<K> {
    inner: Limiter<K>,
}

/// The bucket of a limit.
fn bucket(limit: Limit) -> Result<Bucket, String> {
    let rate = Rate::try_new(limit.count.into(), limit.period)
        .map_err(|error| format!("tidegate: the rate of {limit:?}: {error}"))?;
    Bucket::try_new(rate, limit.burst.into())
        .map_err(|error| format!("tidegate: the bucket of {limit:?}: {error}"))
}

impl Tidegate<String> {
    /// A limiter that holds at most `ceiling` keys; further ones share counters.
    pub fn with_ceiling(limit: Limit, ceiling: usize) -> Result<Self, String> {
        <Limiter<String>>::builder(bucket(limit)?)
            .max_keys(ceiling)
            .when_full(WhenFull::Share)
            .build()
            .map(|inner| Self { inner })
            .map_err(|error| format!("tidegate: {error}"))
    }

    /// A full decision for one key.
    #[inline]
    pub fn check(&self, key: &str) -> Decision {
        self.inner.check(key)
    }

    /// Full decisions for several keys.
    #[inline]
    pub fn check_many(&self, keys: &[&str], out: &mut Vec<Decision>) {
        self.inner.check_many(keys, out);
    }
}

/// The trait for one kind of key; `$key` is the type that it is called with.
macro_rules! contender {
    ($owned:ty, $key:ty) => {
        impl Contender<$key> for Tidegate<$owned> {
            fn build(limit: Limit, hint: usize) -> Result<Self, String> {
                let limit = bucket(limit)?;
                if hint == 0 {
                    return Ok(Self { inner: <Limiter<$owned>>::new(limit) });
                }
                <Limiter<$owned>>::builder(limit)
                    .capacity_hint(hint)
                    .build()
                    .map(|inner| Self { inner })
                    .map_err(|error| format!("tidegate: {error}"))
            }

            #[inline]
            fn allow(&self, key: &$key) -> bool {
                self.inner.allow(key)
            }
        }
    };
}

contender!(String, str);
contender!(u64, u64);
contender!(IpAddr, IpAddr);
