//! An exact, bounded, very fast keyed rate limiter.

mod clock;
mod hash;
mod keyed;
mod limiter;
mod table;

pub use clock::{CachedClock, Clock, ManualClock, MonotonicClock};
pub use hash::{KeyedHash, KeyedHasher};
pub use keyed::KeyedLimit;
pub use limiter::{BuildError, FullError, Limiter, LimiterBuilder};
pub use table::WhenFull;
pub use tollgate_core::{
    Algorithm, Bucket, Carry, Cooldown, Decision, LimitError, Period, Problem, Quota, Rate,
    Sliding, Timestamp, Verdict, Wait, Window,
};
