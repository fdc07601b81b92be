//! States on their way to their slots.

use std::collections::HashMap;
use std::sync::Arc;

use crate::store::memory::{MemoryStore, StateImage, Width};
use crate::store::mixing::Mixing;

/// The slots of a store that is put together.
#[derive(Debug)]
pub(super) struct Slots {
    memory: Arc<MemoryStore>,
    /// States that have no slot, by hash: keys may be idle by the end.
    left_over: HashMap<u64, StateImage, Mixing>,
    /// Whether there were states of either width.
    has_narrow: bool,
    has_wide: bool,
}

impl Slots {
    pub(super) fn new(memory: Arc<MemoryStore>) -> Self {
        Self { memory, left_over: HashMap::default(), has_narrow: false, has_wide: false }
    }

    /// Sets or removes the states of keys, in this order.
    pub(super) fn store_all(&mut self, states: &mut Vec<(u64, Option<StateImage>)>) {
        // Most of the time would be spent on waiting for memory otherwise.
        (0..AHEAD).for_each(|index| self.prefetch(states.get(index)));
        for index in 0..states.len() {
            self.prefetch(states.get(index + AHEAD));
            let (hash, image) = states[index];
            self.store(hash, image);
        }
        states.clear();
    }

    /// Begins to load the line of a state.
    fn prefetch(&self, state: Option<&(u64, Option<StateImage>)>) {
        if let Some((hash, Some(image))) = state {
            self.memory.prefetch(*hash, image);
        }
    }

    fn store(&mut self, hash: u64, image: Option<StateImage>) {
        if !self.left_over.is_empty() {
            self.left_over.remove(&hash);
        }
        let (is_narrow, is_wide) =
            image.map_or((false, false), |image| (image.is_narrow(), !image.is_narrow()));
        // A key has one state: an older one may be of another width.
        if self.has_narrow && !is_narrow {
            self.memory.remove_image(hash, Width::Narrow);
        }
        if self.has_wide && !is_wide {
            self.memory.remove_image(hash, Width::Wide);
        }
        self.has_narrow |= is_narrow;
        self.has_wide |= is_wide;
        if let Some(image) = image
            && self.memory.restore_beside((hash, image)).is_err()
        {
            self.left_over.insert(hash, image);
        }
    }

    /// The store, and the states that have no slot. Nothing else may refer to the store.
    pub(super) fn into_parts(self) -> (MemoryStore, HashMap<u64, StateImage, Mixing>) {
        let Some(memory) = Arc::into_inner(self.memory) else {
            unreachable!("the replay has dropped its reference");
        };
        (memory, self.left_over)
    }
}

/// How many states ahead of the one that is stored a line is loaded.
const AHEAD: usize = 16;
