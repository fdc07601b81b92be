//! What the verbs that settle a hold mean: the one place that knows, for every store.
//!
//! A store fetches the hold and the states of its items, calls [`settle`], and writes back what has changed. There
//! are no clocks, locks or I/O here.

use smallvec::SmallVec;
use tidegate_core::{Committed, HeldUnits, Timestamp};
use tidegate_policy::policy::Charging;

use super::actions::{EntryKind, Transfer};
use super::memory::{Hold, HoldEnd, REMEMBERED_FOR};
use super::record::{ByteReader, ByteWriter, Malformed};
use super::{Failure, FreedQueues, HoldId, Settled};
use crate::any_limit::{AnyLimit, AnyState};
use crate::decision::INLINE;
use crate::history::{History, RuleHistory, StoredState};
use crate::plan::{IdempotencyKey, PlanTime};
use crate::transition::{HoldItem, View, update};

/// What to do with a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Charges its units, or another number of them.
    Commit { actual: Option<u64> },
    /// Releases its units.
    Cancel,
    /// Releases its units, and ends a cooldown that it began.
    Void,
    /// Extends it by its full length, from now.
    Renew,
    /// Refunds units that it charged; under the same idempotency key only once.
    Refund { units: u64, name: Option<IdempotencyKey> },
}

/// What ended a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndKind {
    Commit { actual: Option<u64> },
    Cancel,
}

impl EndKind {
    /// Its form in records.
    pub(in crate::store) fn write(self, out: &mut ByteWriter) {
        match self {
            Self::Commit { actual } => {
                out.byte(1);
                out.option(actual, ByteWriter::number);
            }
            Self::Cancel => out.byte(2),
        }
    }

    pub(in crate::store) fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        match from.byte()? {
            1 => Ok(Self::Commit { actual: from.option(ByteReader::number)? }),
            2 => Ok(Self::Cancel),
            _ => Err(Malformed),
        }
    }
}

/// A settlement as a store is given it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettleCall<'a> {
    pub(crate) settlement: Settlement,
    /// The caller's note; a file store writes it with the settlement.
    pub(crate) note: Option<&'a str>,
    pub(crate) time: PlanTime,
}

/// A settlement that was made.
#[derive(Clone, Debug)]
pub(crate) struct SettledHold {
    pub(crate) settled: Settled,
    pub(crate) after: HoldAfter,
    /// Units that moved between accounts, in the order of the items.
    pub(crate) bookings: SmallVec<[SettledUnits; INLINE]>,
}

/// What a settlement makes of a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HoldAfter {
    /// It is open for longer.
    Renewed,
    /// It stays settled, and less of its charge can be refunded.
    Refunded,
    /// It is kept as settled: for refunds, and for the same settlement again.
    Ended(HoldEnd),
    /// It is gone: a lease that was released.
    Released,
}

/// Units of one of a hold's items that moved from one account to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettledUnits {
    /// The index of the item.
    pub(crate) item: usize,
    pub(crate) transfer: Transfer,
    pub(crate) units: u64,
}

/// The result of a change to one item of a hold.
#[derive(Clone, Copy, Debug, Default)]
struct ItemOutcome {
    /// Units charged or refunded.
    units: u64,
    /// Whether a state that counts units took them.
    counts_units: bool,
    /// What of a commit's charge is owed by the next periods.
    debt: u64,
    /// What a commit did not charge.
    forgiven: u64,
}

impl Settlement {
    /// The idempotency key.
    pub(crate) const fn name(self) -> Option<IdempotencyKey> {
        match self {
            Self::Refund { name, .. } => name,
            Self::Commit { .. } | Self::Cancel | Self::Void | Self::Renew => None,
        }
    }

    /// The kind of action that it is in the ledger.
    pub(crate) const fn kind(self) -> EntryKind {
        match self {
            Self::Commit { .. } => EntryKind::Commit,
            Self::Cancel | Self::Void => EntryKind::Cancel,
            Self::Renew => EntryKind::Renew,
            Self::Refund { .. } => EntryKind::Refund,
        }
    }

    pub(crate) const fn is_refund(self) -> bool {
        matches!(self, Self::Refund { .. })
    }

    /// How units on hold are booked when `units` of them were charged or returned.
    fn booked(self, held: u64, units: u64) -> [(Transfer, u64); 3] {
        use Transfer::{Cancelled, Charged, Committed, Held, Refunded};
        match self {
            // A charge beyond the hold is granted at the same time, so that the totals balance.
            Self::Commit { .. } => [
                (Committed, units.min(held)),
                (Cancelled, held.saturating_sub(units)),
                (Charged, units.saturating_sub(held)),
            ],
            Self::Cancel | Self::Void => [(Cancelled, held), (Held, 0), (Held, 0)],
            Self::Refund { .. } => [(Refunded, units), (Held, 0), (Held, 0)],
            Self::Renew => [(Held, 0); 3],
        }
    }
}

/// The result that is known without the hold: it was refunded before under the same idempotency key, or no rule
/// limits it, so that its id is all there is.
pub(crate) fn known(
    id: HoldId,
    settlement: Settlement,
    refunded: Option<u64>,
    now: Timestamp,
) -> Option<Result<Settled, Failure>> {
    if let Some(units) = refunded {
        return Some(Ok(Settled { units, is_repeat: true, ..Settled::NOTHING }));
    }
    let expires = id.expiry_of_unlimited()?;
    let is_open = now < expires && !settlement.is_refund();
    let settled = Settled { expires, ..Settled::NOTHING };
    Some(if is_open { Ok(settled) } else { Err(Failure::Gone) })
}

/// The result of the same settlement before; an error if it was another one.
pub(crate) fn settled_before(
    hold: &Hold,
    settlement: Settlement,
    now: Timestamp,
) -> Result<Option<Settled>, Failure> {
    let is_refund = settlement.is_refund();
    let Some(end) = hold.end else {
        return if is_refund { Err(Failure::Gone) } else { Ok(None) };
    };
    let is_same = match (settlement, end.settlement) {
        (Settlement::Commit { actual }, EndKind::Commit { actual: before }) => actual == before,
        (Settlement::Cancel | Settlement::Void, EndKind::Cancel) => true,
        _ => false,
    };
    match end.settlement {
        _ if end.at < now.saturating_sub(REMEMBERED_FOR) => Err(Failure::Gone),
        _ if is_same => {
            let HoldEnd { units, debt, forgiven, .. } = end;
            let (expires, fence) = (hold.expires, hold.fence);
            let repeat = Settled { units, debt, forgiven, is_repeat: true, ..Settled::NOTHING };
            Ok(Some(Settled { expires, fence, ..repeat }))
        }
        _ if settlement == Settlement::Renew => Err(Failure::Gone),
        EndKind::Commit { .. } if is_refund => Ok(None),
        EndKind::Commit { .. } => Err(Failure::Committed { units: end.units }),
        EndKind::Cancel => Err(Failure::Cancelled),
    }
}

/// Settles a hold; the view has the states of its items. The hold is as it is afterwards.
pub(crate) fn settle(view: &mut View<'_>, hold: &mut Hold, settlement: Settlement) -> SettledHold {
    let now = view.times.now;
    let queues = freed_queues(view.history, hold);
    let mut settled = Settled { fence: hold.fence, queues, ..Settled::NOTHING };
    let mut bookings = SmallVec::new();
    if settlement == Settlement::Renew {
        hold.expires = now.saturating_add(hold.length);
        settled.expires = hold.expires;
        return SettledHold { settled, after: HoldAfter::Renewed, bookings };
    }
    // Of the limits that charge the request's cost, the fewest units.
    let mut least: Option<u64> = None;
    for (index, item) in hold.items.iter_mut().enumerate() {
        let held = item.units;
        let ItemOutcome { units, counts_units, debt, forgiven } =
            settle_item(view, index, item, settlement);
        settled.units = settled.units.max(units);
        settled.debt = settled.debt.max(debt);
        if item.is_by_request && counts_units {
            least = Some(least.map_or(units, |least| least.min(units)));
            settled.forgiven = settled.forgiven.max(forgiven);
        }
        if view.history.counts_units(item) {
            let moved = settlement.booked(held, units).into_iter();
            let moved = moved.filter(|(_, units)| *units > 0);
            let moved = moved.chain([(Transfer::Forgiven, forgiven)]);
            bookings.extend(moved.map(|(transfer, units)| SettledUnits {
                item: index,
                transfer,
                units,
            }));
        }
    }
    // The host has to account for what a limit did not charge.
    let is_commit = matches!(settlement, Settlement::Commit { .. });
    settled.units = least.filter(|_| is_commit).unwrap_or(settled.units);
    settled.expires = hold.expires;
    let Settled { units, debt, forgiven, .. } = settled;
    let ended = |settlement| HoldEnd { at: now, settlement, units, debt, forgiven };
    let after = match settlement {
        Settlement::Renew => HoldAfter::Renewed,
        Settlement::Refund { .. } => HoldAfter::Refunded,
        Settlement::Commit { actual } => HoldAfter::Ended(ended(EndKind::Commit { actual })),
        Settlement::Cancel | Settlement::Void
            if hold.items.iter().any(|item| view.history.is_of_slots(item.tag)) =>
        {
            HoldAfter::Released
        }
        Settlement::Cancel | Settlement::Void => HoldAfter::Ended(ended(EndKind::Cancel)),
    };
    SettledHold { settled, after, bookings }
}

/// Commits, cancels or refunds one item of a hold. The item is as it is afterwards.
fn settle_item(
    view: &mut View<'_>,
    index: usize,
    item: &mut HoldItem,
    settlement: Settlement,
) -> ItemOutcome {
    let mut charge = view.history.charge_of(item, view.times);
    // What can be refunded afterwards.
    let (mut left, mut debt) = (item.units, item.debt);
    let mut done = Committed::default();
    let begun = item.charged.as_deref().map(|charged| charged.state);
    let (is_by_request, charging) = (item.is_by_request, item.charging);
    let change = |limit: &AnyLimit, state: &mut AnyState, held, decided_at| match settlement {
        Settlement::Commit { actual } => {
            let HeldUnits { units, .. } = held;
            let actual = actual.filter(|_| is_by_request).unwrap_or(units);
            done = match charging {
                Charging::Postpaid => limit.commit_postpaid(state, held, actual, decided_at),
                Charging::Allowed | Charging::Refused => {
                    limit.commit(state, held, actual, decided_at)
                }
            };
            (left, debt) = (done.charged - done.closed, done.debt);
            done.charged
        }
        Settlement::Refund { units, .. } => charge.as_mut().map_or(0, |charge| {
            charge.refund(limit, state, units, &mut left, &mut debt, decided_at)
        }),
        Settlement::Void => {
            limit.void(state, held, begun.as_ref(), decided_at);
            0
        }
        Settlement::Cancel | Settlement::Renew => {
            limit.cancel(state, held, decided_at);
            0
        }
    };
    let newest = |rule: &RuleHistory, times| rule.tag_at(times);
    let (units, after) = update(view, index, newest, item, change);
    let counts_units = after.is_some_and(|stored| stored.state.counts_units());
    let of_refund = charge.map(|it| StoredState { tag: it.tag, state: it.state });
    let is_refund = matches!(settlement, Settlement::Refund { .. });
    item.charged = if is_refund { of_refund } else { after }.map(Box::new);
    (item.units, item.debt) = (left, debt);
    ItemOutcome { units, counts_units, debt: done.debt, forgiven: done.forgiven }
}

/// The queues that wait for what a hold releases.
fn freed_queues(history: &History, hold: &Hold) -> FreedQueues {
    let mut slots = hold.items.iter().filter(|item| history.is_of_slots(item.tag));
    match (slots.next(), slots.next()) {
        (Some(only), None) => FreedQueues::One(only.hash),
        _ => FreedQueues::All,
    }
}

impl History {
    /// Whether a version is of a rule with slots, or of one that is gone: no state counts them.
    pub(crate) fn is_of_slots(&self, tag: u32) -> bool {
        let limit = self.rule_of(tag).map(|rule| rule.common());
        matches!(limit, None | Some(AnyLimit::Slots(_)))
    }

    /// Whether an item counts units, unlike cooldowns and slots.
    pub(crate) fn counts_units(&self, item: &HoldItem) -> bool {
        let limit = self.rule_of(item.tag).map(|rule| rule.common());
        limit.is_some_and(AnyLimit::counts_units)
    }
}
