use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use super::pair::PairSeed;
use super::{Digest, KeyedHash, PRIME, Seed, load_short, mul_mod, reduce, spread, write_any};

/// Random numbers that are the same in every run.
fn numbers() -> impl FnMut() -> u128 {
    let mut state = 1_u128;
    move || {
        state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(7);
        state ^ (state >> 61)
    }
}

/// A hash whose random numbers are the same in every run.
fn fixed() -> KeyedHash {
    let mut next = numbers();
    let stored = Seed::from_random(&mut next);
    KeyedHash { seed: Arc::new(Seed { pair: PairSeed::from_random(next), ..stored }) }
}

/// The same for hashes that are stored.
fn fixed_stored() -> KeyedHash {
    KeyedHash { seed: Arc::new(Seed::from_random(numbers())) }
}

fn after(seed: &Seed, words: usize) -> Digest<&Seed, true> {
    let mut digest = Digest::new(seed);
    (0..words as u64).for_each(|word| digest.write_u64(word));
    digest
}

#[test]
fn short_and_long_paths_agree_at_every_position() {
    let (hash, bytes) = (fixed(), Vec::from_iter(1..=40_u8));
    // A first text may be a pair.
    for position in 1..70 {
        for len in 0..=bytes.len() {
            let mut short = after(&hash.seed, position);
            short.write(&bytes[..len]);
            let long = after(&hash.seed, position);
            let long = write_any(&hash.seed, long.sums(), &bytes[..len]);
            assert_eq!(short.sums(), long, "{position} {len}");
        }
    }
}

#[test]
fn stored_hashes_are_the_same_in_every_version() {
    let hash = fixed_stored();
    assert_eq!(hash.hash_one("user:1234567"), 0xc251_087f_2481_ddfd);
    assert_eq!(hash.hash_one(""), 0x9d00_3523_dc8d_1da3);
    assert_eq!(hash.hash_one(()), 0x2360_ed05_1fc6_5da5);
    assert_eq!(hash.hash_one("abc"), 0x047e_db0b_2d30_69a8);
    assert_eq!(hash.hash_one("x".repeat(300)), 0x8c88_2008_dc6d_aaaa);
    assert_eq!(hash.hash_one((7_u64, "user:1234567")), 0xcf84_1fac_3e75_36f2);
    assert_eq!(hash.hash_one((7_u64, "0123456789abcdef", 3_u8, "")), 0x265d_0d61_2b28_393d);
    assert_eq!(KeyedHash::stored().to_words().len(), KeyedHash::WORDS);
}

#[test]
fn a_hash_is_rebuilt_from_its_words() {
    for hash in [fixed(), fixed_stored(), KeyedHash::new(), KeyedHash::stored()] {
        let words = hash.to_words();
        let again = KeyedHash::from_words(&words).unwrap();
        for key in ["", "abc", "12345678", "user:1234567", "0123456789abcdef", "0123456789abcdefg"]
        {
            assert_eq!(again.hash_one((key, 1_u8)), hash.hash_one((key, 1_u8)), "{key}");
        }
        assert!(KeyedHash::from_words(&words[1..]).is_none());
    }
}

#[test]
fn a_pair_is_its_formula() {
    // By the definition, in numbers of 256 bits that are cut into two.
    let (words, hash) = (fixed().to_words(), fixed());
    let pair = &words[KeyedHash::WORDS..];
    let half = |index: usize| (pair[index / 2] >> (64 * (index % 2))) & u128::from(u64::MAX);
    let text = b"0123456789abcdef";
    for len in 8..=16 {
        let word = |bytes: &[u8]| u128::from(u64::from_le_bytes(bytes.try_into().unwrap()));
        let (first, last) = (word(&text[..8]), word(&text[len - 8..len]));
        let product = (pair[5].wrapping_add(last)).wrapping_mul(pair[6].wrapping_add(first));
        let sum = product.wrapping_add((half(len - 8) << 64) | half(9));
        let text = std::str::from_utf8(&text[..len]).unwrap();
        assert_eq!(u128::from(hash.hash_one(text)), sum >> 64, "{len}");
    }
}

#[test]
fn what_follows_a_pair_counts() {
    let hash = fixed();
    let mut hashes = HashSet::new();
    // The same eight bytes, and then everything that a key may write next.
    let mut after = |write: &dyn Fn(&mut Digest<&Seed, false>)| {
        let mut digest = Digest::<_, false>::new(&*hash.seed);
        digest.write(b"12345678");
        write(&mut digest);
        assert!(hashes.insert(digest.finish()), "as another one");
    };
    after(&|digest| digest.write_u8(0xff));
    after(&|digest| digest.write_u64(0));
    after(&|digest| digest.write_u64(1));
    after(&|digest| digest.write_u8(0));
    after(&|digest| digest.write_u32(0));
    after(&|digest| digest.write(b"12345678"));
    after(&|digest| digest.write(b"123456789"));
    after(&|digest| {
        digest.write_u8(0xff);
        digest.write_u8(0xff);
    });
    after(&|digest| {
        digest.write_u8(0xff);
        digest.write(b"12345678");
    });
    after(&|digest| {
        digest.write_u8(0xff);
        (0..40).for_each(|_| digest.write_u64(0));
        digest.write_u64(1);
    });
}

#[test]
fn keys_of_several_parts_have_the_same_hash_in_line() {
    for hash in [fixed(), fixed_stored()] {
        for len in 0..40 {
            let text = "x".repeat(len);
            let key = (text.as_str(), 5_u64, text.as_str(), 0xff_u8, text.as_str());
            assert_eq!(hash.hash_parts(&key), hash.hash_one(key), "{len}");
            assert_eq!(hash.hash_parts(&text), hash.hash_one(&text), "{len}");
        }
    }
}

#[test]
fn different_keys_have_different_hashes() {
    let hash = fixed();
    let lengths = 0..2_000_usize;
    let distinct = |hashes: &mut dyn Iterator<Item = u64>| hashes.collect::<HashSet<_>>().len();
    assert_eq!(distinct(&mut lengths.clone().map(|len| hash.hash_one(vec![0_u8; len]))), 2_000);
    assert_eq!(distinct(&mut lengths.map(|len| hash.hash_one("\u{1}".repeat(len)))), 2_000);
    let numbers = 0..100_000_u64;
    assert_eq!(distinct(&mut numbers.clone().map(|number| hash.hash_one(number))), 100_000);
    let names = numbers.map(|number| format!("user:{number:07}"));
    assert_eq!(distinct(&mut names.map(|name| hash.hash_one(name))), 100_000);
}

#[test]
fn differently_split_writes_have_different_hashes() {
    let hash = fixed();
    // A tail looks like the full word that its bytes and its length would make.
    let tail_like = "abcd\0\0\0\u{4}";
    let pairs =
        [("abcd", "efgh\0\0\0\u{4}"), (tail_like, "efgh"), ("abcde", "fgh"), ("", "abcdefgh")];
    let hashes: HashSet<_> = pairs.iter().map(|pair| hash.hash_one(pair)).collect();
    assert_eq!(hashes.len(), pairs.len());
    assert_ne!(hash.hash_one("12345678abcd"), hash.hash_one(format!("12345678{tail_like}")));
    assert_ne!(hash.hash_one([1_u8, 2]), hash.hash_one([1_u16, 2]));
}

#[test]
fn zeros_at_the_end_count() {
    let hash = fixed();
    for len in 0..40 {
        let text = |zeros| "x".repeat(len) + &"\0".repeat(zeros);
        let hashes: HashSet<_> = (0..40).map(|zeros| hash.hash_one(text(zeros))).collect();
        assert_eq!(hashes.len(), 40, "{len} bytes and zeros");
    }
}

#[test]
fn the_hasher_of_the_trait_gives_the_same_hashes() {
    #[allow(clippy::manual_hash_one, reason = "that both agree is what is tested")]
    fn by_hasher(hash: &KeyedHash, key: impl Hash) -> u64 {
        let mut hasher = hash.build_hasher();
        key.hash(&mut hasher);
        hasher.finish()
    }
    let hash = fixed();
    for len in 0..100 {
        let text = "x".repeat(len);
        assert_eq!(by_hasher(&hash, &text), hash.hash_one(&text));
    }
    let mixed = (1_u8, 2_u16, 3_u32, 4_u64, 5_usize, 0xff_u8, 6_u128, true, [7_i8; 3]);
    assert_eq!(by_hasher(&hash, mixed), hash.hash_one(mixed));
}

#[test]
fn hashes_with_different_seeds_are_unrelated() {
    let (one, other) = (KeyedHash::new(), KeyedHash::new());
    let agree = (0..1_000_u32).filter(|key| one.hash_one(key) == other.hash_one(key)).count();
    assert_eq!(agree, 0);
    assert!(!format!("{one:?}").contains(char::is_numeric), "a seed is not for logs");
}

#[test]
fn every_part_of_a_spread_hash_spreads_keys_evenly() {
    // 64 counters by any 6 bits: 10 000 keys each, give or take five standard deviations.
    let hash = fixed();
    for shift in [0, 6, 20, 32, 45, 58] {
        let mut counts = [0_i64; 64];
        for number in 0..640_000_u32 {
            let key = format!("user:{number:07}");
            counts
                [usize::try_from((spread(hash.hash_one(key.as_str())) >> shift) & 63).unwrap()] +=
                1;
        }
        assert!(counts.iter().all(|count| (count - 10_000).abs() < 500), "{shift}: {counts:?}");
    }
}

#[test]
fn short_loads_take_every_byte_once() {
    let bytes = [1, 2, 3, 4, 5, 6, 7];
    for len in 1..=7 {
        let mut padded = [0; 8];
        padded[..len].copy_from_slice(&bytes[..len]);
        assert_eq!(load_short(&bytes[..len]), u64::from_le_bytes(padded), "{len}");
    }
}

#[test]
fn multiplication_modulo_the_prime_is_repeated_addition() {
    let naive = |mut a: u128, mut b: u128| {
        let mut sum = 0;
        while b > 0 {
            if b & 1 == 1 {
                sum = reduce(sum + a);
            }
            a = reduce(a + a);
            b >>= 1;
        }
        sum
    };
    let edges =
        [0, 1, 2, u128::from(u64::MAX), 1 << 64, (1 << 126) - 1, PRIME - 1, 0x1234_5678 << 90];
    for a in edges {
        for b in edges.map(|edge| edge & ((1 << 126) - 1)) {
            assert_eq!(mul_mod(a, b), naive(a, b), "{a} · {b}");
        }
    }
}
