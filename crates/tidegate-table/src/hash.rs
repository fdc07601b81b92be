//! The default hash: keyed, with a proven bound on collisions.
//!
//! A table that stores fingerprints instead of keys must not let a client find two keys with the
//! same one: that client could empty a victim's bucket from outside. So the default hash is
//! *universal*: any two different keys, chosen without knowing the seed, collide with a probability
//! (over the seed) of at most 2^-64 when they are up to 240 bytes long, and 2^-62 beyond. The bound
//! holds as long as hashes stay secret, and they do: no decision of a limiter contains one.
//!
//! How: what [`Hash`](std::hash::Hash) writes is cut into words of 64 bits; a word that is not full
//! has its length in its top byte. Every word is multiplied by a random 128-bit number for its
//! position and for being full or not, and the upper half of the sum modulo 2^128 is the digest:
//! multilinear hashing, for which 2^-64 is proven when the words differ somewhere. They do: `Hash`
//! promises that what one key writes never begins what another one writes, and only full words of
//! zeros leave no trace at the end. The byte 0xff, which ends every string, has its own random
//! numbers that need no multiplication. Longer keys are cut into blocks of 31 words; the digests of
//! all blocks but the last are the coefficients of a polynomial modulo 2^127 − 1 at a random point,
//! whose value counts as two more words of the last block.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;

/// Builds the default hash of keys: seeded at random, with a bound on collisions that holds for
/// keys that an attacker chooses.
///
/// For keys that clients cannot choose, any faster [`BuildHasher`] will do.
#[derive(Clone)]
pub struct KeyedHash {
    seed: Arc<Seed>,
}

/// The random numbers of one hash.
struct Seed {
    start: u128,
    /// For full words, by position.
    full: [u128; POSITIONS],
    /// For words that are not full, by position.
    short: [u128; POSITIONS],
    /// For the byte 0xff written alone, by position.
    end: [u128; POSITIONS],
    /// For the two halves of the polynomial's value.
    blocks: [u128; 2],
    /// Where the polynomial is evaluated; below 2^126.
    point: u128,
}

/// The [`Hasher`] of [`KeyedHash`].
pub struct KeyedHasher(Digest<Arc<Seed>>);

impl KeyedHash {
    /// A hash with a new random seed.
    #[must_use]
    pub fn new() -> Self {
        let (random, mut counter) = (RandomState::new(), 0_u64);
        let mut next = || {
            counter += 1;
            u128::from(random.hash_one(counter))
        };
        Self::from_random(move || (next() << 64) | next())
    }

    fn from_random(mut next: impl FnMut() -> u128) -> Self {
        let seed = Seed {
            start: next(),
            full: std::array::from_fn(|_| next()),
            short: std::array::from_fn(|_| next()),
            end: std::array::from_fn(|_| next()),
            blocks: [next(), next()],
            point: next() >> 2,
        };
        Self { seed: Arc::new(seed) }
    }
}

impl KeyedHash {
    /// The random numbers, as secret as the keys.
    pub fn to_words(&self) -> Vec<u128> {
        let Seed { start, full, short, end, blocks, point } = &*self.seed;
        let tables = full.iter().chain(short).chain(end).chain(blocks);
        // The point has lost two bits in `from_random`.
        [*start].iter().chain(tables).chain(&[*point << 2]).copied().collect()
    }

    /// How many random numbers it has.
    pub const WORDS: usize = 1 + 3 * POSITIONS + 2 + 1;

    /// The hash with these random numbers; `None` if their count is wrong.
    pub fn from_words(words: &[u128]) -> Option<Self> {
        let mut next = words.iter().copied();
        let is_whole = words.len() == Self::WORDS;
        is_whole.then(|| Self::from_random(|| next.next().unwrap_or(0)))
    }
}

impl Default for KeyedHash {
    fn default() -> Self {
        Self::new()
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher(Digest::new(Arc::clone(&self.seed)))
    }

    /// The hash of one value, without counting a reference to the seed.
    #[inline(always)]
    fn hash_one<T: Hash>(&self, value: T) -> u64 {
        let mut digest = Digest::new(&*self.seed);
        value.hash(&mut digest);
        digest.finish()
    }
}

/// Forwards every kind of write, so that this gives the same hash as `hash_one`.
impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn write_u8(&mut self, value: u8) {
        self.0.write_u8(value);
    }

    fn write_u16(&mut self, value: u16) {
        self.0.write_u16(value);
    }

    fn write_u32(&mut self, value: u32) {
        self.0.write_u32(value);
    }

    fn write_u64(&mut self, value: u64) {
        self.0.write_u64(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.0.write_usize(value);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedHash { seed: <secret> }")
    }
}

impl fmt::Debug for KeyedHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedHasher { seed: <secret> }")
    }
}

/// A hash in progress.
struct Digest<S> {
    seed: S,
    /// The sum of the current block.
    sum: u128,
    /// Words in the sum.
    words: usize,
    /// The value of the polynomial over the blocks before.
    blocks: u128,
}

impl<S: Deref<Target = Seed>> Digest<S> {
    #[inline(always)]
    fn new(seed: S) -> Self {
        let sum = seed.start;
        Self { seed, sum, words: 0, blocks: 0 }
    }

    #[inline(always)]
    fn full(&mut self, word: u64) {
        self.make_room();
        // The mask shows the compiler that the index is within bounds.
        self.add(self.seed.full[self.words % POSITIONS], word);
    }

    /// Adds the lowest `len` bytes of `value`, 1 to 7; the others are zero.
    #[inline(always)]
    fn short(&mut self, value: u64, len: usize) {
        self.make_room();
        self.add(self.seed.short[self.words % POSITIONS], value | ((len as u64) << 56));
    }

    #[inline(always)]
    fn add(&mut self, multiplier: u128, word: u64) {
        self.sum = self.sum.wrapping_add(multiplier.wrapping_mul(u128::from(word)));
        self.words += 1;
    }

    #[inline(always)]
    fn make_room(&mut self) {
        if self.words == BLOCK_WORDS {
            self.blocks = self.seed.with_block(self.blocks, self.sum);
            self.sum = self.seed.start;
            self.words = 0;
        }
    }
}

impl Seed {
    /// The polynomial with one more coefficient: the digest of a block.
    #[cold]
    #[inline(never)]
    fn with_block(&self, blocks: u128, sum: u128) -> u128 {
        reduce(mul_mod(blocks, self.point) + (sum >> 64))
    }

    #[cold]
    #[inline(never)]
    fn with_blocks(&self, sum: u128, blocks: u128) -> u128 {
        let [low, high] = self.blocks;
        let low = low.wrapping_mul(blocks & LOW);
        sum.wrapping_add(low).wrapping_add(high.wrapping_mul(blocks >> 64))
    }
}

impl<S: Deref<Target = Seed>> Hasher for Digest<S> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        let (len, room) = (bytes.len(), self.words < BLOCK_WORDS - 1);
        match (bytes.first_chunk(), bytes.last_chunk()) {
            // The lengths that most keys have, without a loop: eight bytes and one to eight more.
            (Some(first), Some(last)) if room && len > 8 && len <= 16 => {
                self.full(u64::from_le_bytes(*first));
                let (rest, last) = (len - 8, u64::from_le_bytes(*last) >> (128 - 8 * len));
                let table = if rest == 8 { &self.seed.full } else { &self.seed.short };
                let tag = (rest as u64 % 8) << 56;
                self.add(table[self.words % POSITIONS], last | tag);
            }
            _ => {
                let started = (self.sum, self.words, self.blocks);
                (self.sum, self.words, self.blocks) = write_any(&self.seed, started, bytes);
            }
        }
    }

    #[inline(always)]
    fn write_u8(&mut self, value: u8) {
        if value == 0xff {
            self.make_room();
            self.sum = self.sum.wrapping_add(self.seed.end[self.words % POSITIONS]);
            self.words += 1;
        } else {
            self.short(u64::from(value), 1);
        }
    }

    #[inline(always)]
    fn write_u16(&mut self, value: u16) {
        self.short(u64::from(value), 2);
    }

    #[inline(always)]
    fn write_u32(&mut self, value: u32) {
        self.short(u64::from(value), 4);
    }

    #[inline(always)]
    fn write_u64(&mut self, value: u64) {
        self.full(value);
    }

    #[inline(always)]
    fn write_usize(&mut self, value: usize) {
        self.full(value as u64);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        let mut sum = self.sum;
        if self.blocks != 0 {
            sum = self.seed.with_blocks(sum, self.blocks);
        }
        #[allow(clippy::cast_possible_truncation, reason = "the upper half of 128 bits is 64")]
        let digest = (sum >> 64) as u64;
        digest
    }
}

/// Adds bytes of any length, out of line.
#[inline(never)]
fn write_any(
    seed: &Seed,
    (sum, words, blocks): (u128, usize, u128),
    bytes: &[u8],
) -> (u128, usize, u128) {
    let mut digest = Digest { seed, sum, words, blocks };
    let (full, rest) = bytes.as_chunks::<8>();
    for word in full {
        digest.full(u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        digest.short(load_short(rest), rest.len());
    }
    (digest.sum, digest.words, digest.blocks)
}

/// One to seven bytes, lowest first.
#[inline(always)]
fn load_short(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (low, high) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        // They overlap where there are fewer than eight bytes; equal bits meet equal bits.
        return u64::from(low) | (u64::from(high) << (8 * (len - 4)));
    }
    let (first, middle, last) = (bytes[0], bytes[len / 2], bytes[len - 1]);
    u64::from(first) | (u64::from(middle) << (8 * (len / 2))) | (u64::from(last) << (8 * (len - 1)))
}

/// A bijection that makes every part of a hash depend on all of it.
///
/// The table uses any of the bits, and not every hash is good everywhere: sums of multiples,
/// like those above, are evenly spaced for evenly spaced keys.
#[inline(always)]
pub fn spread(hash: u64) -> u64 {
    // Multiplication by an odd number can be undone, so different hashes stay different.
    let folded = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    folded ^ (folded >> 32)
}

/// `a · b` modulo 2^127 − 1, for `a` below 2^127 and `b` below 2^126.
fn mul_mod(a: u128, b: u128) -> u128 {
    let (a_low, a_high) = (a & LOW, a >> 64);
    let (b_low, b_high) = (b & LOW, b >> 64);
    let middle = (a_low * b_high).wrapping_add(a_high * b_low);
    let carried = middle < a_low * b_high;
    let (low, overflow) = (a_low * b_low).overflowing_add(middle << 64);
    let high =
        a_high * b_high + (middle >> 64) + (u128::from(carried) << 64) + u128::from(overflow);
    // The product is high · 2^128 + low, and 2^127 is 1.
    reduce(reduce(low) + reduce(high << 1))
}

/// The remainder modulo 2^127 − 1.
fn reduce(value: u128) -> u128 {
    let folded = (value & PRIME) + (value >> 127);
    if folded >= PRIME { folded - PRIME } else { folded }
}

const BLOCK_WORDS: usize = 31;
/// One more than are used, so that a mask keeps an index within bounds.
const POSITIONS: usize = BLOCK_WORDS + 1;
const PRIME: u128 = (1 << 127) - 1;
const LOW: u128 = u64::MAX as u128;

#[cfg(test)]
mod tests;
