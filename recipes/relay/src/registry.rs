//! The connected clients, by address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::outbox::Outbox;

/// The connected clients. Every address occurs at most once.
#[derive(Debug)]
pub(crate) struct Registry {
    clients: Mutex<HashMap<Arc<str>, Outbox>>,
    most: usize,
}

/// Why a client cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinError {
    /// The address is already connected.
    Taken,
    /// The maximum number of clients is reached.
    Full,
}

impl Registry {
    /// A registry for at most `most` clients.
    pub(crate) fn new(most: usize) -> Self {
        Self { clients: Mutex::default(), most }
    }

    /// Adds a client, unless its address is connected.
    pub(crate) fn join(&self, address: Arc<str>, outbox: Outbox) -> Result<(), JoinError> {
        let mut clients = self.lock();
        let len = clients.len();
        match clients.entry(address) {
            Entry::Occupied(_) => Err(JoinError::Taken),
            Entry::Vacant(_) if len >= self.most => Err(JoinError::Full),
            Entry::Vacant(vacant) => {
                vacant.insert(outbox);
                Ok(())
            }
        }
    }

    /// Removes a client. `clean_up` runs before the address can join again.
    pub(crate) fn leave(&self, address: &str, clean_up: impl FnOnce()) {
        let mut clients = self.lock();
        clean_up();
        clients.remove(address);
        // A map does not shrink by itself; this frees memory after a peak.
        if clients.capacity() > 4 * (clients.len() + 64) {
            clients.shrink_to_fit();
        }
    }

    /// The queue of a client.
    pub(crate) fn find(&self, address: &str) -> Option<Outbox> {
        self.lock().get(address).cloned()
    }

    /// The number of connected clients.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// No code under the lock can leave the map half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Outbox>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
