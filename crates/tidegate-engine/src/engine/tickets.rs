//! The ticket of one that waits for a slot, where several engines share the queue: what an attempt
//! takes along, and what is left of it when the caller is gone.

use std::fmt;
use std::sync::{Arc, Mutex};

use tidegate_table::locks::lock;
use tidegate_table::waiting::AttemptTurn;

use super::StoreEngine;
use super::planning::Planned;
use super::report::{Report, ReportTicket, TicketEnd};
use super::ruleset::Ruleset;
use crate::hold_id::Owner;
use crate::plan::{PlannedTicket, TicketTurn};
use crate::request::Request;
use crate::store::settlement::Settlement;
use crate::store::shared::SharedStore;
use crate::store::{HoldId, Outage, TicketOutcome};
use tidegate_policy::policy::Slots;

/// The ticket of a waiter, from its first attempt on. Dropped, it leaves the queue.
pub(super) struct QueueTicket<'a> {
    engine: &'a StoreEngine,
    node: u64,
    hold: HoldId,
    left: Arc<Mutex<Left>>,
}

/// What is to be taken back if the waiter gives up. While an attempt is on its way, the attempt has
/// it.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    arrival: u64,
    /// The state whose record may have the ticket.
    queue: Option<u64>,
    /// Whether there may be a lease, by an attempt whose answer was lost.
    lease: bool,
}

/// An attempt of a waiter.
#[derive(Debug)]
pub(super) struct TicketAttempt {
    pub(super) ticket: ReportTicket,
    before: Left,
    left: Arc<Mutex<Left>>,
}

impl<'a> QueueTicket<'a> {
    pub(super) fn new(engine: &'a StoreEngine, store: &SharedStore, owner: Option<Owner>) -> Self {
        let (node, hold) = (store.node(), SharedStore::new_hold_id(owner));
        Self { engine, node, hold, left: Arc::default() }
    }

    /// What an attempt takes along.
    pub(super) fn attempt(&self, turn: AttemptTurn) -> TicketAttempt {
        let mut left = lock(&self.left);
        left.arrival = turn.arrival;
        let before = std::mem::take(&mut *left);
        let AttemptTurn { arrival, is_last, .. } = turn;
        let (node, hold) = (self.node, self.hold.0);
        let turn = TicketTurn { node, arrival, hold, was_lost: before.lease, is_last };
        let ticket = ReportTicket { queue: before.queue, ..ReportTicket::new(turn) };
        TicketAttempt { ticket, before, left: Arc::clone(&self.left) }
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let left = *lock(&self.left);
        self.engine.take_back(left, self.hold);
    }
}

impl fmt::Debug for QueueTicket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueTicket").field("left", &self.left).finish_non_exhaustive()
    }
}

impl TicketAttempt {
    /// Notes what is left of it.
    pub(super) fn end(self, report: Option<&Report>) {
        let left = report.and_then(Report::left).map(|(left, _)| left);
        *lock(&self.left) = left.unwrap_or(self.before);
    }

    /// Whether a waiter that was in the queue goes on waiting: the store may be back before long.
    pub(super) fn outlasts(&self, report: &Report) -> bool {
        let is_lost = report.body.ticket.as_ref().is_some_and(|it| it.end == TicketEnd::Lost);
        is_lost && self.before.queue.is_some() && !self.ticket.turn.is_last
    }
}

impl Report {
    /// Notes how the attempt of a waiter ended.
    pub(super) fn end_ticket(&mut self, end: TicketEnd) {
        if let Some(ticket) = &mut self.body.ticket {
            ticket.end = end;
        }
    }

    /// Notes that the store did not answer. A foreign value in a record does not go away. One that
    /// waits is charged nothing, so no share of a limit is used for it.
    pub(super) fn lose_ticket(&mut self, outage: Outage) {
        if self.body.ticket.is_some() {
            self.body.local = None;
        }
        if matches!(outage, Outage::Unavailable | Outage::Unknown) {
            self.end_ticket(TicketEnd::Lost);
        }
    }

    /// What is left of a waiter's attempt, and the id of its lease.
    fn left(&self) -> Option<(Left, HoldId)> {
        let ReportTicket { turn, queue, end } = **self.body.ticket.as_ref()?;
        let queue = match end {
            TicketEnd::Known(TicketOutcome::Waits { queue }) => Some(queue),
            TicketEnd::Known(TicketOutcome::Gone | TicketOutcome::Full) => None,
            TicketEnd::Unchanged | TicketEnd::Lost => queue,
        };
        let may_have = turn.was_lost || end == TicketEnd::Lost;
        let lease = may_have && self.hold().is_none();
        Some((Left { arrival: turn.arrival, queue, lease }, HoldId(turn.hold)))
    }
}

impl StoreEngine {
    /// Leaves the queue after an attempt whose caller is gone.
    pub(super) fn leave_after(&self, report: &Report) {
        if let Some((left, id)) = report.left() {
            self.take_back(left, id);
        }
    }

    /// Takes back what a waiter left. No caller waits for that: what fails lapses or expires.
    fn take_back(&self, left: Left, id: HoldId) {
        if let (Some(store), Some(queue)) = (self.shared.store.shared(), left.queue) {
            store.leave_queue(queue, left.arrival, self.begin(None).1);
        }
        if left.lease {
            drop(self.by_the_clock().settle(id, Settlement::Cancel, None));
        }
    }
}

impl Planned<'_> {
    /// Adds the ticket of one that waits for a slot of the plan.
    #[inline]
    pub(super) fn add_ticket(
        &mut self,
        rules: &Ruleset,
        requests: &[Request<'_>],
        ticket: Option<&mut ReportTicket>,
    ) {
        if let Some(ticket) = ticket {
            self.plan.ticket = self.planned_ticket(rules, requests, ticket.turn);
            ticket.queue = self.plan.ticket.map(|planned| planned.queue).or(ticket.queue);
        }
    }

    #[cold]
    fn planned_ticket(
        &self,
        rules: &Ruleset,
        requests: &[Request<'_>],
        turn: TicketTurn,
    ) -> Option<PlannedTicket> {
        let charge = self.plan.charges.get(self.slots?)?;
        let (queue, slots) = (charge.hash, rules.rule(charge.rule).slots()?);
        let rank = requests.first().map_or(0, |request| rank_of(slots, request));
        Some(PlannedTicket { turn, queue, rank, most: slots.queue_len() })
    }
}

/// The rank of a request in the queue for slots; higher ones come first.
pub(super) fn rank_of(slots: &Slots, request: &Request<'_>) -> i64 {
    let rank = slots.priority_attribute().and_then(|name| request.attributes.get(name));
    rank.and_then(|rank| rank.parse().ok()).unwrap_or(0)
}
