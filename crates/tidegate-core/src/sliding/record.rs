use super::Sliding;
use crate::Timestamp;

/// The charges of a sliding window: single units while they are few, then counts by sub-window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlidingRecord {
    /// Each unit with its time.
    Log {
        /// One more than the time of each unit in nanoseconds, newest first; 0 where there is none.
        times_ns_plus_1: [u64; Sliding::LOG_UNITS],
    },
    /// Units counted by sub-window.
    Parts {
        /// The sub-window of the first count.
        newest: u64,
        /// Units by sub-window, newest first.
        counts: [u32; COUNTS],
    },
}

/// The current sub-window and as many earlier ones as there can be.
const COUNTS: usize = Sliding::MAX_PARTS as usize + 1;

impl SlidingRecord {
    pub(super) const EMPTY: Self = Self::Log { times_ns_plus_1: [0; Sliding::LOG_UNITS] };

    /// The record without what has left the window by `now`.
    pub(super) fn current(&self, limit: &Sliding, now: Timestamp) -> Self {
        match *self {
            Self::Log { mut times_ns_plus_1 } => {
                for time in &mut times_ns_plus_1 {
                    // At most 2^64 − 2: no overflow.
                    if *time > 0 && (*time - 1).saturating_add(limit.per_ns) <= now.as_nanos() {
                        *time = 0;
                    }
                }
                Self::Log { times_ns_plus_1 }
            }
            Self::Parts { newest, counts } => {
                let part = limit.part_at(now.as_nanos()).max(newest);
                let counts = shifted(&counts, part - newest, limit.parts);
                if counts == [0; COUNTS] {
                    Self::EMPTY
                } else {
                    Self::Parts { newest: part, counts }
                }
            }
        }
    }

    /// Units in the record.
    pub(super) fn units(&self) -> u64 {
        match self {
            Self::Log { times_ns_plus_1 } => {
                times_ns_plus_1.iter().filter(|&&time| time > 0).count() as u64
            }
            Self::Parts { counts, .. } => counts.iter().map(|&count| u64::from(count)).sum(),
        }
    }

    /// When the record falls to `units` or fewer, if nothing is added. It holds more now.
    pub(super) fn falls_to_ns(&self, limit: &Sliding, units: u64) -> u64 {
        match self {
            Self::Log { times_ns_plus_1 } => {
                let index = usize::try_from(units).unwrap_or(usize::MAX);
                times_ns_plus_1
                    .get(index)
                    .map_or(0, |time| time.saturating_sub(1).saturating_add(limit.per_ns))
            }
            Self::Parts { newest, counts } => {
                // The oldest part that has to leave is the one whose count passes `units`.
                let leaves_in = newest.saturating_add(limit.parts + 1);
                let mut sum = 0;
                for (age, count) in (0..).zip(counts) {
                    sum += u64::from(*count);
                    if sum > units {
                        return limit.part_start_ns(leaves_in.saturating_sub(age));
                    }
                }
                0
            }
        }
    }

    /// Adds `units` charged at `now` to a record that is current.
    pub(super) fn add(&mut self, limit: &Sliding, units: u64, now: Timestamp) {
        let fits = self.units() + units <= Sliding::LOG_UNITS as u64;
        if let (Self::Log { times_ns_plus_1: times }, true) = (&mut *self, fits) {
            let added = usize::try_from(units).unwrap_or(0);
            let time = times[0].max(now.as_nanos() + 1);
            times.rotate_right(added);
            times[..added].fill(time);
            return;
        }
        if units == 0 {
            return;
        }
        let part = limit.part_at(now.as_nanos());
        let (newest, counts) = self.to_parts(limit);
        let newest_after = newest.max(part);
        let mut counts = shifted(&counts, newest_after - newest, limit.parts);
        counts[0] = counts[0].saturating_add(u32::try_from(units).unwrap_or(u32::MAX));
        *self = Self::Parts { newest: newest_after, counts };
    }

    /// Removes the oldest `units`. The record has at least as many.
    pub(super) fn remove_oldest(&mut self, mut units: u64) {
        match self {
            Self::Log { times_ns_plus_1 } => {
                for time in times_ns_plus_1.iter_mut().rev().filter(|time| **time > 0) {
                    if units == 0 {
                        return;
                    }
                    *time = 0;
                    units -= 1;
                }
            }
            Self::Parts { counts, .. } => {
                for count in counts.iter_mut().rev() {
                    let taken = u32::try_from(units).unwrap_or(u32::MAX).min(*count);
                    *count -= taken;
                    units -= u64::from(taken);
                }
            }
        }
    }

    /// The record on the grid of `new`, no part of it leaving earlier than it may.
    ///
    /// What does not fit into a shorter window stays in its oldest part: an edit back finds it.
    pub(super) fn regrid(&self, old: &Sliding, new: &Sliding, at: Timestamp) -> Self {
        let Self::Parts { newest, counts } = self else {
            return *self;
        };
        let part_after = |age: u64| {
            // No count is older than the first part of the clock.
            let part = newest.saturating_sub(age);
            let start_ns = old.part_start_ns(part);
            let last_ns = old.part_start_ns(part + 1).saturating_sub(1).max(start_ns);
            new.part_at(last_ns.min(at.as_nanos().max(start_ns)))
        };
        let counts_by_age = || (0..).zip(*counts).filter(|(_, count)| *count > 0);
        let newest_after = counts_by_age().next().map_or(0, |(age, _)| part_after(age));
        let mut regridded = [0_u32; COUNTS];
        for (age, count) in counts_by_age() {
            let age_after = (newest_after - part_after(age)).min(new.parts);
            let slot = &mut regridded[usize::try_from(age_after).unwrap_or(0)];
            *slot = slot.saturating_add(count);
        }
        Self::Parts { newest: newest_after, counts: regridded }
    }

    /// A record that dominates both: at any time at least as many units are in it.
    pub(super) fn join(&self, other: &Self, limit: &Sliding) -> Self {
        if let (Self::Log { times_ns_plus_1: a }, Self::Log { times_ns_plus_1: b }) = (self, other)
        {
            let mut times_ns_plus_1 = *a;
            for (time, other) in times_ns_plus_1.iter_mut().zip(b) {
                *time = (*time).max(*other);
            }
            return Self::Log { times_ns_plus_1 };
        }
        let ((a_newest, a), (b_newest, b)) = (self.to_parts(limit), other.to_parts(limit));
        let newest = a_newest.max(b_newest);
        let mut counts = shifted(&a, newest - a_newest, limit.parts);
        for (count, other) in counts.iter_mut().zip(shifted(&b, newest - b_newest, limit.parts)) {
            *count = (*count).max(other);
        }
        Self::Parts { newest, counts }
    }

    /// The record counted by sub-window.
    fn to_parts(self, limit: &Sliding) -> (u64, [u32; COUNTS]) {
        match self {
            Self::Parts { newest, counts } => (newest, counts),
            Self::Log { times_ns_plus_1 } => {
                let newest = limit.part_at(times_ns_plus_1[0].saturating_sub(1));
                let mut counts = [0; COUNTS];
                for time in times_ns_plus_1.into_iter().filter(|&time| time > 0) {
                    let age = newest.saturating_sub(limit.part_at(time - 1));
                    if age <= limit.parts {
                        counts[usize::try_from(age).unwrap_or(0)] += 1;
                    }
                }
                (newest, counts)
            }
        }
    }
}

/// The counts as seen `by` parts later, without those older than the window.
fn shifted(counts: &[u32; COUNTS], by: u64, parts: u64) -> [u32; COUNTS] {
    let mut after = [0; COUNTS];
    let kept = (usize::try_from(parts).unwrap_or(COUNTS) + 1).min(COUNTS);
    let by = usize::try_from(by).unwrap_or(kept).min(kept);
    after[by..kept].copy_from_slice(&counts[..kept - by]);
    after
}
