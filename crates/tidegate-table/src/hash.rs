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
//!
//! A key that begins with a text of 8 to 16 bytes costs one wide product less (`hash/pair.rs`). Stored
//! hashes have to mean the same in every version, so they do not use it: see [`KeyedHash::stored`].

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;

use pair::PairSeed;

mod pair;

/// Builds the default hash of keys: seeded at random, with a bound on collisions that holds for
/// keys that an attacker chooses.
///
/// For keys that clients cannot choose, any faster [`BuildHasher`] will do.
#[derive(Clone)]
pub struct KeyedHash {
    seed: Arc<Seed>,
}

/// The random numbers of one hash.
#[repr(C)]
struct Seed {
    /// First, because most keys need nothing else.
    pair: PairSeed,
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
pub struct KeyedHasher(Digest<Arc<Seed>, true>);

impl KeyedHash {
    /// A hash with a new random seed.
    #[must_use]
    pub fn new() -> Self {
        let mut next = random_words();
        let stored = Seed::from_random(&mut next);
        Self { seed: Arc::new(Seed { pair: PairSeed::from_random(next), ..stored }) }
    }

    /// A hash with a new random seed, whose hashes are the same in every version: for keys that are
    /// stored with it.
    #[must_use]
    pub fn stored() -> Self {
        Self { seed: Arc::new(Seed::from_random(random_words())) }
    }

    /// `hash_one`, faster for keys of several parts: their short texts are hashed in line.
    #[doc(hidden)]
    #[inline(always)]
    pub fn hash_parts<T: Hash>(&self, key: &T) -> u64 {
        let mut digest = Digest::<_, true>::new(&*self.seed);
        key.hash(&mut digest);
        digest.finish()
    }

    /// The random numbers, as secret as the keys.
    #[must_use]
    pub fn to_words(&self) -> Vec<u128> {
        let Seed { pair, start, full, short, end, blocks, point } = &*self.seed;
        let tables = full.iter().chain(short).chain(end).chain(blocks);
        // The point has lost two bits in `from_random`.
        let stored = [*start].into_iter().chain(tables.copied()).chain([*point << 2]);
        stored.chain(pair.to_words()).collect()
    }

    /// How many random numbers a [stored](Self::stored) hash has.
    pub const WORDS: usize = 1 + 3 * POSITIONS + 2 + 1;

    /// The hash with these random numbers; `None` if their count is wrong.
    #[must_use]
    pub fn from_words(words: &[u128]) -> Option<Self> {
        let (stored, pair) = words.split_at_checked(Self::WORDS)?;
        let mut next = stored.iter().copied();
        let seed = Seed::from_random(|| next.next().unwrap_or(0));
        let pair = PairSeed::from_words(pair)?;
        Some(Self { seed: Arc::new(Seed { pair, ..seed }) })
    }
}

/// Random numbers from the operating system's.
fn random_words() -> impl FnMut() -> u128 {
    let (random, mut counter) = (RandomState::new(), 0_u64);
    let mut next = move || {
        counter += 1;
        u128::from(random.hash_one(counter))
    };
    move || (next() << 64) | next()
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
        let mut digest = Digest::<_, false>::new(&*self.seed);
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
///
/// With `PARTS` the code for short texts is in line wherever they are in the key, else only at its
/// beginning. The hash is the same.
struct Digest<S, const PARTS: bool> {
    seed: S,
    /// The sums, field by field: as a whole they would be in memory, and not in registers.
    sum: u128,
    words: usize,
    blocks: u128,
}

/// What a digest has added up, for functions that are not inlined.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq, Eq))]
struct Sums {
    /// The sum of the current block; without the start while there is no word in it.
    sum: u128,
    /// Words in the sum.
    words: usize,
    /// The value of the polynomial over the blocks before.
    blocks: u128,
}

impl<S: Deref<Target = Seed>, const PARTS: bool> Digest<S, PARTS> {
    #[inline(always)]
    fn new(seed: S) -> Self {
        Self::with_sums(seed, Sums { sum: 0, words: 0, blocks: 0 })
    }

    #[inline(always)]
    fn with_sums(seed: S, Sums { sum, words, blocks }: Sums) -> Self {
        Self { seed, sum, words, blocks }
    }

    #[inline(always)]
    fn sums(&self) -> Sums {
        Sums { sum: self.sum, words: self.words, blocks: self.blocks }
    }

    #[inline(always)]
    fn set(&mut self, Sums { sum, words, blocks }: Sums) {
        (self.sum, self.words, self.blocks) = (sum, words, blocks);
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
        self.add_product(multiplier.wrapping_mul(u128::from(word)));
    }

    #[inline(always)]
    fn add_product(&mut self, product: u128) {
        let sum = if self.words == 0 { self.seed.start } else { self.sum };
        self.sum = sum.wrapping_add(product);
        self.words += 1;
    }

    #[inline(always)]
    fn make_room(&mut self) {
        if self.words >= BLOCK_WORDS {
            self.set(self.seed.with_room(self.sums()));
        }
    }
}

impl Seed {
    /// A seed of [stored](KeyedHash::stored) hashes.
    fn from_random(mut next: impl FnMut() -> u128) -> Self {
        Self {
            pair: PairSeed::NONE,
            start: next(),
            full: std::array::from_fn(|_| next()),
            short: std::array::from_fn(|_| next()),
            end: std::array::from_fn(|_| next()),
            blocks: [next(), next()],
            point: next() >> 2,
        }
    }

    /// What eight bytes and one to eight more add at a position: the lengths that most keys have,
    /// without a loop.
    #[inline(always)]
    fn two_words(&self, position: usize, bytes: &[u8]) -> Option<u128> {
        let len = bytes.len();
        if len <= 8 || len > 16 {
            return None;
        }
        let (first, last) = (bytes.first_chunk()?, bytes.last_chunk()?);
        let (rest, last) = (len - 8, u64::from_le_bytes(*last) >> (128 - 8 * len));
        let table = if rest == 8 { &self.full } else { &self.short };
        let last = last | (rest as u64 % 8) << 56;
        let first = self.full[position % POSITIONS].wrapping_mul(u64::from_le_bytes(*first).into());
        Some(first.wrapping_add(table[(position + 1) % POSITIONS].wrapping_mul(last.into())))
    }

    /// The sums of a digest whose block is full, or whose pair continues.
    #[cold]
    #[inline(never)]
    fn with_room(&self, Sums { sum, words, blocks }: Sums) -> Sums {
        match words {
            OPEN_PAIR => {
                Sums { sum: sum.wrapping_add(self.pair.continued), words: PAIR_WORDS, blocks }
            }
            ENDED_PAIR => Sums { sum, words: PAIR_WORDS + 1, blocks },
            _ => Sums { sum: 0, words: 0, blocks: self.with_block(blocks, sum) },
        }
    }

    /// The polynomial with one more coefficient: the digest of a block.
    fn with_block(&self, blocks: u128, sum: u128) -> u128 {
        reduce(mul_mod(blocks, self.point) + (sum >> 64))
    }

    /// The sum of the last block, with the value of the polynomial over the others.
    #[inline(always)]
    fn finish(&self, Sums { sum, words, blocks }: Sums) -> u128 {
        let sum = if words == 0 { self.start } else { sum };
        if blocks == 0 { sum } else { self.with_blocks(sum, blocks) }
    }

    #[cold]
    #[inline(never)]
    fn with_blocks(&self, sum: u128, blocks: u128) -> u128 {
        let [low, high] = self.blocks;
        let low = low.wrapping_mul(blocks & LOW);
        sum.wrapping_add(low).wrapping_add(high.wrapping_mul(blocks >> 64))
    }
}

impl<S: Deref<Target = Seed>, const PARTS: bool> Hasher for Digest<S, PARTS> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        let words = self.words;
        if words == 0 {
            if let Some(sum) = self.seed.pair.sum(bytes) {
                (self.sum, self.words) = (sum, OPEN_PAIR);
                return;
            }
        } else if PARTS
            && words < BLOCK_WORDS - 1
            && let Some(added) = self.seed.two_words(words, bytes)
        {
            (self.sum, self.words) = (self.sum.wrapping_add(added), words + 2);
            return;
        }
        self.set(write_any(&self.seed, self.sums(), bytes));
    }

    #[inline(always)]
    fn write_u8(&mut self, value: u8) {
        if value != 0xff {
            self.short(u64::from(value), 1);
        } else if self.words == OPEN_PAIR {
            // The usual end of a pair leaves no trace; everything else does.
            self.words = ENDED_PAIR;
        } else if PARTS {
            self.make_room();
            self.add_product(self.seed.end[self.words % POSITIONS]);
        } else {
            self.set(end_any(&self.seed, self.sums()));
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
        let sum = match self.words {
            // A pair and its end: there are no blocks.
            ENDED_PAIR => self.sum,
            _ => self.seed.finish(self.sums()),
        };
        #[allow(clippy::cast_possible_truncation, reason = "the upper half of 128 bits is 64")]
        let digest = (sum >> 64) as u64;
        digest
    }
}

/// Adds bytes of any length, out of line.
#[cold]
#[inline(never)]
fn write_any(seed: &Seed, sums: Sums, bytes: &[u8]) -> Sums {
    let mut digest = Digest::<_, true>::with_sums(seed, sums);
    let (full, rest) = bytes.as_chunks::<8>();
    for word in full {
        digest.full(u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        digest.short(load_short(rest), rest.len());
    }
    digest.sums()
}

/// Adds the end of a text, out of line.
#[cold]
#[inline(never)]
fn end_any(seed: &Seed, sums: Sums) -> Sums {
    let mut digest = Digest::<_, true>::with_sums(seed, sums);
    digest.write_u8(0xff);
    digest.sums()
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

/// The words of a digest that has a pair and nothing else: more than a block has.
const OPEN_PAIR: usize = POSITIONS;
/// The words of a digest that has a pair and its end.
const ENDED_PAIR: usize = POSITIONS + 1;
/// The positions that a pair takes.
const PAIR_WORDS: usize = 2;
const BLOCK_WORDS: usize = 31;
/// One more than are used, so that a mask keeps an index within bounds.
const POSITIONS: usize = BLOCK_WORDS + 1;
const PRIME: u128 = (1 << 127) - 1;
const LOW: u128 = u64::MAX as u128;

#[cfg(test)]
mod tests;
