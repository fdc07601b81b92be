//! How many different hashes there were, in a few kilobytes: HyperLogLog.

#![allow(clippy::float_arithmetic, reason = "it is an estimate, and decides nothing")]

/// Counts different hashes, with a standard error of 1.6 %.
#[derive(Clone, Debug)]
pub(crate) struct DistinctEstimate {
    /// For each group of hashes the longest run of zeros, plus one.
    ranks: Box<[u8; GROUPS]>,
}

impl Default for DistinctEstimate {
    fn default() -> Self {
        Self { ranks: Box::new([0; GROUPS]) }
    }
}

impl DistinctEstimate {
    pub(crate) fn add(&mut self, hash: u64) {
        let group = usize::try_from(hash >> (64 - GROUP_BITS)).unwrap_or(0);
        let rank = (hash << GROUP_BITS | 1 << (GROUP_BITS - 1)).leading_zeros() + 1;
        let rank = u8::try_from(rank).unwrap_or(u8::MAX);
        self.ranks[group] = self.ranks[group].max(rank);
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the estimate is positive and below 2^64"
    )]
    pub(crate) fn count(&self) -> u64 {
        let groups = GROUPS as f64;
        let sum: f64 = self.ranks.iter().map(|&rank| 2_f64.powi(-i32::from(rank))).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / groups) * groups * groups / sum;
        let empty = self.ranks.iter().filter(|rank| **rank == 0).count();
        let is_small = estimate <= 2.5 * groups && empty > 0;
        let estimate = if is_small { groups * (groups / empty as f64).ln() } else { estimate };
        estimate.round() as u64
    }
}

const GROUP_BITS: u32 = 12;
const GROUPS: usize = 1 << GROUP_BITS;

#[cfg(test)]
mod tests {
    use super::DistinctEstimate;

    #[test]
    fn estimates_are_within_five_percent() {
        for count in [1_u64, 10, 1_000, 20_000, 300_000] {
            let mut estimate = DistinctEstimate::default();
            for number in 0..count * 2 {
                let mut hash = (number % count + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for _ in 0..3 {
                    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
                }
                estimate.add(hash);
            }
            let off = estimate.count().abs_diff(count);
            assert!(off * 20 <= count, "{count}: {}", estimate.count());
        }
    }
}
