//! The open connections of a listener, in the order in which they have been idle.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{ConnectionState, Refusal};
use crate::peer::Peer;

/// The open connections of a listener.
///
/// The order is brought up to date when room is needed, not with every request: a connection that
/// has been active since then moves back, one with a request in work is taken out until the request
/// ends. Each such step is paid for by a request, so making room never scans connections twice for
/// nothing.
#[derive(Debug)]
pub(super) struct OpenConnections {
    max: u64,
    max_per_peer: u64,
    next: u64,
    open: HashMap<u64, OpenConnection>,
    /// The number of the connection, by its activity when it was put there.
    order: BTreeMap<u64, u64>,
    peers: HashMap<Peer, u64>,
    /// Entries of the order that were looked at, ever.
    #[cfg(test)]
    pub(super) examined: u64,
}

#[derive(Debug)]
struct OpenConnection {
    peer: Peer,
    state: Arc<ConnectionState>,
    ordered_at: Option<u64>,
}

impl OpenConnections {
    pub(super) fn new(max: u64, max_per_peer: u64) -> Self {
        Self {
            max,
            max_per_peer,
            next: 0,
            open: HashMap::new(),
            order: BTreeMap::new(),
            peers: HashMap::new(),
            #[cfg(test)]
            examined: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn states(&self) -> impl Iterator<Item = &Arc<ConnectionState>> {
        self.open.values().map(|connection| &connection.state)
    }

    /// Whether the peer may have one more connection. Closes an idle one if that is needed.
    ///
    /// A peer that is shared by many clients has no share of its own.
    pub(super) fn make_room(&mut self, peer: Peer, is_shared: bool) -> Result<(), Refusal> {
        let of_peer = self.peers.get(&peer).copied().unwrap_or(0);
        if of_peer >= self.max_per_peer && !is_shared {
            return Err(match peer {
                Peer::Network(_) => Refusal::AddressShare,
                Peer::User(_) => Refusal::UserShare,
            });
        }
        let max = if of_peer == 0 { self.max } else { self.max - self.max / NEW_PEERS };
        if (self.open.len() as u64) < max {
            return Ok(());
        }
        let number = self.longest_idle().ok_or(Refusal::Full)?;
        if let Some(connection) = self.open.get(&number) {
            connection.state.close();
        }
        self.remove(number);
        Ok(())
    }

    /// Takes the connection that has been idle longest out of the order.
    fn longest_idle(&mut self) -> Option<u64> {
        while let Some((at, number)) = self.order.pop_first() {
            #[cfg(test)]
            {
                self.examined += 1;
            }
            let Some(connection) = self.open.get_mut(&number) else { continue };
            connection.ordered_at = None;
            let state = &connection.state;
            if state.is_closing() {
                continue;
            }
            if state.is_busy() {
                // The end of the request puts it back. If that was before it was parked, it is put
                // back here.
                state.is_parked.store(true, Ordering::SeqCst);
                if state.is_busy() || !state.is_parked.swap(false, Ordering::SeqCst) {
                    continue;
                }
            }
            if state.active_at.load(Ordering::Relaxed) == at {
                return Some(number);
            }
            self.put_in_order(number);
        }
        None
    }

    /// Puts a connection into the order, by its last activity.
    pub(super) fn put_in_order(&mut self, number: u64) {
        let Some(connection) = self.open.get_mut(&number) else { return };
        if connection.ordered_at.is_none() {
            let active_at = connection.state.active_at.load(Ordering::Relaxed);
            connection.ordered_at = Some(active_at);
            self.order.insert(active_at, number);
        }
    }

    pub(super) fn add(&mut self, peer: Peer, state: Arc<ConnectionState>) -> u64 {
        self.next += 1;
        self.open.insert(self.next, OpenConnection { peer, state, ordered_at: None });
        self.put_in_order(self.next);
        *self.peers.entry(peer).or_insert(0) += 1;
        self.next
    }

    /// Removes a connection, if it is still there.
    pub(super) fn remove(&mut self, number: u64) {
        let Some(OpenConnection { peer, ordered_at, .. }) = self.open.remove(&number) else {
            return;
        };
        if let Some(at) = ordered_at {
            self.order.remove(&at);
        }
        if let Entry::Occupied(mut count) = self.peers.entry(peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }
}

/// One in this many permits is for peers that have no connection yet.
const NEW_PEERS: u64 = 8;
