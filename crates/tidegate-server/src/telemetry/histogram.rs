use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// The count between this bound and the one before; the last one has no bound.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// The values of a histogram at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The count up to each of the bounds.
    pub(crate) at_most: Vec<(Duration, u64)>,
    pub(crate) count: u64,
    pub(crate) sum: Duration,
}

impl Histogram {
    /// Adds this many values of the same duration.
    pub(crate) fn add(&self, took: Duration, count: u64) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let index = BOUNDS_US.partition_point(|bound_us| bound_us * 1_000 < took_ns);
        self.counts[index].fetch_add(count, Ordering::Relaxed);
        self.sum_ns.fetch_add(took_ns.saturating_mul(count), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Reading {
        let mut count = 0;
        let mut add = |it: &AtomicU64| {
            count += it.load(Ordering::Relaxed);
            count
        };
        let (last, bounded) =
            self.counts.split_last().expect("there is one more count than bounds");
        let at_most = BOUNDS_US
            .iter()
            .zip(bounded)
            .map(|(bound_us, it)| (Duration::from_micros(*bound_us), add(it)))
            .collect();
        let count = add(last);
        Reading { at_most, count, sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)) }
    }
}

/// The bounds, in microseconds.
const BOUNDS_US: [u64; 16] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000,
    1_000_000,
];
