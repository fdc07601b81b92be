//! The open connections of all listeners: their permits, and which one is closed to make room.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::accept::PeerId;
use crate::daemon::SharedDaemon;
use crate::listener::Listener;
use crate::settings::Bounds;

/// The open connections of all listeners.
///
/// Every listener has its own number of permits. A peer gets a part of them, and the last eighth is
/// for peers that have no connection yet. Without a free permit the connection that has been idle
/// longest is closed.
#[derive(Debug)]
pub(crate) struct Connections {
    listeners: [Mutex<OpenConnections>; Listener::ALL.len()],
    /// Numbers activity in the order of time.
    activity: AtomicU64,
}

/// The open connections of a listener.
#[derive(Debug)]
struct OpenConnections {
    max: u64,
    max_per_peer: u64,
    next: u64,
    open: HashMap<u64, (Peer, Arc<ConnectionState>)>,
    peers: HashMap<Peer, u64>,
}

/// Who counts as one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// An IPv4 address, or a /64 network of IPv6, which one peer usually has whole.
    Network(IpAddr),
    /// A user of this machine.
    User(u32),
}

impl From<PeerId> for Peer {
    fn from(peer: PeerId) -> Self {
        match peer {
            PeerId::Address(address) => Self::Network(network_of(address.ip())),
            PeerId::Process(process) => Self::User(process.uid()),
        }
    }
}

fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let network = ip.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        ip => ip,
    }
}

/// What is known about an open connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// When it last finished a request, or began.
    active_at: AtomicU64,
    /// Requests that have arrived and have no response yet.
    busy: AtomicU32,
    is_closing: AtomicBool,
    close: Notify,
}

impl ConnectionState {
    /// Closes the connection as soon as its task is polled.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.close.notify_one();
    }

    /// Waits until the connection is to be closed. One task may wait.
    pub(crate) async fn closing(&self) {
        self.close.notified().await;
    }

    fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0 && !self.is_closing.load(Ordering::Relaxed)
    }
}

/// The right to be connected, counted in the metrics.
#[derive(Debug)]
pub(crate) struct Permit {
    listener: Listener,
    daemon: SharedDaemon,
    number: u64,
    state: Arc<ConnectionState>,
}

impl Permit {
    /// A permit for the peer; `None` if there is none left and no connection is idle.
    pub(crate) fn take(daemon: &SharedDaemon, listener: Listener, peer: Peer) -> Option<Self> {
        let metrics = daemon.metrics.listener(listener);
        let Some((number, state)) = daemon.connections.open(listener, peer) else {
            metrics.refused.add(1);
            return None;
        };
        metrics.accepted.add(1);
        Some(Self { listener, daemon: Arc::clone(daemon), number, state })
    }

    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// A request has arrived: the connection is not idle until its response is sent.
    pub(crate) fn begin_request(&self) {
        self.state.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// The response is sent.
    pub(crate) fn end_request(&self) {
        self.state.busy.fetch_sub(1, Ordering::Relaxed);
        self.daemon.connections.touch(&self.state);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.daemon.connections.lock(self.listener).remove(self.number);
        self.daemon.metrics.listener(self.listener).closed.add(1);
    }
}

impl Connections {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let listeners = Listener::ALL.map(|listener| {
            let (max, max_per_peer) = bounds.permits(listener);
            Mutex::new(OpenConnections {
                max,
                max_per_peer,
                next: 0,
                open: HashMap::new(),
                peers: HashMap::new(),
            })
        });
        Self { listeners, activity: AtomicU64::new(0) }
    }

    fn open(&self, listener: Listener, peer: Peer) -> Option<(u64, Arc<ConnectionState>)> {
        let mut connections = self.lock(listener);
        if !connections.make_room(peer) {
            return None;
        }
        let state = Arc::new(ConnectionState::default());
        self.touch(&state);
        Some((connections.add(peer, Arc::clone(&state)), state))
    }

    fn touch(&self, state: &ConnectionState) {
        let now = self.activity.fetch_add(1, Ordering::Relaxed);
        state.active_at.store(now, Ordering::Relaxed);
    }

    fn lock(&self, listener: Listener) -> MutexGuard<'_, OpenConnections> {
        self.listeners[listener as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Whether the peer may have one more connection. Closes an idle one if that is needed.
    fn make_room(&mut self, peer: Peer) -> bool {
        let of_peer = self.peers.get(&peer).copied().unwrap_or(0);
        if of_peer >= self.max_per_peer {
            return false;
        }
        let max = if of_peer == 0 { self.max } else { self.max - self.max / NEW_PEERS };
        if (self.open.len() as u64) < max {
            return true;
        }
        let idle = self.open.iter().filter(|(_, (_, state))| state.is_idle());
        let longest = idle.min_by_key(|(_, (_, state))| state.active_at.load(Ordering::Relaxed));
        let Some((&number, (_, state))) = longest else { return false };
        state.close();
        self.remove(number);
        true
    }

    fn add(&mut self, peer: Peer, state: Arc<ConnectionState>) -> u64 {
        self.next += 1;
        self.open.insert(self.next, (peer, state));
        *self.peers.entry(peer).or_insert(0) += 1;
        self.next
    }

    /// Removes a connection, if it is still there.
    fn remove(&mut self, number: u64) {
        let Some((peer, _)) = self.open.remove(&number) else { return };
        if let Entry::Occupied(mut count) = self.peers.entry(peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// One in this many permits is for peers that have no connection yet.
const NEW_PEERS: u64 = 8;

#[cfg(test)]
mod tests;
