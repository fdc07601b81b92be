//! A cheap hash for numbers that no client can choose.

use std::hash::{BuildHasherDefault, Hasher};

/// Hashes numbers that no client can choose: numbers of keys, keyed hashes, and random ids.
pub(crate) type Mixing = BuildHasherDefault<Mixer>;

/// The [`Hasher`] of [`Mixing`].
#[derive(Debug, Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
