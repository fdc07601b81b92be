//! Maps by the key of a record.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use tidegate_engine::shared::RecordKey;

pub(crate) type KeyMap<V> = HashMap<RecordKey, V, BuildHasherDefault<KeyHasher>>;
pub(crate) type KeySet = HashSet<RecordKey, BuildHasherDefault<KeyHasher>>;

/// Mixes the words of a key. They are random numbers, or hashes by a secret, so that no caller can
/// choose keys that fall together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(ODD);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.unsigned_abs() as u64);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

/// A number with bits everywhere.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
