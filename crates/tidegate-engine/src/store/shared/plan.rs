//! A plan that owns what it needs: it outlives the call that made it.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::Period;

use crate::any_limit::{AnyLimit, INLINE, Operation};
use crate::plan::{
    Charge, HoldFor, IdempotencyKey, KeyAttributes, KeyName, Plan, PlanTime, PlannedRequests,
    PlannedTicket,
};
use tidegate_policy::Attributes;
use tidegate_policy::policy::{Charging, Condition, Durability, Mode};

/// A [`Plan`] without borrows.
#[derive(Clone, Debug)]
pub(super) struct OwnedPlan {
    pub(super) version: u64,
    act: Operation,
    charges: SmallVec<[OwnedCharge; INLINE]>,
    hold: Option<HoldFor>,
    pub(super) name: Option<IdempotencyKey>,
    ticket: Option<PlannedTicket>,
    pub(super) time: PlanTime,
}

#[derive(Clone, Debug)]
struct OwnedCharge {
    rule: u32,
    tag: u32,
    mode: Mode,
    charging: Charging,
    durability: Durability,
    sets_durability: bool,
    family: u64,
    hash: u64,
    cost: u64,
    is_by_request: bool,
    limit: AnyLimit,
    period: Period,
    key: Option<Arc<KeyAttributes>>,
}

impl OwnedPlan {
    /// With the attributes of its keys, if they are needed.
    pub(super) fn new(plan: &Plan<'_>, needs_keys: bool) -> Self {
        let requests = plan.requests.filter(|_| needs_keys);
        let charge = |it: &Charge<'_>| OwnedCharge {
            rule: it.rule,
            tag: it.tag,
            mode: it.mode,
            charging: it.charging,
            durability: it.durability,
            sets_durability: plan.requests.is_some_and(|all| all.sets_durability(it)),
            family: it.family,
            hash: it.hash,
            cost: it.cost,
            is_by_request: it.is_by_request,
            limit: *it.limit,
            period: it.period,
            key: requests.map(|requests| requests.key_attributes(it)),
        };
        Self {
            version: plan.version,
            act: plan.act,
            charges: plan.charges.iter().map(charge).collect(),
            hold: plan.hold,
            name: plan.name,
            ticket: plan.ticket,
            time: plan.time,
        }
    }

    /// The states of its keys.
    pub(super) fn hashes(&self) -> impl Iterator<Item = u64> + Clone {
        self.charges.iter().map(|charge| charge.hash)
    }

    /// Calls a function with the plan.
    pub(super) fn with<R>(&self, then: impl FnOnce(&Plan<'_>) -> R) -> R {
        let plan = Plan {
            version: self.version,
            act: self.act,
            charges: self.charges.iter().map(OwnedCharge::charge).collect(),
            hold: self.hold,
            name: self.name,
            ticket: self.ticket,
            note: None,
            time: self.time,
            requests: Some(self),
        };
        then(&plan)
    }

    fn key(&self, charge: &Charge<'_>) -> Option<&Arc<KeyAttributes>> {
        self.charges.iter().find(|it| it.hash == charge.hash)?.key.as_ref()
    }
}

impl OwnedCharge {
    fn charge(&self) -> Charge<'_> {
        Charge {
            rule: self.rule,
            tag: self.tag,
            mode: self.mode,
            charging: self.charging,
            durability: self.durability,
            family: self.family,
            hash: self.hash,
            cost: self.cost,
            is_by_request: self.is_by_request,
            limit: &self.limit,
            period: self.period,
        }
    }
}

impl PlannedRequests for OwnedPlan {
    fn meets(&self, charge: &Charge<'_>, conditions: &[Condition]) -> bool {
        let Some(key) = self.key(charge) else { return false };
        let attributes: SmallVec<[(&str, &str); 4]> =
            key.iter().map(|(name, value)| (&**name, &**value)).collect();
        conditions.iter().all(|condition| condition.holds(&Attributes::new(&attributes)))
    }

    fn sets_durability(&self, charge: &Charge<'_>) -> bool {
        self.charges.iter().any(|it| it.hash == charge.hash && it.sets_durability)
    }

    fn key_name(&self, _: &Charge<'_>) -> KeyName {
        // No shared store writes names.
        KeyName::default()
    }

    fn key_attributes(&self, charge: &Charge<'_>) -> Arc<KeyAttributes> {
        self.key(charge).map_or_else(|| Arc::new([]) as _, Arc::clone)
    }
}
