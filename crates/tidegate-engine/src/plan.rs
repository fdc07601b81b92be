//! What a store is given: the plan of an operation over the keys of a request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Decision, Period, Timestamp};
use tidegate_policy::policy::{Charging, Condition, Durability, Mode, RuleId};

use crate::any_limit::{AnyLimit, AnyState, DecisionTime};
use crate::decision::{INLINE, LimitRequest, Operation};
use crate::hold_id::Owner;

/// The plan of one request: which limits are charged, under which keys, how much.
///
/// Overrides, bans, groups, shadow mode and costs are resolved; one decision is left. Only what is written
/// beside it is borrowed.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    /// The version of the rules that it was made from. Later ones have larger numbers.
    pub(crate) version: u64,
    pub(crate) act: Operation,
    pub(crate) charges: SmallVec<[Charge; INLINE]>,
    /// The attributes of the keys of charges, by their hashes: of those whose rules have overrides by
    /// pattern, and of all where units are put on hold, returned, or may have to be undone.
    pub(crate) keys: SmallVec<[(u64, Arc<KeyAttributes>); INLINE]>,
    pub(crate) hold: Option<HoldFor>,
    pub(crate) name: Option<IdempotencyKey>,
    /// The ticket of a waiter for one of its slots, in a store that several engines share.
    pub(crate) ticket: Option<PlannedTicket>,
    /// The caller's note, to be written with it.
    pub(crate) note: Option<&'a str>,
    pub(crate) time: PlanTime,
    /// Names the keys, where they are written down.
    pub(crate) names: Option<&'a (dyn NameKeys + Sync)>,
}

/// The time that a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanTime {
    /// The clock's. Where it is decided again, the clock is read again; from `until` on another plan is
    /// needed, because a period ends or a limit changes by itself.
    Clock { until: Option<Timestamp> },
    /// The caller's, however long the decision takes.
    Given,
    /// Ahead of the clock, to find out how long a denied request has to wait.
    Ahead,
}

impl PlanTime {
    /// The time that a caller gave, or the clock's.
    pub(crate) const fn of(given: Option<Timestamp>) -> Self {
        match given {
            Some(_) => Self::Given,
            None => Self::Clock { until: None },
        }
    }
}

/// Knows the names of a plan's keys.
pub(crate) trait NameKeys: fmt::Debug {
    /// The name of a charge's key.
    fn key_name(&self, charge: &Charge) -> KeyName;
}

/// The name of a key: the rule, and the attributes of its key with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName {
    pub(crate) rule: RuleId,
    pub(crate) parts: Vec<(Box<str>, Option<Box<str>>)>,
}

impl KeyName {
    /// The name of a key of a rule, with the values of its attributes.
    #[must_use]
    pub const fn new(rule: RuleId, parts: Vec<(Box<str>, Option<Box<str>>)>) -> Self {
        Self { rule, parts }
    }

    /// The rule. Its name is empty where it is not known.
    #[must_use]
    pub const fn rule(&self) -> &RuleId {
        &self.rule
    }

    /// The attributes of the key, with their values as they count; `None` where one was missing.
    pub fn parts(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.parts.iter().map(|(attribute, value)| (&**attribute, value.as_deref()))
    }
}

/// The attributes of a key, with their values.
pub(crate) type KeyAttributes = [(Box<str>, Box<str>)];

/// Whether a key meets the conditions of an override.
pub(crate) fn key_meets(key: &KeyAttributes, conditions: &[Condition]) -> bool {
    let meets = |condition: &Condition| {
        let value = key.iter().find(|(name, _)| **name == *condition.attribute());
        value.is_some_and(|(_, value)| condition.allows(value))
    };
    conditions.iter().all(meets)
}

/// One limit's part in a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// The number of the rule in its rule set.
    pub(crate) rule: u32,
    /// The number of the limit: a new one for every edit.
    pub(crate) tag: u32,
    pub(crate) mode: Mode,
    pub(crate) terms: ChargeTerms,
    /// The rule that the state belongs to, as long as its key and algorithm are unchanged.
    pub(crate) family: u64,
    /// The hash of the family and the key, which identifies the state.
    pub(crate) hash: u64,
    pub(crate) cost: u64,
    pub(crate) limit: AnyLimit,
    pub(crate) period: Period,
}

/// What its rule says of a charge. It is copied as one word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeTerms {
    /// Which requests are charged.
    pub(crate) charging: Charging,
    pub(crate) durability: Durability,
    /// Whether the rule sets the durability, and does not leave it to the store.
    pub(crate) sets_durability: bool,
    /// Whether the cost is the request's, and not the rule's.
    pub(crate) is_by_request: bool,
}

/// The charges of a fast decision, from the first place on: they make no hold, have no idempotency key and no
/// note, and charge nothing to a denied request.
///
/// They are made where they are used: a copy of what was just written waits for it.
pub(crate) type ChargeList = [Option<Charge>; INLINE];

/// How long units are on hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldFor {
    pub(crate) length: Duration,
    /// The domain that it counts for.
    pub(crate) domain: u64,
    /// Whose it is, where there are several owners.
    pub(crate) owner: Option<Owner>,
}

/// The turn of one that waits for a slot in a queue that several engines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketTurn {
    /// The engine that it waits at.
    pub(crate) node: u64,
    /// Its number there; later ones have larger numbers.
    pub(crate) arrival: u64,
    /// The id of the lease that it gets. It is the same at each attempt, so that a lease whose
    /// answer was lost is found.
    pub(crate) hold: [u64; 2],
    /// Whether an attempt before has no known result.
    pub(crate) was_lost: bool,
    /// Whether it stops waiting if it gets nothing now.
    pub(crate) is_last: bool,
}

/// The ticket of one that waits for a slot of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedTicket {
    pub(crate) turn: TicketTurn,
    /// The state of the slots, as in [`Charge::hash`].
    pub(crate) queue: u64,
    /// Higher ranks come first.
    pub(crate) rank: i64,
    /// How many may wait.
    pub(crate) most: usize,
}

/// The name under which a request may be repeated without being charged again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdempotencyKey {
    /// The domain that it counts for; 0 for those of settlements.
    pub(crate) domain: u64,
    pub(crate) name: [u64; 2],
    /// A hash of the rest of the request.
    pub(crate) body: u64,
}

impl<'a> Plan<'a> {
    /// An empty plan.
    #[inline(always)]
    pub(crate) fn new(version: u64, act: Operation) -> Self {
        let (charges, keys) = (SmallVec::new(), SmallVec::new());
        let (hold, name, ticket, note, names) = (None, None, None, None, None);
        Self { version, act, charges, keys, hold, name, ticket, note, time: PlanTime::Given, names }
    }

    /// The plan without what would be written beside it.
    pub(crate) fn unwritten(&self) -> Plan<'static> {
        Plan {
            charges: self.charges.clone(),
            keys: self.keys.clone(),
            note: None,
            names: None,
            ..*self
        }
    }

    /// Whether the key of one of its charges meets the conditions of an override.
    pub(crate) fn meets(&self, charge: &Charge, conditions: &[Condition]) -> bool {
        self.key_of(charge).is_some_and(|key| key_meets(key, conditions))
    }

    /// The attributes of a charge's key, if they are needed.
    pub(crate) fn key_of(&self, charge: &Charge) -> Option<&Arc<KeyAttributes>> {
        self.keys.iter().find(|(hash, _)| *hash == charge.hash).map(|(_, key)| key)
    }

    /// Adds the attributes of a charge's key.
    pub(crate) fn keep_key(&mut self, charge: &Charge, key: Arc<KeyAttributes>) {
        if self.key_of(charge).is_none() {
            self.keys.push((charge.hash, key));
        }
    }

    /// The states of its keys.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> + Clone {
        self.charges.iter().map(|charge| charge.hash)
    }

    /// Whether a denial may charge some of its limits.
    #[cfg(feature = "durable")]
    pub(crate) fn charges_denials(&self) -> bool {
        self.act == Operation::Charge
            && self.charges.iter().any(|charge| charge.terms.charging != Charging::Allowed)
    }

    /// Its charges, if a fast decision can have them.
    #[inline(always)]
    pub(crate) fn charge_list(&self) -> Option<ChargeList> {
        let is_few = self.charges.len() <= INLINE
            && self.charges.iter().all(|charge| charge.terms.charging == Charging::Allowed);
        is_few.then(|| std::array::from_fn(|index| self.charges.get(index).copied()))
    }

    /// Whether it only charges limits.
    #[inline(always)]
    pub(crate) fn only_charges(&self) -> bool {
        self.act == Operation::Charge && self.name.is_none() && self.hold.is_none()
    }
}

impl Charge {
    /// What the limit would decide for a new key.
    pub(crate) fn peek_fresh(&self, now: Timestamp) -> Decision {
        self.limit_request(now).act(Operation::Look, &mut self.limit.fresh(self.period))
    }

    /// A state that counts this charge and `after`, which it changed the estimate of the overflow
    /// counters to: a window that another key opened ends earlier than the key's own would.
    pub(crate) fn with_own_window(&self, after: &AnyState, now: Timestamp) -> AnyState {
        let mut alone = self.limit.fresh(self.period);
        let _ = self.limit_request(now).act(Operation::Charge, &mut alone);
        self.limit.join(after, &alone)
    }

    pub(crate) fn limit_request(&self, now: Timestamp) -> LimitRequest<'_> {
        LimitRequest {
            limit: &self.limit,
            cost: self.cost,
            mode: self.mode,
            charging: self.terms.charging,
            has_room: true,
            decided_at: DecisionTime { now, period: self.period },
        }
    }
}
