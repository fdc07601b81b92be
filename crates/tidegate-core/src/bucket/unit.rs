//! A charge of one unit to a bucket without holds, and nothing else: the same decision as
//! [`check`](crate::Algorithm::check), with nothing to report.
//!
//! A unit fits if the level is at most `capacity − unit`: if the bucket is full again at or before
//! `now + capacity − unit`. So it takes one multiplication and one comparison.

use super::Bucket;
use crate::Timestamp;

impl Bucket {
    /// The words that [`charge_unit`] needs: ticks per nanosecond and per unit, and the two halves of
    /// the highest level at which a unit fits.
    #[doc(hidden)]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "each half is kept")]
    pub const fn unit_words(&self) -> [u64; 4] {
        // A burst is at least one unit.
        let slack_ticks = self.capacity_ticks.saturating_sub(self.ticks.per_unit as u128);
        let (low, high) = (slack_ticks as u64, (slack_ticks >> 64) as u64);
        [self.ticks.per_ns, self.ticks.per_unit, low, high]
    }
}

/// When a bucket that is full again at `full_at_ticks` is so after a charge of one unit; `None` if it
/// does not fit.
///
/// `word` reads one of the words of [`Bucket::unit_words`]. Other words give any time.
#[doc(hidden)]
#[inline(always)]
#[must_use]
pub fn charge_unit(
    word: impl Fn(usize) -> u64,
    full_at_ticks: u128,
    now: Timestamp,
) -> Option<u128> {
    // 2^63 nanoseconds of 2^32 ticks, and less than 2^95: no overflow but for other words.
    let now_ticks = u128::from(now.as_nanos()).wrapping_mul(u128::from(word(0)));
    let slack_ticks = u128::from(word(2)) | (u128::from(word(3)) << 64);
    if full_at_ticks > now_ticks.wrapping_add(slack_ticks) {
        return None;
    }
    Some(full_at_ticks.max(now_ticks).wrapping_add(u128::from(word(1))))
}
