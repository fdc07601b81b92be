//! A cheap hash for numbers that no client can choose.

use std::hash::{BuildHasherDefault, Hasher};

/// Hashes numbers that no client can choose: numbers of keys, and hashes of states.
pub(in crate::store) type Mixing = BuildHasherDefault<Mixer>;

/// The [`Hasher`] of [`Mixing`].
#[derive(Debug, Default)]
pub(in crate::store) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
