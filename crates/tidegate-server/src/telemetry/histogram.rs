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

impl Reading {
    /// The values that came after an earlier reading.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for ((_, count), (_, earlier)) in self.at_most.iter_mut().zip(&before.at_most) {
            *count = count.saturating_sub(*earlier);
        }
        self.count = self.count.saturating_sub(before.count);
        self.sum = self.sum.saturating_sub(before.sum);
        self
    }

    /// The values of both.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        for ((_, count), (_, more)) in self.at_most.iter_mut().zip(&other.at_most) {
            *count = count.saturating_add(*more);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self
    }

    /// The duration that a share of the values does not exceed, in thousandths: about, as values are
    /// assumed to be spread evenly between two bounds. `None` without values.
    pub(crate) fn quantile(&self, share: u64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let rank = u128::from(self.count) * u128::from(share) / 1_000;
        let rank = u64::try_from(rank).unwrap_or(u64::MAX).max(1);
        let (mut below, mut bound_below) = (0, Duration::ZERO);
        for (bound, count) in &self.at_most {
            if *count >= rank {
                let (width, among) = (*bound - bound_below, count - below);
                let part = width.as_nanos() * u128::from(rank - below) / u128::from(among.max(1));
                let part = Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX));
                return Some(bound_below + part);
            }
            (below, bound_below) = (*count, *bound);
        }
        // Above the last bound nothing more is known.
        Some(bound_below)
    }
}

/// The bounds, in microseconds.
const BOUNDS_US: [u64; 16] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000,
    1_000_000,
];

#[cfg(test)]
mod tests {
    use super::{Duration, Histogram};

    #[test]
    fn quantiles_are_those_of_the_values_since_a_reading() {
        let histogram = Histogram::default();
        histogram.add(Duration::from_secs(1), 7);
        let before = histogram.read();
        assert_eq!(histogram.read().since(&before).quantile(500), None);
        histogram.add(Duration::from_micros(30), 98);
        histogram.add(Duration::from_micros(4_000), 2);
        let reading = histogram.read().since(&before);
        let us = |share| reading.quantile(share).map(|it| it.as_micros());
        assert_eq!((reading.count, us(500), us(980)), (100, Some(37), Some(50)));
        assert_eq!((us(990), us(1_000)), (Some(3_750), Some(5_000)));
    }
}
