//! The waits for slots as functions over records.

use tidegate_core::{Decision, Timestamp, Wait};
use tidegate_policy::policy::Mode;

use super::records::Changes;
use super::state::StateRecord;
use super::view::{RecordView, Stop};
use crate::any_limit::AnyLimit;
use crate::decision::{Decisions, Operation};
use crate::plan::{Charge, Plan};
use crate::store::{Outage, TicketOutcome};

impl StateRecord {
    /// How many wait for the slots of a charge that come before its request.
    pub(super) fn ahead(&self, plan: &Plan<'_>, charge: &Charge) -> usize {
        match plan.ticket {
            Some(ticket) if ticket.queue == charge.hash => self.tickets.ahead(&ticket),
            // What a new request would find.
            None if plan.act == Operation::Look => self.tickets.len(),
            _ => 0,
        }
    }
}

/// What became of a ticket, and the state whose record has changed by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TicketChange {
    pub(super) outcome: TicketOutcome,
    pub(super) changed: Option<usize>,
}

impl TicketChange {
    pub(super) const fn waits(self) -> bool {
        matches!(self.outcome, TicketOutcome::Waits { .. })
    }
}

/// Lets a request wait that needs a slot, or ends its wait.
pub(super) fn attend(
    plan: &Plan<'_>,
    is_allowed: bool,
    decisions: &Decisions,
    states: &mut [StateRecord],
    now: Timestamp,
) -> TicketChange {
    let nothing = TicketChange { outcome: TicketOutcome::Gone, changed: None };
    let Some(ticket) = plan.ticket else { return nothing };
    let index = plan.charges.iter().position(|charge| charge.hash == ticket.queue);
    let Some(index) = index else { return nothing };
    let is_for_slot = |(charge, decision): (&Charge, &Decision)| {
        matches!(charge.limit, AnyLimit::Slots(_))
            && charge.mode == Mode::Enforce
            && decision.retry_after() == Some(Wait::Unknown)
    };
    let waits =
        !is_allowed && !ticket.turn.is_last && plan.charges.iter().zip(decisions).any(is_for_slot);
    let tickets = &mut states[index].tickets;
    let (outcome, is_changed) = if waits {
        tickets.wait(&ticket, now)
    } else {
        (TicketOutcome::Gone, tickets.leave(ticket.turn.node, ticket.turn.arrival))
    };
    TicketChange { outcome, changed: is_changed.then_some(index) }
}

/// Takes the ticket of a waiter out.
pub(super) fn leave(
    view: &RecordView<'_>,
    queue: u64,
    node: u64,
    arrival: u64,
) -> Result<(Changes, ()), Stop<Outage>> {
    let mut states = view.states::<Outage>([queue].into_iter())?;
    let is_changed = states[0].tickets.leave(node, arrival);
    let write = is_changed.then(|| states[0].write(queue, view.history(), view.times));
    Ok((Changes { writes: write.into_iter().collect(), ..Changes::NONE }, ()))
}
