//! Who is connected, by address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::outbox::Outbox;

/// The connected clients. Every address is in it at most once.
#[derive(Debug)]
pub(crate) struct Registry {
    clients: Mutex<HashMap<Arc<str>, Outbox>>,
    most: usize,
}

/// Why somebody cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinError {
    /// The address is connected already.
    Taken,
    /// There are as many clients as may be.
    Full,
}

impl Registry {
    /// Room for `most` clients.
    pub(crate) fn new(most: usize) -> Self {
        Self { clients: Mutex::default(), most }
    }

    /// Adds a client, unless its address is there.
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

    /// Removes a client. `clean_up` runs before anybody can join under the same address.
    pub(crate) fn leave(&self, address: &str, clean_up: impl FnOnce()) {
        let mut clients = self.lock();
        clean_up();
        clients.remove(address);
        // A map does not shrink by itself; a crowd that has left should not be paid for.
        if clients.capacity() > 4 * (clients.len() + 64) {
            clients.shrink_to_fit();
        }
    }

    /// The queue of a client.
    pub(crate) fn find(&self, address: &str) -> Option<Outbox> {
        self.lock().get(address).cloned()
    }

    /// How many are connected.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Nothing that runs under the lock can leave the map half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Outbox>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
