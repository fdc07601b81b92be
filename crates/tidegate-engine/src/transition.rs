//! Every change of state, as functions over a view of what a store has.
//!
//! A store fetches the states of the keys concerned, calls one of these functions, and writes back
//! what has changed. There are no clocks, locks or I/O here, so that all stores decide alike. The
//! history of the limits is part of the view: states are brought up to date on the way.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{Decision, HeldUnits, Period, Timestamp, Wait};
use tidegate_policy::policy::{Charging, Condition, Durability};

use crate::any_limit::{AnyCharge, AnyLimit, AnyState, DecisionTime};
use crate::decision::decide as decide_limits;
use crate::decision::{Decisions, INLINE, LimitRequest, Operation};
use crate::history::{Current, History, KeyRef, RuleHistory, StoredState};
use crate::periods::Times;
use crate::plan::{Charge, ChargeTerms, KeyAttributes, Plan, key_meets};

type Several<T> = SmallVec<[T; INLINE]>;

/// What a store has, as far as one operation needs it.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) history: &'a History,
    pub(crate) times: Times,
    /// The states of the keys concerned, in the order of the operation.
    pub(crate) keys: &'a mut [KeyState],
}

/// The state of a key, before an operation and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyState {
    /// `None` if the key is unknown.
    pub(crate) stored: Option<StoredState>,
    /// An unknown key may have been forgotten at this time.
    pub(crate) forgotten: Timestamp,
    /// Whether a new state can be stored; if not, the request is denied.
    pub(crate) has_room: bool,
    pub(crate) is_changed: bool,
    /// When it was decided: a quota's slot keeps the end of its period.
    pub(crate) decided_at: Option<DecisionTime>,
}

/// Units of one key that are on hold, or were charged by a hold.
#[derive(Clone, Debug)]
pub(crate) struct HoldItem {
    /// The version of the limits when they were held.
    pub(crate) tag: u32,
    pub(crate) hash: u64,
    /// What is on hold, or once the hold is settled, what of its charge can be refunded.
    pub(crate) units: u64,
    /// What of a quota's charge is owed by the next periods.
    pub(crate) debt: u64,
    /// The period of a quota's state after the hold was made.
    pub(crate) period: u64,
    /// Whether the rule charges the request's cost, and not its own.
    pub(crate) is_by_request: bool,
    /// Whether a commit of more is booked whatever is left.
    pub(crate) charging: Charging,
    pub(crate) durability: Durability,
    /// The state after the charge, from which follows how much of it still counts; of a cooldown
    /// the one that the hold began.
    pub(crate) charged: Option<Box<StoredState>>,
    /// The attributes of the key, which overrides by pattern need.
    pub(crate) key: Arc<KeyAttributes>,
}

/// The result of a decision over all charges of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) is_allowed: bool,
    /// Whether a limit was charged: some rules charge denied requests, too.
    pub(crate) has_charged: bool,
    /// What is on hold now.
    pub(crate) items: Several<HoldItem>,
    /// How much each charge has charged or held.
    pub(crate) units: Several<u64>,
}

impl KeyState {
    pub(crate) const fn new(stored: Option<StoredState>) -> Self {
        let (forgotten, decided_at) = (Timestamp::ZERO, None);
        Self { stored, forgotten, has_room: true, is_changed: false, decided_at }
    }

    fn write(&mut self, stored: StoredState, decided_at: DecisionTime) {
        self.is_changed |= self.stored != Some(stored);
        (self.stored, self.decided_at) = (Some(stored), Some(decided_at));
    }
}

/// Decides over all charges of a plan: all are charged, or none.
///
/// `holds` has the parts of open holds that a key has, with their ends, in the order of these: a denied
/// request waits for what they release.
pub(crate) fn decide<'h, H: Iterator<Item = EndingHold<'h>>>(
    view: &mut View<'_>,
    plan: &Plan<'_>,
    holds: impl Fn(usize) -> H,
    decisions: &mut Decisions,
) -> Outcome {
    let now = view.times.now;
    let mut current: Several<Current> = Several::new();
    for (charge, key) in plan.charges.iter().zip(&*view.keys) {
        let meets = |conditions: &[Condition]| plan.meets(charge, conditions);
        let key_ref = KeyRef { hash: charge.hash, meets: &meets };
        current.push(match key.stored {
            Some(stored) => view.history.current_of_charge(stored, charge, key_ref, now),
            None => Current {
                tag: charge.tag,
                limit: charge.limit,
                state: charge.limit.fresh(charge.period),
                stuck: None,
            },
        });
    }
    let mut states: Several<AnyState> = current.iter().map(Current::decided_state).collect();
    let limits: Several<AnyLimit> = current.iter().map(Current::limit_in_force).collect();
    let requests: Several<LimitRequest<'_>> = (plan.charges.iter().zip(&limits).zip(&*view.keys))
        .map(|((charge, limit), key)| LimitRequest {
            limit,
            has_room: key.has_room,
            ..charge.limit_request(now.max(key.forgotten))
        })
        .collect();
    let is_allowed = decide_limits(plan.act, &requests, &mut states, decisions);
    let mut outcome = Outcome { is_allowed, ..Outcome::default() };
    for (index, charge) in plan.charges.iter().enumerate() {
        let (before, after, request) = (&current[index], states[index], &requests[index]);
        let is_known = view.keys[index].stored.is_some()
            || after != before.state
            || (charge.limit.knows_from_first_request() && !plan.act.is_look());
        if !plan.act.is_look() && before.stuck.is_none() && is_known {
            let stored = StoredState { tag: before.tag, state: after };
            view.keys[index].write(stored, request.decided_at);
        }
        let is_held = plan.act == Operation::Hold || matches!(charge.limit, AnyLimit::Slots(_));
        if is_held && !plan.act.is_look() && is_allowed && decisions[index].is_allowed() {
            let item = HoldItem::new(plan, charge, before.tag);
            // A cooldown begins with the hold; voiding the hold ends this one and no later one.
            let begun = after
                .is_ended_by_void()
                .then(|| Box::new(StoredState { tag: before.tag, state: after }));
            outcome.items.push(HoldItem { period: after.period(), charged: begun, ..item });
        }
        outcome.has_charged |= !plan.act.is_look() && after != before.state;
        if before.stuck.is_some() {
            decisions.forgive_booking_of(index);
        }
        let units = match decisions.booking_of(index) {
            Some(booking) => booking.units,
            None => charged_units(plan.act, request, &before.state, &decisions[index], is_allowed),
        };
        outcome.units.push(units);
        let decision = &mut decisions[index];
        if decision.is_allowed() || before.stuck.is_some() || !request.has_room {
            continue;
        }
        if view.keys[index].stored.is_none() && charge.limit.knows_from_first_request() {
            // A look does not make it known, and until a request does, nothing carries over.
            *decision = decision.with_unknown_wait();
        } else if after.held() > 0 && !matches!(after, AnyState::Slots { .. }) {
            let state = StoredState { tag: before.tag, state: after };
            let cost = request.awaited_cost(plan.act);
            let request = LimitRequest { cost, ..*request };
            *decision = wait_for_holds(view.history, &request, *decision, state, holds(index));
        }
    }
    outcome
}

/// A part of an open hold, and when it ends by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndingHold<'a> {
    pub(crate) expires: Timestamp,
    pub(crate) item: &'a HoldItem,
}

/// A denial that ends as soon as the limit allows the request by itself, or enough holds have expired.
///
/// If they end earlier, or last longer, that counts as another request.
fn wait_for_holds<'h>(
    history: &History,
    request: &LimitRequest<'_>,
    denied: Decision,
    stored: StoredState,
    holds: impl Iterator<Item = EndingHold<'h>>,
) -> Decision {
    let LimitRequest { limit, cost, decided_at: DecisionTime { now, period }, .. } = *request;
    let end_of = |decision: &Decision, at: Timestamp| match decision.retry_after() {
        Some(Wait::After(wait)) => Some(at.saturating_add(wait)),
        Some(Wait::Never | Wait::Unknown) => None,
        None => Some(at),
    };
    let (mut end, mut state) = (end_of(&denied, now), stored.state);
    for EndingHold { expires, item } in holds {
        // Later periods have room of their own.
        let is_late = |end: Option<Timestamp>| end.is_some_and(|end| end <= expires);
        if is_late(end) || is_late(period.ends) || expires == Timestamp::MAX {
            break;
        }
        let Some(rule) = history.rule_of(item.tag) else { continue };
        let of_state = Period { index: state.period(), ..period };
        let held = item.on_hold(rule, stored.tag);
        limit.cancel(&mut state, held, DecisionTime { now: expires, period: of_state });
        end = end_of(&limit.peek(&state, cost, DecisionTime { now: expires, period }), expires);
    }
    end.map_or(denied, |end| denied.denied_until(end))
}

/// Makes the keys of a plan known, all of them or, where one has no room, none. Charges nothing.
///
/// Of unused units that carry over, those count that a key has had since it is known. What the
/// outcome has as units is 1 for a key that was not known before, and else 0.
pub(crate) fn enrol(view: &mut View<'_>, plan: &Plan<'_>) -> Outcome {
    let is_allowed = view.keys.iter().all(|key| key.stored.is_some() || key.has_room);
    let mut outcome = Outcome { is_allowed, ..Outcome::default() };
    for (charge, key) in plan.charges.iter().zip(&mut *view.keys) {
        let is_new = is_allowed && key.stored.is_none() && charge.limit.knows_from_first_request();
        if is_new {
            let state = charge.limit.fresh(charge.period);
            let decided_at = charge.limit_request(view.times.now.max(key.forgotten)).decided_at;
            key.write(StoredState { tag: charge.tag, state }, decided_at);
        }
        outcome.units.push(u64::from(is_new));
    }
    outcome
}

/// How many units a limit charged, for a request that it or another one may have denied.
fn charged_units(
    act: Operation,
    request: &LimitRequest<'_>,
    before: &AnyState,
    decision: &Decision,
    is_allowed: bool,
) -> u64 {
    let charges_refused = request.charging == Charging::Refused && act == Operation::Charge;
    match (decision.is_allowed(), is_allowed) {
        (true, true) => request.cost,
        (true, false) if charges_refused => request.cost,
        (false, _) if charges_refused && request.has_room => {
            request.limit.charge_refused(&mut before.clone(), request.cost, request.decided_at)
        }
        _ => 0,
    }
}

/// Releases an item of an expired hold; the view's time is that of the expiry.
pub(crate) fn expire_item(view: &mut View<'_>, index: usize, item: &HoldItem) {
    // Edits since then come after it.
    let back_then = |rule: &RuleHistory, times| rule.tag_back_then(times);
    update(view, index, back_then, item, |limit, state, held, decided_at| {
        // Whether the hold is released before a period closes, or after it, is the same. Which
        // round was open then is not known.
        let period = Period { index: state.period(), ..decided_at.period };
        limit.cancel(state, held, DecisionTime { period, ..decided_at });
        0
    });
}

/// The state of a key with what has expired by now released, each hold at its own time.
pub(crate) fn released<'a>(
    history: &History,
    times: Times,
    key: KeyState,
    holds: impl Iterator<Item = (Timestamp, &'a HoldItem)>,
) -> KeyState {
    let mut keys = [key];
    for (expires, item) in holds.take_while(|(expires, _)| *expires <= times.now) {
        let mut view = View { history, times: times.at(expires), keys: &mut keys };
        expire_item(&mut view, 0, item);
    }
    KeyState { stored: keys[0].stored, ..key }
}

/// Refunds up to `units` that a key was charged, and returns how many; 0 for an unknown key.
pub(crate) fn refund(view: &mut View<'_>, index: usize, item: &HoldItem) -> u64 {
    let newest = |rule: &RuleHistory, times| rule.tag_at(times);
    let (units, after) = update(view, index, newest, item, |limit, state, _, decided_at| {
        limit.refund(state, item.units, decided_at)
    });
    if after.is_some() { units } else { 0 }
}

/// Makes a key unknown, but for its units on hold. Returns whether it was known.
pub(crate) fn forget(view: &mut View<'_>, index: usize, plan: &Plan<'_>) -> bool {
    let (charge, now) = (&plan.charges[index], view.times.now);
    let Some(stored) = view.keys[index].stored else { return false };
    let meets = |conditions: &[Condition]| plan.meets(charge, conditions);
    let key = KeyRef { hash: charge.hash, meets: &meets };
    let current = view.history.current_of_charge(stored, charge, key, now);
    let state = current.limit.forgotten(&current.state, charge.period);
    let key = &mut view.keys[index];
    key.stored = (state.held() > 0).then_some(StoredState { tag: charge.tag, state });
    key.decided_at = Some(DecisionTime { now: Timestamp::ZERO, period: charge.period });
    key.is_changed = true;
    true
}

/// Makes the key of a hold's item unknown, but for its units on hold. Returns whether it was known.
pub(crate) fn forget_item(view: &mut View<'_>, index: usize, item: &HoldItem) -> bool {
    if view.keys[index].stored.is_none() {
        return false;
    }
    let newest = |rule: &RuleHistory, times| rule.tag_at(times);
    let _ = update(view, index, newest, item, |limit, state, _, decided_at| {
        *state = limit.forgotten(state, decided_at.period);
        0
    });
    true
}

/// Changes the state of a hold's item as of now, and returns it. For an unknown key only the
/// result is computed.
pub(crate) fn update(
    view: &mut View<'_>,
    index: usize,
    position: impl Fn(&RuleHistory, Times) -> u32,
    item: &HoldItem,
    mut change: impl FnMut(&AnyLimit, &mut AnyState, HeldUnits, DecisionTime) -> u64,
) -> (u64, Option<StoredState>) {
    let Some(rule) = view.history.rule_of(item.tag) else { return (0, None) };
    let tag = position(rule, view.times);
    let decided_at = rule.decided_at(tag, view.times);
    let meets = |conditions: &[Condition]| item.meets(conditions);
    let key = KeyRef { hash: item.hash, meets: &meets };
    let Some(stored) = view.keys[index].stored else {
        let limit = rule.limit_at(tag, key).limit;
        let fresh = limit.fresh(decided_at.period);
        let mut state = fresh;
        let units = change(limit, &mut state, item.on_hold(rule, tag), decided_at);
        let after = StoredState { tag, state };
        // The key of a quota may be forgotten after the period of its hold: what a commit charges
        // beyond the hold counts now.
        let is_quota = matches!(state, AnyState::Quota(_));
        if is_quota && state != fresh {
            view.keys[index].write(after, decided_at);
        }
        return (units, is_quota.then_some(after));
    };
    let current = rule.advance(stored, key, tag, view.times.now);
    // Where the limit in force cannot express the state, it is changed as of the time before.
    let now = current.stuck.map_or(decided_at.now, |stuck| stuck.kept_at);
    let mut state = current.state;
    let held = item.on_hold(rule, current.tag);
    let units = change(&current.limit, &mut state, held, DecisionTime { now, ..decided_at });
    let after = StoredState { tag: current.tag, state };
    view.keys[index].write(after, decided_at);
    (units, Some(after))
}

impl History {
    /// A state as a charge finds it.
    pub(crate) fn current_of_charge(
        &self,
        stored: StoredState,
        charge: &Charge,
        key: KeyRef<'_>,
        now: Timestamp,
    ) -> Current {
        let StoredState { tag, state } = stored;
        let found = self.rule(charge.family).filter(|_| tag != charge.tag);
        let mut current = match found {
            Some(rule) => rule.advance(stored, key, charge.tag, now),
            None => Current { tag: charge.tag, limit: charge.limit, state, stuck: None },
        };
        if current.tag == charge.tag && current.stuck.is_none() {
            // A request may bring its own limit.
            current.limit = charge.limit;
        }
        current
    }

    /// The state that the commit of an item left, as of now: it knows how much of the charge is
    /// outstanding.
    pub(crate) fn charge_of(&self, item: &HoldItem, times: Times) -> Option<Current> {
        let stored = item.charged.as_deref().copied()?;
        let rule: &RuleHistory = self.rule_of(stored.tag)?;
        let meets = |conditions: &[Condition]| item.meets(conditions);
        let key = KeyRef { hash: item.hash, meets: &meets };
        Some(rule.advance(stored, key, rule.tag_at(times), times.now))
    }
}

impl Current {
    pub(crate) fn limit_in_force(&self) -> AnyLimit {
        self.stuck.map_or(self.limit, |stuck| stuck.limit)
    }

    /// The state for a decision: one that cannot be expressed is overdrawn as far as can be.
    pub(crate) fn decided_state(&self) -> AnyState {
        match self.stuck {
            None => self.state,
            Some(stuck) => {
                let at = DecisionTime { now: stuck.since, period: crate::any_limit::NO_PERIOD };
                stuck.limit.carry_over(&self.limit, &stuck.state, at)
            }
        }
    }

    /// Refunds up to `units` of the charge that left this state, from the state of its key.
    pub(crate) fn refund(
        &mut self,
        limit: &AnyLimit,
        state: &mut AnyState,
        units: u64,
        left: &mut u64,
        debt: &mut u64,
        at: DecisionTime,
    ) -> u64 {
        let mut charge = AnyCharge { state: self.state, units: *left, debt: *debt };
        // Equal buckets may count in different ticks; their words tell.
        let refunded = if self.limit.to_words() == limit.to_words() {
            limit.refund_charge(state, &mut charge, units, at)
        } else {
            // The key has come under another limit since.
            let outstanding =
                self.limit.refund_charge(&mut self.state.clone(), &mut charge.clone(), units, at);
            let refunded = limit.refund(state, outstanding, at);
            self.limit.refund_charge(&mut self.state.clone(), &mut charge, refunded, at)
        };
        (self.state, *left, *debt) = (charge.state, charge.units, charge.debt);
        refunded
    }
}

impl HoldItem {
    /// A charge's part of a hold.
    pub(crate) fn new(plan: &Plan<'_>, charge: &Charge, tag: u32) -> Self {
        let Charge { hash, cost: units, terms, .. } = *charge;
        let ChargeTerms { is_by_request, charging, durability, .. } = terms;
        let key = plan.key_of(charge).map_or_else(|| Arc::new([]) as _, Arc::clone);
        let (debt, period, charged) = (0, charge.period.index, None);
        Self { tag, hash, units, debt, period, is_by_request, charging, durability, charged, key }
    }

    /// What it has on hold, with its period as a version numbers them.
    fn on_hold(&self, rule: &RuleHistory, tag: u32) -> HeldUnits {
        let period = rule.renumbered(self.tag, self.period, tag);
        HeldUnits { units: self.units, period }
    }

    /// Whether its units are among those that a state has on hold.
    #[cfg(feature = "durable")]
    pub(crate) fn is_held_in(&self, history: &History, stored: StoredState) -> bool {
        match (stored.state, history.rule_of(stored.tag)) {
            (AnyState::Quota(state), Some(rule)) => {
                self.on_hold(rule, stored.tag).period >= state.held_from
            }
            _ => true,
        }
    }

    /// Brings what it refers to up to date, so that older versions of its limits can be dropped.
    pub(crate) fn bring_up_to_date(&mut self, history: &History, times: Times) {
        if let (Some(charged), Some(current)) =
            (self.charged.as_deref().copied(), history.charge_of(self, times))
            && current.stuck.is_none()
            && history.rule_of(charged.tag).is_some()
        {
            let stored = StoredState { tag: current.tag, state: current.state };
            self.charged = Some(Box::new(stored));
        }
        if let Some(rule) = history.rule_of(self.tag) {
            self.period = rule.renumbered(self.tag, self.period, rule.newest().tag);
            self.tag = rule.newest().tag;
        }
    }

    /// Whether its key meets the conditions of an override.
    pub(crate) fn meets(&self, conditions: &[Condition]) -> bool {
        key_meets(&self.key, conditions)
    }
}
