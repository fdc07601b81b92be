//! The hashes of keys by their numbers, while records are read.

use std::collections::HashMap;

use crate::store::mixing::Mixing;

/// The hashes of keys, by number.
///
/// A file store counts its keys upwards, so most numbers are an index into a list. A number that is
/// large for how many keys there are is in a map: those of a store whose keys come and go, and those
/// of a snapshot in memory, which has hashes for numbers.
#[derive(Debug, Default)]
pub(super) struct NumberedHashes {
    /// By number; 0, which is no key's hash, where there is none.
    listed: Vec<u64>,
    mapped: HashMap<u64, u64, Mixing>,
    /// How many were inserted. It never decreases, so a number that was once small enough for the
    /// list stays so.
    inserted: usize,
}

impl NumberedHashes {
    pub(super) fn insert(&mut self, number: u64, hash: u64) {
        self.inserted += 1;
        let most = SLACK + SPREAD * self.inserted;
        match usize::try_from(number) {
            Ok(index) if index < most => {
                if index >= self.listed.len() {
                    self.listed.resize(index + 1, 0);
                }
                self.listed[index] = hash;
            }
            _ => {
                self.mapped.insert(number, hash);
            }
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<u64> {
        let listed = usize::try_from(number).ok().and_then(|index| self.listed.get(index));
        match listed {
            Some(hash) if *hash != 0 => Some(*hash),
            _ => self.mapped.get(&number).copied(),
        }
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<u64> {
        let found = self.get(number);
        self.mapped.remove(&number);
        let index = usize::try_from(number).ok();
        if let Some(hash) = index.and_then(|index| self.listed.get_mut(index)) {
            *hash = 0;
        }
        found
    }
}

/// The list may have so many entries for each key. Keys of a snapshot come in any order, and only an
/// eighth of them are too large for it when they come.
const SPREAD: usize = 4;

/// And so many beside.
const SLACK: usize = 1_024;

#[cfg(test)]
mod tests;
