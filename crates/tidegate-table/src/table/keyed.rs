//! The limits that a table can store per key, and how their states are packed into slots.

use tidegate_core::{
    Algorithm, Bucket, BucketState, Cooldown, CooldownState, Sliding, SlidingRecord, SlidingState,
    Timestamp, Window, WindowState, charge_unit,
};

use super::{Line, Narrow, NarrowLine, Tagged, WIDE_WORDS, Wide, WideLine};

/// A limit that a `Limiter` can store for each of many keys: [`Bucket`],
/// [`Window`], [`Cooldown`] and [`Sliding`].
///
/// A key takes 21 bytes in a full table and about 39 in one that grows, for all of them
/// but [`Sliding`], which takes four times as much. This trait is sealed.
pub trait KeyedLimit: Algorithm + sealed::Pack {}

impl<A: sealed::Pack> KeyedLimit for A {}

pub mod sealed {
    #![allow(missing_docs, unreachable_pub, reason = "public for a sealed trait, not for callers")]

    use tidegate_core::Timestamp;

    use super::{Algorithm, Line};

    /// How a state is packed into a slot. A table has no holds, so they are not packed.
    ///
    /// A fresh state is all zero.
    pub trait Pack: Algorithm {
        type Line: Line;

        fn pack(state: &Self::State) -> <Self::Line as Line>::Packed;

        fn unpack(packed: <Self::Line as Line>::Packed) -> Self::State;

        /// What [`charge_unit`](Self::charge_unit) needs of the limit.
        #[inline(always)]
        fn unit_words(&self) -> [u64; 4] {
            self.to_words()
        }

        /// The state after a charge of one unit; `None` if it is denied. What
        /// [`check`](Algorithm::check) does, without a decision to report.
        ///
        /// `word` reads one of the [words](Self::unit_words), where it is needed. Words of no limit
        /// give any state.
        #[inline(always)]
        fn charge_unit(
            word: impl Fn(usize) -> u64,
            packed: <Self::Line as Line>::Packed,
            now: Timestamp,
        ) -> Option<<Self::Line as Line>::Packed> {
            let mut state = Self::unpack(packed);
            let limit = Self::from_words(std::array::from_fn(word));
            let decision = limit.check(&mut state, 1, now);
            decision.is_allowed().then(|| Self::pack(&state))
        }
    }
}

use sealed::Pack;

impl Pack for Bucket {
    type Line = NarrowLine;

    #[inline(always)]
    fn pack(state: &BucketState) -> Narrow {
        pack_bucket(state)
    }

    #[inline(always)]
    fn unpack(packed: Narrow) -> BucketState {
        unpack_bucket(packed)
    }

    #[inline(always)]
    fn unit_words(&self) -> [u64; 4] {
        self.unit_words()
    }

    #[inline(always)]
    fn charge_unit(word: impl Fn(usize) -> u64, packed: Narrow, now: Timestamp) -> Option<Narrow> {
        let BucketState { full_at_ticks, .. } = unpack_bucket(packed);
        let full_at_ticks = charge_unit(word, full_at_ticks, now)?;
        Some(pack_bucket(&BucketState { full_at_ticks, held: 0 }))
    }
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "each half of the 96 bits is kept")]
pub fn pack_bucket(state: &BucketState) -> Narrow {
    Narrow { high: (state.full_at_ticks >> 64) as u32, low: state.full_at_ticks as u64 }
}

#[inline(always)]
pub fn unpack_bucket(packed: Narrow) -> BucketState {
    let full_at_ticks = (u128::from(packed.high) << 64) | u128::from(packed.low);
    BucketState { full_at_ticks, held: 0 }
}

impl Pack for Window {
    type Line = NarrowLine;

    #[inline(always)]
    fn pack(state: &WindowState) -> Narrow {
        // A window's max is below 2^32, and so is its count.
        Narrow { high: u32::try_from(state.used).unwrap_or(u32::MAX), low: state.ends_ns }
    }

    #[inline(always)]
    fn unpack(packed: Narrow) -> WindowState {
        WindowState { ends_ns: packed.low, used: u64::from(packed.high), held: 0 }
    }
}

impl Pack for Cooldown {
    type Line = NarrowLine;

    #[inline(always)]
    fn pack(state: &CooldownState) -> Narrow {
        Narrow { high: 0, low: state.since_ns_plus_1 }
    }

    #[inline(always)]
    fn unpack(packed: Narrow) -> CooldownState {
        CooldownState { since_ns_plus_1: packed.low }
    }
}

impl Pack for Sliding {
    type Line = WideLine;

    fn pack(state: &SlidingState) -> Tagged<Wide> {
        Tagged { tag: 0, packed: pack_sliding(state) }
    }

    fn unpack(tagged: Tagged<Wide>) -> SlidingState {
        unpack_sliding(tagged.packed)
    }
}

/// The first word is 0 for a log of times, else one more than the newest sub-window.
pub fn pack_sliding(state: &SlidingState) -> Wide {
    let mut words = [0; WIDE_WORDS];
    match state.record {
        SlidingRecord::Log { times_ns_plus_1 } => words[1..].copy_from_slice(&times_ns_plus_1),
        SlidingRecord::Parts { newest, counts } => {
            words[0] = newest.saturating_add(1);
            for (word, pair) in words[1..].iter_mut().zip(counts.chunks_exact(2)) {
                *word = u64::from(pair[0]) | (u64::from(pair[1]) << 32);
            }
        }
    }
    words
}

#[allow(clippy::cast_possible_truncation, reason = "each half of a word is kept")]
pub fn unpack_sliding(words: Wide) -> SlidingState {
    let record = match words[0].checked_sub(1) {
        None => {
            let times_ns_plus_1 = std::array::from_fn(|unit| words[unit + 1]);
            SlidingRecord::Log { times_ns_plus_1 }
        }
        Some(newest) => {
            let half = |part: usize| (words[part / 2 + 1] >> (32 * (part % 2))) as u32;
            SlidingRecord::Parts { newest, counts: std::array::from_fn(half) }
        }
    };
    SlidingState { record, held: 0 }
}
