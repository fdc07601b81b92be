//! Rules by prefix of a value.
//!
//! One pass over the value gives the hash of each of its prefixes: the bytes so far are the
//! coefficients of a polynomial modulo 2^61 − 1 at a random point. Two texts of up to n bytes that
//! are chosen without knowing the point have the same hash with a probability of at most n / 2^61.
//! So the hash stands for the text, as in the table of keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use super::Ids;

/// Rules by prefix of a value: one lookup for each length in use.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// Below the modulus.
    point: u64,
    by_hash: HashMap<u64, Ids, BuildHasherDefault<Spread>>,
    /// Lengths in use, the shortest first.
    lengths: Vec<usize>,
    /// A bit for each stored hash, among sixteen times as many: most lookups end here.
    filter: Vec<u64>,
}

impl Prefixes {
    pub(super) fn new() -> Self {
        let point = RandomState::new().hash_one("point") % (MODULUS - 2) + 2;
        Self { point, by_hash: HashMap::default(), lengths: Vec::new(), filter: Vec::new() }
    }

    /// The rules of one prefix, for adding.
    pub(super) fn at(&mut self, prefix: &str) -> &mut Ids {
        let hash = prefix.bytes().fold(0, |hash, byte| self.next(hash, byte));
        self.lengths.push(prefix.len());
        self.by_hash.entry(hash).or_default()
    }

    /// Must be called after the last prefix.
    pub(super) fn finish(&mut self) {
        self.lengths.sort_unstable();
        self.lengths.dedup();
        self.filter = vec![0; (self.by_hash.len() / 4).next_power_of_two()];
        for hash in self.by_hash.keys() {
            let (word, bit) = filter_bit(*hash, self.filter.len());
            self.filter[word] |= bit;
        }
    }

    fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = filter_bit(hash, self.filter.len());
        self.filter[word] & bit != 0
    }

    /// The rules of all prefixes that the value begins with.
    pub(super) fn look_up(&self, value: &str, mut met: impl FnMut(&[u32])) {
        let (bytes, mut hash, mut read) = (value.as_bytes(), 0, 0);
        for length in &self.lengths {
            let Some(more) = bytes.get(read..*length) else { return };
            hash = more.iter().fold(hash, |hash, byte| self.next(hash, *byte));
            read = *length;
            if self.may_have(hash)
                && let Some(ids) = self.by_hash.get(&hash)
            {
                met(ids);
            }
        }
    }

    /// The hash with one more byte.
    #[inline]
    fn next(&self, hash: u64, byte: u8) -> u64 {
        // Below 2^122 + 2^8.
        let value = u128::from(hash) * u128::from(self.point) + u128::from(byte) + 1;
        // 2^61 is 1: the upper bits count like the lower ones. Their sum is below 2^62.
        let (low, high) = (value & u128::from(MODULUS), value >> 61);
        let sum = u64::try_from(low + high).unwrap_or(u64::MAX);
        if sum >= MODULUS { sum - MODULUS } else { sum }
    }
}

/// The position of a hash's bit, in a filter whose number of words is a power of two.
#[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
const fn filter_bit(hash: u64, words: usize) -> (usize, u64) {
    ((hash >> 6) as usize & (words - 1), 1 << (hash & 63))
}

/// Spreads an already good hash over all bits.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole hashes are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

const MODULUS: u64 = (1 << 61) - 1;
