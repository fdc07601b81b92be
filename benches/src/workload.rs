//! The keys and the order of their calls, made before the timing starts.
//!
//! Keys are in memory in the order of the calls, so that fetching one is a linear read for every
//! contender and only the limiter's own cache misses are left to measure.

use std::fmt::Write;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

/// The width of a string key, `user:` and seven digits.
pub const KEY_WIDTH: usize = 12;

/// A small generator of pseudo-random numbers; good enough to spread keys, and repeatable.
pub struct Random(u64);

impl Random {
    /// A generator that always starts the same.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        let wide = (self.next_u64() >> 32) * u64::from(bound);
        (wide >> 32) as u32
    }

    /// A number from 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The bits of `value`, mixed.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// `calls` key numbers below `keys`, each as likely as the other.
pub fn uniform(keys: u32, calls: usize) -> Vec<u32> {
    let mut random = Random::new(u64::from(keys));
    (0..calls).map(|_| random.below(keys)).collect()
}

/// `calls` key numbers below `keys`, the n-th one with a weight of 1/n (Zipf, s = 1).
pub fn zipf(keys: u32, calls: usize) -> Vec<u32> {
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        })
        .collect();
    let mut random = Random::new(u64::from(keys) + 1);
    let draw = |_| {
        let point = random.unit() * sum;
        cumulated.partition_point(|&edge| edge <= point) as u32
    };
    (0..calls).map(draw).collect()
}

/// The keys of one run, in the order of the calls.
pub trait KeyList: Sync + Sized {
    /// The type that a contender is called with.
    type Key: ?Sized;

    /// Lays the keys with these numbers out.
    fn of(numbers: &[u32]) -> Self;

    /// How many calls there are.
    fn len(&self) -> usize;

    /// The key of call `index`.
    fn at(&self, index: usize) -> &Self::Key;

    /// Makes the keys from 0 up to `count` one after the other, without storing them.
    fn visit(count: u32, each: impl FnMut(&Self::Key));
}

/// Writes the string key of a number over `text`.
fn write_key(text: &mut String, number: u32) {
    text.clear();
    // Writing to a String cannot fail.
    let _ = write!(text, "user:{number:07}");
}

/// String keys as `&str`, in one buffer.
pub struct Texts(String);

impl KeyList for Texts {
    type Key = str;

    fn of(numbers: &[u32]) -> Self {
        let mut text = String::with_capacity(numbers.len() * KEY_WIDTH);
        for number in numbers {
            let _ = write!(text, "user:{number:07}");
        }
        Self(text)
    }

    fn len(&self) -> usize {
        self.0.len() / KEY_WIDTH
    }

    #[inline]
    fn at(&self, index: usize) -> &str {
        &self.0[index * KEY_WIDTH..][..KEY_WIDTH]
    }

    fn visit(count: u32, mut each: impl FnMut(&str)) {
        let mut text = String::new();
        for number in 0..count {
            write_key(&mut text, number);
            each(&text);
        }
    }
}

/// String keys as `&String`, for contenders that need one.
pub struct Strings(Vec<String>);

impl KeyList for Strings {
    type Key = String;

    fn of(numbers: &[u32]) -> Self {
        Self(numbers.iter().map(|number| format!("user:{number:07}")).collect())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn at(&self, index: usize) -> &String {
        &self.0[index]
    }

    fn visit(count: u32, mut each: impl FnMut(&String)) {
        let mut text = String::new();
        for number in 0..count {
            write_key(&mut text, number);
            each(&text);
        }
    }
}

/// Keys that are plain values.
pub struct Values<K>(Vec<K>);

/// A value made from a key's number.
pub trait Value: Copy + Sync {
    /// The key with that number.
    fn of(number: u32) -> Self;
}

impl Value for u64 {
    fn of(number: u32) -> Self {
        mixed(u64::from(number))
    }
}

impl Value for IpAddr {
    fn of(number: u32) -> Self {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
    }
}

impl<K: Value> KeyList for Values<K> {
    type Key = K;

    fn of(numbers: &[u32]) -> Self {
        Self(numbers.iter().map(|&number| K::of(number)).collect())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn at(&self, index: usize) -> &K {
        &self.0[index]
    }

    fn visit(count: u32, mut each: impl FnMut(&K)) {
        (0..count).for_each(|number| each(&K::of(number)));
    }
}

/// The first key of a list, over and over.
pub struct Hot<L> {
    list: L,
    calls: usize,
}

impl<L: KeyList> Hot<L> {
    /// `calls` calls with the same key.
    pub fn new(calls: usize) -> Self {
        Self { list: L::of(&[0]), calls }
    }
}

impl<L: KeyList> KeyList for Hot<L> {
    type Key = L::Key;

    fn of(numbers: &[u32]) -> Self {
        Self { list: L::of(&numbers[..1]), calls: numbers.len() }
    }

    fn len(&self) -> usize {
        self.calls
    }

    #[inline]
    fn at(&self, _index: usize) -> &L::Key {
        black_box(self.list.at(0))
    }

    fn visit(count: u32, each: impl FnMut(&L::Key)) {
        L::visit(count, each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_string_lists_hold_the_same_keys() {
        let numbers = [0, 7, 9_999_999, 123_456];
        let (texts, strings) = (Texts::of(&numbers), Strings::of(&numbers));
        assert_eq!(texts.len(), strings.len());
        for index in 0..numbers.len() {
            assert_eq!(texts.at(index), strings.at(index));
            assert_eq!(texts.at(index).len(), KEY_WIDTH);
        }
    }

    #[test]
    fn visited_keys_are_the_listed_ones() {
        let listed = Texts::of(&[0, 1, 2]);
        let mut index = 0;
        Texts::visit(3, |key| {
            assert_eq!(key, listed.at(index));
            index += 1;
        });
        assert_eq!(index, 3);
    }

    #[test]
    fn uniform_numbers_stay_below_the_bound_and_spread() {
        let numbers = uniform(10, 10_000);
        for key in 0..10 {
            let share = numbers.iter().filter(|&&number| number == key).count();
            assert!((800..1_200).contains(&share), "key {key}: {share}");
        }
    }

    #[test]
    fn zipf_gives_the_first_key_its_share() {
        // With s = 1 over 1000 keys the first one weighs 1 / H(1000) = 13.4 %.
        let numbers = zipf(1_000, 100_000);
        let first = numbers.iter().filter(|&&number| number == 0).count();
        assert!((12_500..14_300).contains(&first), "{first}");
        assert!(numbers.iter().all(|&number| number < 1_000));
    }
}
