//! The open connections of all listeners: their permits, and which one is closed to make room.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::{Cooldown, Limiter};
use tokio::sync::Notify;

use crate::accept::PeerId;
use crate::byte_budget::{BudgetKind, ByteBudget};
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
    /// In the order of [`BudgetKind::ALL`].
    budgets: [ByteBudget; BudgetKind::ALL.len()],
    /// Held while connections are closed for a budget.
    relieving: Mutex<()>,
    /// Limits the warnings.
    warnings: Limiter<str, Cooldown>,
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
    /// The bytes it holds of each budget.
    held: [AtomicUsize; BudgetKind::ALL.len()],
}

/// Which connections may be closed for a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victims {
    /// Those without a request in work.
    WithoutRequest,
    All,
}

impl ConnectionState {
    /// Closes the connection as soon as its task is polled.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.close.notify_waiters();
    }

    /// Waits until the connection is to be closed.
    pub(crate) async fn closing(&self) {
        // Before the flag is read, so that no signal is lost.
        let signal = self.close.notified();
        if !self.is_closing() {
            signal.await;
        }
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    fn held(&self, kind: BudgetKind) -> usize {
        self.held[kind as usize].load(Ordering::Relaxed)
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

/// The bytes that a connection holds.
impl Permit {
    /// Sets how many bytes the connection holds.
    pub(crate) fn hold(&self, kind: BudgetKind, bytes: usize) {
        let held = self.state.held(kind);
        if bytes > held {
            self.charge(kind, bytes - held);
        } else {
            self.release(kind, held - bytes);
        }
    }

    /// Adds bytes. Beyond the budget the connections that hold the most are closed.
    pub(crate) fn charge(&self, kind: BudgetKind, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.state.held[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        self.daemon.connections.budget(kind).add(bytes);
        if self.is_over(kind) {
            let victims = match kind {
                BudgetKind::Received => Victims::WithoutRequest,
                BudgetKind::Unsent => Victims::All,
            };
            self.relieve(kind, victims);
        }
    }

    /// Removes bytes, at most those that the connection holds.
    pub(crate) fn release(&self, kind: BudgetKind, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let held = &self.state.held[kind as usize];
        let less = |held: usize| Some(held.saturating_sub(bytes));
        let before = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let released = before.unwrap_or(0).min(bytes);
        self.daemon.connections.budget(kind).subtract(released);
    }

    /// Whether all connections together hold more than the budget.
    pub(crate) fn is_over(&self, kind: BudgetKind) -> bool {
        self.daemon.connections.budget(kind).excess() > 0
    }

    /// Closes connections until the rest is within the budget, those that hold the most first.
    pub(crate) fn relieve(&self, kind: BudgetKind, victims: Victims) {
        let connections = &self.daemon.connections;
        let closed = connections.relieve(kind, victims);
        for (listener, count) in Listener::ALL.into_iter().zip(closed) {
            self.daemon.metrics.listener(listener).closed_for_budget[kind as usize].add(count);
        }
        let closed: u64 = closed.into_iter().sum();
        if closed > 0 && connections.warnings.check(kind.name()).is_allowed() {
            let budget = kind.name();
            tracing::warn!(budget, closed, "connections closed: the byte budget is exceeded");
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for kind in BudgetKind::ALL {
            self.release(kind, usize::MAX);
        }
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
        Self {
            listeners,
            activity: AtomicU64::new(0),
            budgets: [bounds.received_bytes, bounds.unsent_bytes].map(ByteBudget::new),
            relieving: Mutex::new(()),
            warnings: Limiter::new(Cooldown::new(WARN_EVERY).expect("the cooldown is not zero")),
        }
    }

    pub(crate) fn budget(&self, kind: BudgetKind) -> &ByteBudget {
        &self.budgets[kind as usize]
    }

    /// Closes connections until the others are within the budget; returns how many of each listener
    /// it were.
    fn relieve(&self, kind: BudgetKind, victims: Victims) -> [u64; Listener::ALL.len()] {
        let mut closed = [0; Listener::ALL.len()];
        let Ok(_one_at_a_time) = self.relieving.try_lock() else { return closed };
        let mut excess = self.budget(kind).excess();
        let mut holders = Vec::new();
        for listener in Listener::ALL {
            for (_, state) in self.lock(listener).open.values() {
                let held = state.held(kind);
                if state.is_closing() {
                    excess = excess.saturating_sub(held);
                } else if held > 0 && (victims == Victims::All || !state.is_busy()) {
                    holders.push((Reverse(held), listener, Arc::clone(state)));
                }
            }
        }
        holders.sort_unstable_by_key(|(held, ..)| *held);
        for (Reverse(held), listener, state) in holders {
            if excess == 0 {
                break;
            }
            state.close();
            closed[listener as usize] += 1;
            excess = excess.saturating_sub(held);
        }
        closed
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
        let is_idle = |state: &ConnectionState| !state.is_busy() && !state.is_closing();
        let idle = self.open.iter().filter(|(_, (_, state))| is_idle(state));
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
/// How often there is a warning for a budget.
const WARN_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
