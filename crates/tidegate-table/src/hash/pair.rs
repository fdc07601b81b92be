//! Texts of 8 to 16 bytes at the beginning of a key: one wide product instead of two.
//!
//! The first eight bytes `w0` and the last eight `w1`, which overlap, and the length determine such a
//! text. With random numbers `a0`, `a1` of 128 bits and `start[len]` it adds
//!
//! ```text
//! (a0 + w1) · (a1 + w0) + start[len]     modulo 2^128
//! ```
//!
//! to the sum whose upper half is the digest. **The bound of 2^-64 stays.** Write `D` for the
//! difference of the sums of two keys.
//!
//! *One lemma.* Let `b` be uniform modulo 2^128 and independent of `D`. The upper halves of `b + x` and
//! `b + x + D` agree with probability `1 − |D| / 2^64` if `|D| < 2^64`, and never otherwise. If `D` is
//! uniform over `e + 2^k · Z` for some `k ≤ 64`, the sum of these over all `D` is 2^(64−k), because
//! a triangle of width 2^65 sampled in steps that divide 2^64 has the mean of the whole one. There are
//! 2^(128−k) such `D`, so the probability is 2^-64. And `a · d` for a uniform `a` and
//! `0 < |d| < 2^64` is of that form, as `d` has fewer than 64 trailing zeros.
//!
//! - *The same length, other bytes* `v0`, `v1`: the two products differ by `a0 · (w0 − v0) + a1 · (w1 −
//!   v1) + w0 · w1 − v0 · v1`. One of the differences is not zero, so this is the lemma with `start[len]`
//!   as `b`.
//! - *Another length, or no pair at all:* the upper half of `start[len]` is a random number that no
//!   other length and no other kind of key uses, so the difference of the digests is uniform.
//! - *The same pair, and something else after it:* what follows is multiplied by the numbers of its
//!   position, as in every key, and the lemma holds with `start[len]` as `b`. The end of a text, 0xff,
//!   leaves no trace here, but anything else adds a random number, so the two differ by a uniform one.
//!
//! The lower half of `start` may be common to all lengths: within one length it is uniform, and across
//! lengths the upper half is enough.

#![allow(unsafe_code, reason = "one bound that the compiler cannot see")]

/// The random numbers for pairs, in two neighbouring cache lines.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(128))]
pub(super) struct PairSeed {
    /// How many lengths, from eight bytes on, are pairs: all or none.
    lengths: usize,
    /// The lower half of every start.
    low: u64,
    multipliers: [u128; 2],
    /// The upper halves of the starts, by the bytes beyond eight.
    high: [u64; LENGTHS],
    /// For pairs that are not followed by the end of a text.
    pub(super) continued: u128,
}

impl PairSeed {
    /// For hashes without pairs.
    pub(super) const NONE: Self =
        Self { lengths: 0, low: 0, multipliers: [0; 2], high: [0; LENGTHS], continued: 0 };

    #[allow(clippy::cast_possible_truncation, reason = "each half is one number")]
    pub(super) fn from_random(mut next: impl FnMut() -> u128) -> Self {
        let halves: [u128; LENGTHS.div_ceil(2)] = std::array::from_fn(|_| next());
        let half = |index: usize| (halves[index / 2] >> (64 * (index % 2))) as u64;
        Self {
            lengths: LENGTHS,
            low: half(LENGTHS),
            high: std::array::from_fn(half),
            multipliers: [next(), next()],
            continued: next(),
        }
    }

    /// The random numbers; none without pairs.
    pub(super) fn to_words(self) -> Vec<u128> {
        if self == Self::NONE {
            return Vec::new();
        }
        let halves: Vec<u64> = self.high.into_iter().chain([self.low]).collect();
        let whole = |pair: &[u64]| u128::from(pair[0]) | (u128::from(pair[1]) << 64);
        let [first, second] = self.multipliers;
        halves.chunks_exact(2).map(whole).chain([first, second, self.continued]).collect()
    }

    /// The seed with these random numbers; `None` if their count is wrong.
    pub(super) fn from_words(words: &[u128]) -> Option<Self> {
        if words.is_empty() {
            return Some(Self::NONE);
        }
        let mut next = words.iter().copied();
        (words.len() == WORDS).then(|| Self::from_random(|| next.next().unwrap_or(0)))
    }

    /// The sum of a text, if it is a pair.
    #[inline(always)]
    pub(super) fn sum(&self, bytes: &[u8]) -> Option<u128> {
        let beyond = bytes.len().wrapping_sub(8);
        if beyond >= self.lengths {
            return None;
        }
        // SAFETY: it is below `lengths`, and both constructors set that to 0 or to this.
        unsafe { std::hint::assert_unchecked(beyond < LENGTHS) };
        let (first, last) = (bytes.first_chunk()?, bytes.last_chunk()?);
        let [first, last] = [first, last].map(|word| u128::from(u64::from_le_bytes(*word)));
        let start = u128::from(self.low) | (u128::from(*self.high.get(beyond)?) << 64);
        let product = (self.multipliers[0].wrapping_add(last))
            .wrapping_mul(self.multipliers[1].wrapping_add(first));
        Some(product.wrapping_add(start))
    }
}

/// 8 to 16 bytes.
const LENGTHS: usize = 9;

/// Two starts in each of the first.
const WORDS: usize = LENGTHS.div_ceil(2) + 3;

const _: () = assert!(LENGTHS % 2 == 1, "the lower half fills the last word");
