//! The open connections of all listeners: their permits, and which one is closed to make room.

use std::cmp::Reverse;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::byte_budget::{BudgetKind, ByteBudget, ByteBudgets, Victims};
use crate::peer::PeerId;
use crate::warnings::Warnings;
pub use limits::PermitLimits;
use table::OpenConnections;

mod limits;
mod table;

/// The open connections of all listeners of a process. Clones are handles of the same.
///
/// Every listener has its own [permits](Self::listener); the byte budgets hold for all of them
/// together.
#[derive(Clone, Debug)]
pub struct Connections {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    listeners: Mutex<Vec<Arc<Listener>>>,
    /// Numbers activity in the order of time.
    activity: AtomicU64,
    /// In the order of [`BudgetKind::ALL`].
    budgets: [ByteBudget; BudgetKind::ALL.len()],
    /// Held while connections are closed for a budget.
    relieving: Mutex<()>,
    warnings: [Warnings; BudgetKind::ALL.len()],
}

/// The connections of one listener.
#[derive(Debug)]
struct Listener {
    name: &'static str,
    limits: PermitLimits,
    /// In the order of [`PermitKind`].
    tables: [Mutex<OpenConnections>; 2],
    accepted: AtomicU64,
    refused: AtomicU64,
    closed: AtomicU64,
    closed_for_budget: [AtomicU64; BudgetKind::ALL.len()],
}

/// How many connections a listener has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionCounts {
    /// Connections that got a permit.
    pub accepted: u64,
    /// Connections without one.
    pub refused: u64,
    /// Connections that had a permit and have ended.
    pub closed: u64,
    /// Connections closed because a byte budget was exceeded, in the order of [`BudgetKind::ALL`].
    pub closed_for_budget: [u64; BudgetKind::ALL.len()],
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(ByteBudgets::default())
    }
}

impl Connections {
    /// No connections, with these budgets.
    #[must_use]
    pub fn new(budgets: ByteBudgets) -> Self {
        let ByteBudgets { received_bytes, unsent_bytes } = budgets;
        Self {
            shared: Arc::new(Shared {
                listeners: Mutex::default(),
                activity: AtomicU64::new(0),
                budgets: [received_bytes, unsent_bytes].map(ByteBudget::new),
                relieving: Mutex::new(()),
                warnings: Default::default(),
            }),
        }
    }

    /// The permits of one more listener. The name is for logs.
    #[must_use]
    pub fn listener(&self, name: &'static str, limits: PermitLimits) -> Permits {
        let tables = [
            OpenConnections::new(limits.max(), limits.max_per_peer()),
            OpenConnections::new(limits.reserve_max(), limits.reserve_max_per_peer()),
        ];
        let listener = Arc::new(Listener {
            name,
            limits,
            tables: tables.map(Mutex::new),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            closed_for_budget: Default::default(),
        });
        locked(&self.shared.listeners).push(Arc::clone(&listener));
        Permits { shared: Arc::clone(&self.shared), listener }
    }

    /// The bytes that all connections hold.
    #[must_use]
    pub fn bytes_held(&self, kind: BudgetKind) -> usize {
        self.shared.budget(kind).used()
    }
}

/// The permits of a listener. Clones are handles of the same.
///
/// A peer gets a part of them, and the last eighth is for peers that have no connection yet.
/// Without a free permit the connection that has been idle longest is closed. Finding it takes
/// logarithmic time.
#[derive(Clone, Debug)]
pub struct Permits {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
}

/// Why there is no permit for a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The address has as many connections as one peer may have.
    AddressShare,
    /// The user has as many connections as one peer may have.
    UserShare,
    /// All permits are taken, and no connection is idle.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddressShare => "too many connections from this address",
            Self::UserShare => "too many connections of this user",
            Self::Full => "too many connections",
        })
    }
}

tidegate::debug_as_displayed!(Refusal);

impl std::error::Error for Refusal {}

/// Which permits: the regular ones, or those for connections without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermitKind {
    Regular,
    Reserve,
}

impl Permits {
    /// The name of the listener.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.listener.name
    }

    /// A permit for the peer. Closes the connection that has been idle longest if that is needed.
    pub fn take(&self, peer: impl Into<PeerId>) -> Result<Permit, Refusal> {
        let taken = self.open(PermitKind::Regular, peer.into());
        let count = if taken.is_ok() { &self.listener.accepted } else { &self.listener.refused };
        count.fetch_add(1, Ordering::Relaxed);
        taken
    }

    /// A permit of the reserve, for a connection that was refused: enough to read its request and
    /// to respond that there are too many.
    pub fn take_reserve(&self, peer: impl Into<PeerId>) -> Result<Permit, Refusal> {
        self.open(PermitKind::Reserve, peer.into())
    }

    /// The number of connections that have a permit.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.lock(PermitKind::Regular).len()
    }

    /// How many connections there have been.
    #[must_use]
    pub fn counts(&self) -> ConnectionCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Listener { accepted, refused, closed, closed_for_budget, .. } = &*self.listener;
        ConnectionCounts {
            // Read before `accepted`, so that it is never more.
            closed: count(closed),
            accepted: count(accepted),
            refused: count(refused),
            closed_for_budget: [count(&closed_for_budget[0]), count(&closed_for_budget[1])],
        }
    }

    fn open(&self, kind: PermitKind, peer: PeerId) -> Result<Permit, Refusal> {
        let is_shared = self.listener.limits.is_shared(peer);
        let mut table = self.lock(kind);
        table.make_room(peer.into(), is_shared)?;
        let state = Arc::new(ConnectionState::default());
        self.shared.touch(&state);
        let number = table.add(peer.into(), Arc::clone(&state));
        Ok(Permit { permits: self.clone(), kind, number, state })
    }

    fn lock(&self, kind: PermitKind) -> MutexGuard<'_, OpenConnections> {
        locked(&self.listener.tables[kind as usize])
    }
}

/// What is known about an open connection.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// When it last finished a request, or began.
    active_at: AtomicU64,
    /// Requests that have arrived and have no response yet.
    busy: AtomicU32,
    /// Whether its request waits in a queue, for others.
    is_waiting: AtomicBool,
    /// Whether it was taken out of the order of idle connections because it was busy.
    is_parked: AtomicBool,
    is_closing: AtomicBool,
    close: Notify,
    /// The bytes that its protocol holds of each budget.
    held: [AtomicUsize; BudgetKind::ALL.len()],
    /// The bytes that TLS holds below the protocol.
    transport_held: [AtomicUsize; BudgetKind::ALL.len()],
}

impl ConnectionState {
    /// Closes the connection as soon as its task is polled.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.close.notify_waiters();
    }

    /// Waits until the connection is to be closed.
    pub async fn closing(&self) {
        // Before the flag is read, so that no signal is lost.
        let signal = self.close.notified();
        if !self.is_closing() {
            signal.await;
        }
    }

    /// Whether the connection is to be closed.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }

    /// Whether it has a request that is being worked on, and usually ends soon.
    fn is_working(&self) -> bool {
        self.is_busy() && !self.is_waiting.load(Ordering::SeqCst)
    }

    /// The bytes that its protocol holds.
    fn held(&self, kind: BudgetKind) -> usize {
        self.held[kind as usize].load(Ordering::Relaxed)
    }

    /// All bytes that it holds.
    fn held_in_all(&self, kind: BudgetKind) -> usize {
        self.held(kind) + self.transport_held[kind as usize].load(Ordering::Relaxed)
    }
}

/// The right to be connected. Returned when it is dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    kind: PermitKind,
    number: u64,
    state: Arc<ConnectionState>,
}

impl Permit {
    /// The state of the connection.
    #[must_use]
    pub fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Waits until the connection is to be closed, to make room for others.
    pub async fn closing(&self) {
        self.state.closing().await;
    }

    /// A request has arrived: the connection is not idle until its response is sent.
    pub fn begin_request(&self) {
        self.state.busy.fetch_add(1, Ordering::SeqCst);
    }

    /// The response is sent.
    pub fn end_request(&self) {
        self.state.busy.fetch_sub(1, Ordering::SeqCst);
        self.permits.shared.touch(&self.state);
        let is_parked = &self.state.is_parked;
        if is_parked.load(Ordering::SeqCst) && is_parked.swap(false, Ordering::SeqCst) {
            self.permits.lock(self.kind).put_in_order(self.number);
        }
    }
}

/// The bytes that a connection holds.
impl Permit {
    /// The request waits in a queue until the guard is dropped, and holds this many bytes of what was
    /// received. Its connection is not idle, but may be closed for a byte budget.
    #[must_use]
    pub fn wait(&self, bytes: usize) -> QueuedRequest<'_> {
        self.state.is_waiting.store(true, Ordering::SeqCst);
        self.hold(BudgetKind::Received, bytes);
        QueuedRequest(&self.state)
    }

    /// Sets how many bytes the connection holds.
    pub fn hold(&self, kind: BudgetKind, bytes: usize) {
        let held = self.state.held(kind);
        if bytes > held {
            self.charge(kind, bytes - held);
        } else {
            self.release(kind, held - bytes);
        }
    }

    /// Adds bytes. Beyond the budget the connections that hold the most are closed.
    pub fn charge(&self, kind: BudgetKind, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.state.held[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        self.add_to_budget(kind, bytes);
    }

    /// Sets how many bytes TLS holds below the protocol, which knows nothing of them.
    #[cfg(feature = "tls")]
    pub(crate) fn hold_for_transport(&self, kind: BudgetKind, bytes: usize) {
        let before = self.state.transport_held[kind as usize].swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.add_to_budget(kind, bytes - before);
        } else {
            self.permits.shared.budget(kind).subtract(before - bytes);
        }
    }

    fn add_to_budget(&self, kind: BudgetKind, bytes: usize) {
        self.permits.shared.budget(kind).add(bytes);
        if self.is_over(kind) {
            let victims = match kind {
                BudgetKind::Received => Victims::WithoutRequest,
                BudgetKind::Unsent => Victims::All,
            };
            self.relieve(kind, victims);
        }
    }

    /// Removes bytes, at most those that the connection holds.
    pub fn release(&self, kind: BudgetKind, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let held = &self.state.held[kind as usize];
        let less = |held: usize| Some(held.saturating_sub(bytes));
        let before = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let released = before.unwrap_or(0).min(bytes);
        self.permits.shared.budget(kind).subtract(released);
    }

    /// Whether all connections together hold more than the budget.
    #[must_use]
    pub fn is_over(&self, kind: BudgetKind) -> bool {
        self.permits.shared.budget(kind).excess() > 0
    }

    /// Closes connections until the rest is within the budget, those that hold the most first.
    pub fn relieve(&self, kind: BudgetKind, victims: Victims) {
        let shared = &self.permits.shared;
        let closed = shared.relieve(kind, victims);
        if closed > 0
            && let Some(left_out) = shared.warnings[kind as usize].next()
        {
            let budget = kind.name();
            tracing::warn!(
                budget,
                closed,
                left_out,
                "connections closed: the byte budget is exceeded"
            );
        }
    }
}

/// A request that waits in a queue, for others.
#[derive(Debug)]
pub struct QueuedRequest<'p>(&'p ConnectionState);

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.0.is_waiting.store(false, Ordering::SeqCst);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for kind in BudgetKind::ALL {
            self.release(kind, usize::MAX);
            let transport = self.state.transport_held[kind as usize].swap(0, Ordering::Relaxed);
            self.permits.shared.budget(kind).subtract(transport);
        }
        self.permits.lock(self.kind).remove(self.number);
        if self.kind == PermitKind::Regular {
            self.permits.listener.closed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn budget(&self, kind: BudgetKind) -> &ByteBudget {
        &self.budgets[kind as usize]
    }

    fn touch(&self, state: &ConnectionState) {
        let now = self.activity.fetch_add(1, Ordering::Relaxed);
        state.active_at.store(now, Ordering::Relaxed);
    }

    /// Closes connections until the others are within the budget; returns how many.
    fn relieve(&self, kind: BudgetKind, victims: Victims) -> u64 {
        let Ok(_one_at_a_time) = self.relieving.try_lock() else { return 0 };
        let mut excess = self.budget(kind).excess();
        let mut holders = Vec::new();
        let listeners = locked(&self.listeners).clone();
        for listener in &listeners {
            for table in &listener.tables {
                for state in locked(table).states() {
                    let held = state.held_in_all(kind);
                    if state.is_closing() {
                        excess = excess.saturating_sub(held);
                    } else if held > 0 && (victims == Victims::All || !state.is_working()) {
                        holders.push((Reverse(held), listener, Arc::clone(state)));
                    }
                }
            }
        }
        holders.sort_unstable_by_key(|(held, ..)| *held);
        let mut closed = 0;
        for (Reverse(held), listener, state) in holders {
            if excess == 0 {
                break;
            }
            state.close();
            listener.closed_for_budget[kind as usize].fetch_add(1, Ordering::Relaxed);
            closed += 1;
            excess = excess.saturating_sub(held);
        }
        closed
    }
}

/// No code under these locks can leave the data half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
