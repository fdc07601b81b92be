//! A store that several engines share: it makes transactions over records, which a
//! [`RecordStore`] runs.
//!
//! The functions over records are those that the in-memory store uses
//! ([`transition`](crate::transition)); so all stores decide alike. An operation may take effect at any
//! time between its call and its result. It is planned from the rules that the engine knows; if
//! they are no longer in force then, the transaction changes nothing, and the engine plans again.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sha2::{Digest, Sha256};
use smallvec::smallvec;
use tidegate_core::Timestamp;

pub(crate) use attempts::{Attempts, ReadTimes};
pub(crate) use control::Control;
pub use records::{
    Listing, RecordKey, RecordKeyText, RecordStore, Records, Step, Transaction, Write,
};

use super::answer::{BoxFuture, Finisher, PromiseFuture, Submitted, promise};
use super::{
    Answer, Decided, DecidedElsewhere, Failure, ForgetScope, HoldId, Outage, Plan, SettleCall,
    Settled,
};
use crate::decision::Decisions;
use crate::history::History;
use crate::hold_id::Owner;
use crate::periods::Times;
use crate::plan::PlanTime;
use cell::Room;
use control::new_stamp;
use records::{Changes, DurabilityNeed, FirstReads, Flow, Kind, Purpose};
use tidegate_policy::StoreBounds;
use tidegate_policy::policy::Policy;
use tidegate_table::clock::Clock;
use tidegate_table::hash::KeyedHash;
use tidegate_table::table::WhenFull;
use view::{RecordView, Seen, Stop, control_of, flow};

mod attempts;
mod cell;
mod control;
mod decide;
mod forget_all;
mod hold;
mod queue;
mod records;
mod settle;
mod shorten;
mod state;
mod tickets;
mod view;

/// States in records that several engines share, for example those of many processes.
///
/// Each engine plans by the policy in force, which is one record. The first engine puts its policy
/// there; one that starts later with another policy puts that into force, and all take it over.
pub struct SharedStore {
    records: Arc<dyn RecordStore>,
    hash: KeyedHash,
    /// What the tickets of this engine are known by.
    node: u64,
    seen: Seen,
    finisher: Finisher,
    bounds: Option<StoreBounds>,
    /// When it was last tried to let new keys share cells, in nanoseconds; 0: never.
    shared_ns: AtomicU64,
    /// Results under idempotency keys that were not stored, because the store was full.
    forgotten: Arc<AtomicU64>,
    /// The clocks of its engine.
    clock: OnceLock<ReadTimes>,
}

impl SharedStore {
    /// A store over these records.
    ///
    /// Keys are hashed with the secret: it has to be the same in all processes that share the
    /// records, and unknown to those who choose keys.
    #[must_use]
    pub fn new(records: Arc<impl RecordStore>, secret: &[u8]) -> Self {
        Self {
            records,
            hash: hash_of(secret),
            node: new_stamp(),
            seen: Seen::new(Control::none(Arc::new(Policy::none()))),
            finisher: Finisher::default(),
            bounds: None,
            shared_ns: AtomicU64::new(0),
            forgotten: Arc::default(),
            clock: OnceLock::new(),
        }
    }

    /// How many records the store has at most, of all engines together: `max_keys`. Beyond it no
    /// record is created: new keys share states or are denied, as `when_full` says;
    /// reservations and leases are refused; results under idempotency keys are not remembered. All
    /// engines need the same bound. Without one there is none.
    ///
    /// How many records there are is known to the [`RecordStore`], not at once: there may be more for
    /// that long.
    #[must_use]
    pub fn bounds(mut self, bounds: StoreBounds) -> Self {
        self.bounds = Some(bounds);
        self
    }

    /// The clock that all engines on the records have in common.
    pub(crate) fn clock_of_records(&self) -> Arc<dyn Clock + Send + Sync> {
        self.records.clock()
    }

    /// Takes the clocks of its engine: what is decided again, is decided for the time that they show then.
    pub(crate) fn follow_clock(&self, read: ReadTimes) {
        // A store has one engine.
        let _ = self.clock.set(read);
    }

    /// The times of the attempts at an operation of this time.
    pub(crate) fn attempts(&self, times: Times, time: PlanTime) -> Attempts {
        let is_read = matches!(time, PlanTime::Clock { .. });
        Attempts::new(times, self.clock.get().filter(|_| is_read).cloned())
    }

    /// Whether there is room for new records. Once there is none, new keys share cells.
    fn room(&self, now: Timestamp) -> Room {
        let Some(StoreBounds { max_keys, when_full, .. }) = self.bounds else {
            return Room::UNBOUNDED;
        };
        let is_full = self.records.is_full(max_keys);
        if is_full && when_full == WhenFull::Share && self.control().cells.is_none() {
            self.begin_to_share((max_keys / CELLS_OF_KEYS) as u64, now);
        }
        Room { is_full, when_full, max_records: max_keys }
    }

    /// Lets new keys share cells, from when on all engines know of it.
    fn begin_to_share(&self, cells: u64, now: Timestamp) {
        let (now_ns, last_ns) = (now.as_nanos().max(1), self.shared_ns.load(Ordering::Relaxed));
        let is_time = last_ns == 0 || now_ns >= last_ns.saturating_add(SHARE_AGAIN_NS);
        let swapped = |from| {
            let order = Ordering::Relaxed;
            self.shared_ns.compare_exchange(from, now_ns, order, order).is_ok()
        };
        if is_time && swapped(last_ns) {
            // It is submitted, and its result is in the record.
            drop(self.edit::<_, Outage>(move |control| Ok((control.with_cells(cells), ()))));
        }
    }

    /// What the tickets of this engine are known by.
    pub(crate) const fn node(&self) -> u64 {
        self.node
    }

    /// A new id for a hold.
    pub(crate) fn new_hold_id(owner: Option<Owner>) -> HoldId {
        HoldId::stored([new_stamp(), new_stamp()], owner)
    }

    /// Takes the ticket of one that waited for a slot of this state out of the queue. No caller
    /// waits for that: if it fails, the ticket lapses.
    pub(crate) fn leave_queue(&self, queue: u64, arrival: u64, times: Times) {
        let (seen, node) = (self.seen.clone(), self.node);
        let reads = smallvec![Control::key(), RecordKey(Kind::State(queue))];
        drop(self.run(reads, move |records| {
            flow(control_of::<Outage>(records, &seen).and_then(|control| match control {
                Some(control) => {
                    let room = Room::UNBOUNDED;
                    let view = RecordView { records, control, times, room };
                    queue::leave(&view, queue, node, arrival)
                }
                // The records were lost since.
                None => Ok((Changes::NONE, ())),
            }))
        }));
    }

    /// Completes operations that no caller waits for any more.
    pub(crate) fn finisher(&self) -> &Finisher {
        &self.finisher
    }

    /// What was in force when a record of it was last read.
    pub(crate) fn control(&self) -> Arc<Control> {
        self.seen.get()
    }

    /// Submits a transaction of a function.
    fn run<T: Send + 'static>(
        &self,
        reads: FirstReads,
        function: impl FnMut(&Records) -> Flow<T> + Send + 'static,
    ) -> PromiseFuture<Result<T, Outage>> {
        self.run_for(Purpose::Other, reads, function)
    }

    fn run_for<T: Send + 'static>(
        &self,
        purpose: Purpose,
        reads: FirstReads,
        function: impl FnMut(&Records) -> Flow<T> + Send + 'static,
    ) -> PromiseFuture<Result<T, Outage>> {
        let (promise, future) = promise();
        self.records.run(Transaction::new(reads, function, promise).with_purpose(purpose));
        future
    }

    /// Submits a transaction whose result is completed also if it is not waited for.
    fn submit<T: Send + 'static, E: From<Outage> + Send + 'static>(
        &self,
        reads: FirstReads,
        function: impl FnMut(&Records) -> Flow<Result<T, E>> + Send + 'static,
    ) -> Answer<Result<T, E>> {
        let future = self.run(reads, function);
        Answer::Pending(Box::pin(async move { future.await? }))
    }

    /// Makes an edit of what is in force: a function of it, which may be called several times.
    ///
    /// It returns what is in force afterwards, or `None` if that is what it got. The result has what
    /// is in force then.
    pub(crate) fn edit<T: Send + 'static, E: From<Outage> + Send + 'static>(
        &self,
        edit_control: impl FnMut(&Arc<Control>) -> Result<(Option<Control>, T), E> + Send + 'static,
    ) -> BoxFuture<Result<(Arc<Control>, T), E>> {
        edit(&*self.records, &self.seen, edit_control)
    }

    /// A decision that is known, if the rules with this version are in force.
    pub(crate) fn if_in_force(
        &self,
        version: u64,
        is_allowed: bool,
        times: Times,
    ) -> Answer<Result<Decided, Failure>> {
        let seen = self.seen.clone();
        let reads = smallvec![Control::key()];
        let future = self.run_for(Purpose::Charge, reads, move |records| {
            let found = decide::control_in_force(records, version, &seen);
            let elsewhere = DecidedElsewhere::new(times, Decisions::new());
            flow(found.map(|_| (Changes::NONE, Decided::elsewhere(is_allowed, elsewhere))))
        });
        Answer::Pending(Box::pin(async move { future.await? }))
    }

    /// Closes a round of a domain.
    pub(crate) fn close_round_of(
        &self,
        domain: Box<str>,
        mut attempts: Attempts,
    ) -> BoxFuture<Result<(Arc<Control>, u64), Outage>> {
        self.edit(move |control| {
            if control.version == 0 {
                // The records were lost since.
                return Err(Outage::Unavailable);
            }
            let mut history = History::clone(&control.history);
            let _ = history.close_round(&domain, attempts.next());
            let (after, closed) = control.with_round_closed(&domain, history);
            Ok((Some(after), closed))
        })
    }

    /// The hash of the keys.
    pub(crate) fn hash_of_keys(&self) -> &KeyedHash {
        &self.hash
    }

    /// The records that a plan needs.
    fn reads(plan: &Plan<'_>) -> FirstReads {
        let states = plan.hashes().map(Kind::State);
        let name = plan.name.map(|named| Kind::Idempotency(named.name));
        [Kind::Control].into_iter().chain(states).chain(name).map(RecordKey).collect()
    }
}

/// The verbs of a store.
impl SharedStore {
    pub(super) fn decide(&self, plan: &Plan<'_>, times: Times) -> Answer<Result<Decided, Failure>> {
        let is_look = plan.act.is_look();
        let id = match (plan.ticket, plan.hold) {
            (Some(ticket), _) => HoldId(ticket.turn.hold),
            (None, Some(hold)) => Self::new_hold_id(hold.owner),
            // It is not used.
            (None, None) => HoldId([HoldId::LIMITED, 0]),
        };
        let (plan, seen) = (plan.unwritten(), self.seen.clone());
        let reads = Self::reads(&plan);
        let (room, mut attempts) = (self.room(times.now), self.attempts(times, plan.time));
        // It is counted once, however often the function is called.
        let mut forgotten =
            (room.is_full && plan.name.is_some()).then(|| Arc::clone(&self.forgotten));
        let function = move |records: &Records| {
            let times = attempts.next();
            let view = decide::view_of(records, &plan, times, &seen, room);
            let decided = view.and_then(|view| decide::decide(&view, &plan, id));
            if let Ok((_, decided)) = &decided
                && decided.is_allowed
                && !decided.is_repeat
                && let Some(forgotten) = forgotten.take()
            {
                forgotten.fetch_add(1, Ordering::Relaxed);
            }
            flow(decided)
        };
        let purpose = if is_look { Purpose::Other } else { Purpose::Charge };
        let future = self.run_for(purpose, reads, function);
        Answer::Pending(Box::pin(async move { future.await? }))
    }

    pub(super) fn settle(
        &self,
        id: HoldId,
        SettleCall { settlement, time, .. }: SettleCall<'_>,
        times: Times,
    ) -> Answer<Result<Settled, Failure>> {
        let (seen, mut attempts) = (self.seen.clone(), self.attempts(times, time));
        let name = settlement.name().map(|named| Kind::Idempotency(named.name));
        let reads = [Kind::Control, Kind::Hold(id.0)].into_iter().chain(name);
        let reads = reads.map(RecordKey).collect();
        let function = move |records: &Records| {
            let times = attempts.next();
            let view = control_of(records, &seen).and_then(|control| {
                let control = control.ok_or(Stop::With(Failure::Gone))?;
                let room = Room::UNBOUNDED;
                Ok(RecordView { records, control, times, room })
            });
            flow(view.and_then(|view| settle::settle(&view, id, settlement)))
        };
        self.submit(reads, function)
    }

    pub(super) fn refund(&self, plan: &Plan<'_>, times: Times) -> Answer<Result<u64, Failure>> {
        let (plan, seen) = (plan.unwritten(), self.seen.clone());
        let mut attempts = self.attempts(times, plan.time);
        self.submit(Self::reads(&plan), move |records| {
            let view = decide::view_of(records, &plan, attempts.next(), &seen, Room::UNBOUNDED);
            flow(view.and_then(|view| decide::refund(&view, &plan)))
        })
    }

    pub(super) fn enrol(&self, plan: &Plan<'_>, times: Times) -> Answer<Result<u64, Failure>> {
        let (plan, seen, room) = (plan.unwritten(), self.seen.clone(), self.room(times.now));
        let mut attempts = self.attempts(times, plan.time);
        self.submit(Self::reads(&plan), move |records| {
            let view = decide::view_of(records, &plan, attempts.next(), &seen, room);
            flow(view.and_then(|view| decide::enrol(&view, &plan)))
        })
    }

    pub(super) fn forget(&self, plan: &Plan<'_>, times: Times) -> Answer<Result<bool, Failure>> {
        let (plan, seen) = (plan.unwritten(), self.seen.clone());
        let mut attempts = self.attempts(times, plan.time);
        self.submit(Self::reads(&plan), move |records| {
            let view = decide::view_of(records, &plan, attempts.next(), &seen, Room::UNBOUNDED);
            flow(view.and_then(|view| decide::forget(&view, &plan)))
        })
    }

    pub(super) fn forget_all(
        &self,
        scope: ForgetScope<'_>,
        times: Times,
    ) -> Answer<Result<u64, Outage>> {
        let families: Option<HashSet<u64>> = scope.families.cloned();
        let attempts = self.attempts(times, PlanTime::Clock { until: None });
        let forgetting = forget_all::forget_all(
            Arc::clone(&self.records),
            self.seen.clone(),
            families,
            attempts,
        );
        Answer::Pending(Box::pin(Submitted::new(Box::pin(forgetting), |_| None, &self.finisher)))
    }

    pub(super) fn close_round(&self, domain: &str, times: Times) -> Answer<Result<u64, Outage>> {
        let closing = self.close_round_of(domain.into(), self.attempts(times, PlanTime::Given));
        Answer::Pending(Box::pin(async move { closing.await.map(|(_, closed)| closed) }))
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.bytes()
    }

    pub(super) fn evicted_idempotency_keys(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStore")
            .field("records", &self.records)
            .field("node", &self.node)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

/// Makes an edit of what is in force, as [`SharedStore::edit`].
fn edit<T: Send + 'static, E: From<Outage> + Send + 'static>(
    records: &dyn RecordStore,
    seen: &Seen,
    mut edit: impl FnMut(&Arc<Control>) -> Result<(Option<Control>, T), E> + Send + 'static,
) -> BoxFuture<Result<(Arc<Control>, T), E>> {
    let known = seen.clone();
    let function = move |records: &Records| {
        let none = || Arc::new(Control::none(Arc::clone(&known.get().policy)));
        let edited = control_of::<E>(records, &known).and_then(|control| {
            let control = control.unwrap_or_else(none);
            let (after, result) = edit(&control).map_err(Stop::With)?;
            let Some(after) = after.map(Arc::new) else {
                return Ok((Changes::NONE, (control, result)));
            };
            let write = after.write().ok_or(Stop::With(Outage::NotText.into()))?;
            let changes = Changes { writes: vec![write], need: DurabilityNeed::BEST };
            Ok((changes, (after, result)))
        });
        flow(edited)
    };
    let (promise, future) = promise();
    let reads = smallvec![Control::key()];
    records.run(Transaction::new(reads, function, promise).with_purpose(Purpose::Edit));
    let seen = seen.clone();
    Box::pin(async move {
        let (control, result) = future.await??;
        seen.set(&control);
        Ok((control, result))
    })
}

/// The hash of the keys, by a secret.
fn hash_of(secret: &[u8]) -> KeyedHash {
    let word = |number: usize| {
        let digest = Sha256::digest([&(number as u64).to_be_bytes()[..], secret].concat());
        let mut word = [0; 16];
        word.copy_from_slice(&digest[..16]);
        u128::from_le_bytes(word)
    };
    let words: Vec<u128> = (0..KeyedHash::WORDS).map(word).collect();
    KeyedHash::from_words(&words).unwrap_or_else(|| unreachable!("there are as many as it needs"))
}

/// For how many keys of the maximum there is one cell.
const CELLS_OF_KEYS: usize = 8;

/// How long after an attempt to let new keys share cells the next one may be made.
const SHARE_AGAIN_NS: u64 = 5_000_000_000;

/// How long settled holds and the results of requests under idempotency keys are kept.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3_600);
