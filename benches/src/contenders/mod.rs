//! Everything that is measured, behind one statically dispatched trait.

pub mod governor;
pub mod mutex_map;
pub mod nothing;
pub mod pingora;
pub mod quota;
pub mod throttlecrab;
#[cfg(feature = "tidegate")]
pub mod tidegate;
pub mod unkeyed;

use std::time::Duration;

/// A column of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// tidegate, `Limiter::new`, the table grows as keys arrive.
    Growing,
    /// tidegate, built with the number of keys as its capacity hint.
    Hinted,
    /// tidegate, `check` instead of `allow`: a full decision instead of a bool.
    Decision,
    /// tidegate, `check_many` of 16 on a growing table.
    Batch,
    /// tidegate, `check_many` of 16 on a table with a capacity hint.
    HintedBatch,
    /// governor's keyed limiter over a DashMap.
    Governor,
    /// quota's `QuotaPool`, which grows as keys arrive.
    Quota,
    /// quota's `QuotaPool`, built with the number of keys as its capacity.
    QuotaHinted,
    /// throttlecrab's limiter over a `PeriodicStore`, in a mutex.
    Throttlecrab,
    /// A `HashMap` of token buckets in a mutex, written by hand.
    MutexMap,
    /// ratelimit, one bucket without keys.
    Ratelimit,
    /// leaky-bucket, one bucket without keys.
    LeakyBucket,
    /// pingora-limits' rate estimator, a sketch that counts inexactly.
    Pingora,
    /// No limiter at all: the price of walking the keys.
    Nothing,
}

impl Who {
    /// Every column, in the order of the tables.
    pub const ALL: [Who; 14] = [
        Who::Growing,
        Who::Hinted,
        Who::Decision,
        Who::Batch,
        Who::HintedBatch,
        Who::Governor,
        Who::Quota,
        Who::QuotaHinted,
        Who::Throttlecrab,
        Who::MutexMap,
        Who::Ratelimit,
        Who::LeakyBucket,
        Who::Pingora,
        Who::Nothing,
    ];

    /// The column's heading.
    pub fn name(self) -> &'static str {
        match self {
            Who::Growing => "tidegate",
            Who::Hinted => "tidegate, hint",
            Who::Decision => "tidegate check",
            Who::Batch => "tidegate x16",
            Who::HintedBatch => "hint x16",
            Who::Governor => "governor",
            Who::Quota => "quota",
            Who::QuotaHinted => "quota, hint",
            Who::Throttlecrab => "throttlecrab",
            Who::MutexMap => "Mutex<HashMap>",
            Who::Ratelimit => "ratelimit",
            Who::LeakyBucket => "leaky-bucket",
            Who::Pingora => "pingora",
            Who::Nothing => "(no limiter)",
        }
    }

    /// The column with that heading.
    pub fn from_name(name: &str) -> Option<Who> {
        Who::ALL.into_iter().find(|who| who.name() == name)
    }
}

/// A limit every contender can be built with: `count` per `period`, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Admissions per period.
    pub count: u32,
    /// The period.
    pub period: Duration,
    /// Admissions at once.
    pub burst: u32,
}

impl Limit {
    /// One key as fast as two threads can call: a nanosecond per admission.
    pub const HOT: Limit = Limit::new(1_000_000_000, 1, 1_000_000_000);
    /// Few calls per key: a key that was checked once stays live for a minute.
    pub const LIVE: Limit = Limit::new(1, 60, 100_000);
    /// Many calls per key, out of a burst that no row uses up.
    pub const BUSY: Limit = Limit::new(1, 1, 50_000_000);
    /// One admission a day, and a burst that is spent before the timing starts.
    pub const DRAINED: Limit = Limit::new(1, 86_400, 10);
    /// A hundred admissions that are not refilled while the benchmark runs.
    #[cfg(feature = "tidegate")]
    pub const BUDGET: Limit = Limit::new(1, 86_400, 100);

    const fn new(count: u32, seconds: u64, burst: u32) -> Self {
        Self { count, period: Duration::from_secs(seconds), burst }
    }

    /// Whether the timed calls are to be denied.
    pub fn denies(self) -> bool {
        self == Self::DRAINED
    }

    /// How many calls a key gets before the timing starts.
    pub fn calls_before(self) -> u32 {
        if self.denies() { self.burst + 1 } else { 1 }
    }
}

/// A limiter under measurement, called with keys of type `Q`.
pub trait Contender<Q: ?Sized>: Send + Sync + Sized {
    /// Whether the decisions are exact, so that the harness checks them.
    const EXACT: bool = true;

    /// Builds it; `hint` is the number of keys to expect, 0 for no hint.
    fn build(limit: Limit, hint: usize) -> Result<Self, String>;

    /// One decision of cost one.
    fn allow(&self, key: &Q) -> bool;
}
