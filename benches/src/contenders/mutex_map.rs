//! A hand-written limiter: token buckets in a `HashMap` in a `Mutex`.

use super::{Contender, Limit};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One key's tokens, as of `at`.
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant, per_second: f64, burst: f64) -> bool {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * per_second).min(burst);
        self.at = now;
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

/// The map, with std's hasher.
pub struct MutexMap<K> {
    map: Mutex<HashMap<K, Bucket>>,
    per_second: f64,
    burst: f64,
}

impl<K, Q> Contender<Q> for MutexMap<K>
where
    K: Eq + Hash + Borrow<Q> + Send,
    Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
{
    fn build(limit: Limit, hint: usize) -> Result<Self, String> {
        Ok(Self {
            map: Mutex::new(HashMap::with_capacity(hint)),
            per_second: f64::from(limit.count) / limit.period.as_secs_f64(),
            burst: f64::from(limit.burst),
        })
    }

    #[inline]
    fn allow(&self, key: &Q) -> bool {
        let now = Instant::now();
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = map.get_mut(key) {
            return bucket.take(now, self.per_second, self.burst);
        }
        map.insert(key.to_owned(), Bucket { tokens: self.burst - 1.0, at: now });
        true
    }
}
