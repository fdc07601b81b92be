//! Requests over time, in as many buckets as a chart has room for.

/// What happened within one span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests that a rule in shadow mode would deny.
    pub shadow_denied: u64,
}

impl Bucket {
    const fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.shadow_denied += other.shadow_denied;
    }
}

/// Buckets of equal width, from the first request to the last. They get wider when there are too many.
#[derive(Clone, Debug)]
pub struct Series {
    most: usize,
    width_s: u64,
    /// The number of the first bucket since 1970.
    first: u64,
    buckets: Vec<Bucket>,
}

impl Series {
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, width_s: 1, first: 0, buckets: Vec::new() }
    }

    /// The width of a bucket in seconds.
    #[must_use]
    pub const fn width_s(&self) -> u64 {
        self.width_s
    }

    /// When the first bucket begins, in seconds since 1970.
    #[must_use]
    pub const fn start_s(&self) -> u64 {
        self.first * self.width_s
    }

    /// All buckets, also those without requests.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Adds what happened at a time. Times do not go back.
    pub(crate) fn add(&mut self, second: u64, what: Bucket) {
        if self.buckets.is_empty() {
            self.first = second / self.width_s;
        }
        loop {
            let index = (second / self.width_s).saturating_sub(self.first);
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            if index < self.most {
                if index >= self.buckets.len() {
                    self.buckets.resize(index + 1, Bucket::default());
                }
                self.buckets[index].add(what);
                return;
            }
            self.widen();
        }
    }

    fn widen(&mut self) {
        let wider_s = wider(self.width_s);
        let first = self.first * self.width_s / wider_s;
        let mut buckets: Vec<Bucket> = Vec::with_capacity(self.buckets.len());
        for (number, bucket) in (self.first..).zip(&self.buckets) {
            let index = usize::try_from(number * self.width_s / wider_s - first).unwrap_or(0);
            if index >= buckets.len() {
                buckets.resize(index + 1, Bucket::default());
            }
            buckets[index].add(*bucket);
        }
        (self.width_s, self.first, self.buckets) = (wider_s, first, buckets);
    }
}

/// The next width that people like to read; each divides the next.
fn wider(width_s: u64) -> u64 {
    let next = WIDTHS_S.iter().copied().find(|it| *it > width_s);
    next.unwrap_or_else(|| width_s.saturating_mul(2))
}

const WIDTHS_S: [u64; 14] =
    [1, 2, 10, 30, 60, 120, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800];

#[cfg(test)]
mod tests {
    use super::{Bucket, Series, WIDTHS_S};

    #[test]
    fn every_width_divides_the_next() {
        assert!(WIDTHS_S.windows(2).all(|pair| pair[1] % pair[0] == 0));
    }

    #[test]
    fn wider_buckets_have_the_same_sums() {
        let mut series = Series::new(8);
        let one = Bucket { allowed: 1, denied: 2, shadow_denied: 3 };
        for second in (1_000_000_007..1_000_050_000).step_by(13) {
            series.add(second, one);
            assert!(series.buckets().len() <= 8);
            let end = series.start_s() + series.buckets().len() as u64 * series.width_s();
            assert!(series.start_s() <= 1_000_000_007 && second < end);
        }
        let count = (1_000_000_007..1_000_050_000).step_by(13).count() as u64;
        let sum = series.buckets().iter().fold(Bucket::default(), |mut sum, it| {
            sum.add(*it);
            sum
        });
        assert_eq!(sum, Bucket { allowed: count, denied: 2 * count, shadow_denied: 3 * count });
        assert_eq!(series.width_s(), 7_200);
    }

    #[test]
    fn centuries_fit() {
        let mut series = Series::new(8);
        series.add(0, Bucket::default());
        series.add(u64::MAX / 2 / 1_000_000_000, Bucket::default());
        assert!(series.buckets().len() <= 8);
    }
}
