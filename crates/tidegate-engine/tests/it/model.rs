//! The engine against a naive one: states in a map, everything decided first, then all charged or
//! none.
//!
//! The model has no locks, no numbers of limits and no lazy edits: an edit goes through all states
//! at once. What it shares with the engine is the arithmetic of the core, which has models of its
//! own. It is one long file because it is one thing: a whole engine, small enough to be read at
//! once.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::policy::{Condition, CostTable, Grant, Limit, Mode, Override, Periods, Policy, Rule};
use tidegate::{
    Bucket, CheckError, Cooldown, Decision, Edit, Rate, Report, Request, Sliding, StoreEngine,
    Timestamp, Wait, WhenFull, Window,
    clock::ManualClock,
    hold::HoldId,
    policy::{Carry, Period, Quota},
    store::MemoryStore,
};
use tidegate_core::{
    Algorithm, BucketState, CooldownState, Debt, HeldUnits, QuotaCharge, QuotaState, SlidingState,
    WindowState,
};

const USERS: [&str; 3] = ["ada", "bob", "eve"];
const ORGS: [&str; 2] = ["x", "y"];

/// A limit that may be any of them, with the arithmetic of the core.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Any {
    Bucket(Bucket),
    Window(Window),
    Sliding(Sliding),
    Cooldown(Cooldown),
    /// Per round, or per minute.
    Quota(Quota, bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Bucket(BucketState),
    Window(WindowState),
    Sliding(SlidingState),
    Cooldown(CooldownState),
    Quota(QuotaState),
}

#[derive(Clone, Copy, Debug)]
struct At {
    now: Timestamp,
    rounds: u64,
}

macro_rules! each {
    ($limit:expr, $state:expr, $l:ident, $s:ident => $then:expr, $q:ident, $r:ident => $quota:expr) => {
        match ($limit, $state) {
            (Any::Bucket($l), State::Bucket($s)) => $then,
            (Any::Window($l), State::Window($s)) => $then,
            (Any::Sliding($l), State::Sliding($s)) => $then,
            (Any::Cooldown($l), State::Cooldown($s)) => $then,
            (Any::Quota($q, $r), State::Quota($s)) => $quota,
            other => panic!("{other:?}"),
        }
    };
}

impl Any {
    fn carries(&self) -> bool {
        matches!(self, Self::Quota(quota, _) if quota.carry() != Carry::Nothing)
    }

    fn period(&self, at: At) -> Period {
        match self {
            Self::Quota(_, true) => Period { index: at.rounds, ends: None },
            _ => {
                let index = at.now.as_nanos() / 60_000_000_000;
                let ends = Some(Timestamp::from_secs((index + 1) * 60));
                Period { index, ends }
            }
        }
    }

    fn fresh(&self, at: At) -> State {
        match self {
            Self::Bucket(limit) => State::Bucket(limit.fresh()),
            Self::Window(limit) => State::Window(limit.fresh()),
            Self::Sliding(limit) => State::Sliding(limit.fresh()),
            Self::Cooldown(limit) => State::Cooldown(limit.fresh()),
            Self::Quota(limit, _) => State::Quota(limit.fresh(self.period(at))),
        }
    }

    fn check(&self, state: &mut State, cost: u64, at: At) -> Decision {
        let period = self.period(at);
        each!(self, state, l, s => l.check(s, cost, at.now), q, _r => q.check(s, cost, period, at.now))
    }

    fn peek(&self, state: &State, cost: u64, at: At) -> Decision {
        let period = self.period(at);
        each!(self, state, l, s => l.peek(s, cost, at.now), q, _r => q.peek(s, cost, period, at.now))
    }

    /// A window counts all of what it denies, other limits what remains.
    fn charge_refused(&self, state: &mut State, cost: u64, at: At) {
        if let (Self::Window(limit), State::Window(state)) = (self, &mut *state) {
            limit.count(state, cost, at.now);
            return;
        }
        let left = self.peek(state, 0, at).remaining();
        let _ = self.check(state, left, at);
    }

    fn hold(&self, state: &mut State, cost: u64, at: At) -> Decision {
        let period = self.period(at);
        each!(self, state, l, s => l.hold(s, cost, at.now), q, _r => q.hold(s, cost, period, at.now))
    }

    /// Returns what was charged, and what of it can be refunded.
    /// Returns what was charged, and of that what can be refunded and what is owed.
    fn commit(&self, state: &mut State, held: HeldUnits, actual: u64, at: At) -> (u64, [u64; 2]) {
        let (period, units) = (self.period(at), held.units);
        let charged = each!(self, state, l, s => l.commit(s, units, actual, at.now), q, _r => {
            let committed = q.commit(s, held, actual, period);
            return (committed.charged, [committed.charged - committed.closed, committed.debt]);
        });
        (charged, [charged, 0])
    }

    fn refund(&self, state: &mut State, units: u64, at: At) -> u64 {
        let period = self.period(at);
        each!(self, state, l, s => l.refund(s, units, at.now), q, _r => q.refund(s, units, period))
    }

    /// Refunds up to `units` of the charge that left the state `charge`, and takes them from both,
    /// and from what is left to refund.
    fn refund_charge(
        &self,
        state: &mut State,
        (charge, [left, debt]): (&mut State, [&mut u64; 2]),
        units: u64,
        at: At,
    ) -> u64 {
        if let (Self::Quota(limit, _), State::Quota(state), State::Quota(charge)) =
            (self, &mut *state, &mut *charge)
        {
            let mut of_hold = QuotaCharge { state: *charge, units: *left, debt: *debt };
            let refunded = limit.refund_charge(state, &mut of_hold, units, self.period(at));
            (*charge, *left, *debt) = (of_hold.state, of_hold.units, of_hold.debt);
            return refunded;
        }
        let refunded = self.refund_left(state, charge, units.min(*left), at);
        *left -= refunded;
        refunded
    }

    fn refund_left(&self, state: &mut State, charge: &mut State, units: u64, at: At) -> u64 {
        match (self, state, charge) {
            (Self::Bucket(limit), State::Bucket(state), State::Bucket(charge)) => {
                limit.refund_charge(state, charge, units, at.now)
            }
            (limit, state, charge) => {
                let outstanding = limit.refund(&mut charge.clone(), units, at);
                let refunded = limit.refund(state, units.min(outstanding), at);
                limit.refund(charge, refunded, at);
                refunded
            }
        }
    }

    /// Whether the engine may have reused the slot of such a state.
    fn is_idle(&self, state: &State, at: At) -> bool {
        let period = self.period(at);
        each!(self, state, l, s => l.is_idle(s, at.now), q, _r => {
            let QuotaState { used, held, debt, .. } = q.current(s, period);
            !self.carries() && (used, held, debt) == (0, 0, 0)
        })
    }

    /// This limit as it takes over from another, by an edit of its numbers.
    fn succeeding(self, old: &Self) -> Self {
        match (self, old) {
            (Self::Bucket(new), Self::Bucket(old)) => Self::Bucket(new.succeeding(old)),
            (new, _) => new,
        }
    }

    fn carry_over(&self, old: &Self, state: &State, at: At) -> State {
        match (self, old, state) {
            (Self::Bucket(new), Self::Bucket(old), State::Bucket(state)) => {
                State::Bucket(new.carry_over(old, state, at.now))
            }
            (Self::Window(new), Self::Window(old), State::Window(state)) => {
                State::Window(new.carry_over(old, state, at.now))
            }
            (Self::Sliding(new), Self::Sliding(old), State::Sliding(state)) => {
                State::Sliding(new.carry_over(old, state, at.now))
            }
            (_, Self::Quota(quota, _), State::Quota(state)) => {
                State::Quota(quota.current(state, old.period(at)))
            }
            (_, _, state) => *state,
        }
    }

    fn in_policy(self) -> Limit {
        match self {
            Self::Bucket(limit) => Limit::Bucket(limit),
            Self::Window(limit) => Limit::Window(limit),
            Self::Sliding(limit) => Limit::Sliding(limit),
            Self::Cooldown(limit) => Limit::Cooldown(limit),
            Self::Quota(limit, true) => Limit::Quota(limit, Periods::Round),
            Self::Quota(limit, false) => {
                Limit::Quota(limit, Periods::Calendar("minute".parse().unwrap()))
            }
        }
    }
}

/// A rule of the model, which can also be written as policy text.
#[derive(Clone, Debug)]
struct Given {
    limit: Any,
    by_user: bool,
    by_org: bool,
    is_shadow: bool,
    charges_refused: bool,
    fixed_cost: Option<u64>,
    group: bool,
    /// Another limit for Ada.
    override_rule: Option<Any>,
    reserve_s: u64,
}

impl Given {
    fn in_policy(&self, number: usize) -> Rule {
        let mut limit = self.limit;
        if let (Any::Cooldown(cooldown), true) = (&mut limit, self.charges_refused) {
            *cooldown = Cooldown::new(cooldown.gap());
        }
        let parts = [(self.by_user, "user"), (self.by_org, "org")];
        let parts = parts.iter().filter(|(is_part, _)| *is_part).map(|(_, part)| *part);
        let mut rule = Rule::builder(&format!("rule-{number}"), limit.in_policy())
            .key(parts)
            .mode(if self.is_shadow { Mode::Shadow } else { Mode::Enforce })
            .reserve_for(Duration::from_secs(self.reserve_s));
        if self.charges_refused {
            rule = rule.charge_refused();
        }
        if let Some(cost) = self.fixed_cost {
            rule = rule.cost(CostTable::fixed(cost));
        }
        if self.group {
            rule = rule.group("one");
        }
        if let (Some(limit), true) = (self.override_rule, self.by_user) {
            let ada = vec![Condition::new("user", ["ada"]).unwrap()];
            rule = rule.overridden(Override::new(ada, Grant::Limit(limit.in_policy())));
        }
        rule.build().unwrap()
    }
}

/// A rule of the model, with limits as they have become through edits.
#[derive(Clone, Debug)]
struct Ruled {
    given: Given,
    common: Any,
    override_rule: Option<Any>,
}

impl Ruled {
    fn new(given: &Given) -> Self {
        let extended = |limit| match limit {
            Any::Cooldown(cooldown) if given.charges_refused => {
                Any::Cooldown(cooldown.extended_by_refusals())
            }
            limit => limit,
        };
        let override_rule = given.override_rule.filter(|_| given.by_user).map(extended);
        Self { given: given.clone(), common: extended(given.limit), override_rule }
    }

    /// The first rule of its name: an override begins with ticks that are also those of the common limit.
    fn first(given: &Given) -> Self {
        let mut rule = Self::new(given);
        rule.override_rule = rule.override_rule.map(|limit| limit.succeeding(&rule.common));
        rule
    }

    fn limit_of(&self, user: &str) -> &Any {
        self.override_rule.as_ref().filter(|_| user == "ada").unwrap_or(&self.common)
    }
}

#[derive(Clone, Debug)]
struct Entry {
    limit: Any,
    state: State,
    /// When it came under that limit.
    since: Timestamp,
    /// When it was edited last, and what it was before the edits at that time.
    before_edits: Option<(Timestamp, Box<Self>)>,
}

impl Entry {
    fn fresh(limit: Any, at: At) -> Self {
        Self { limit, state: limit.fresh(at), since: Timestamp::ZERO, before_edits: None }
    }
}

type Key = (usize, String);

#[derive(Clone, Debug)]
struct ModelItem {
    key: Key,
    /// On hold, or what of the charge can be refunded.
    units: u64,
    /// What of the charge is owed.
    debt: u64,
    period: u64,
    is_by_request: bool,
    /// The state after the charge.
    charged: Option<Entry>,
}

impl ModelItem {
    fn on_hold(&self) -> HeldUnits {
        HeldUnits { units: self.units, period: self.period }
    }
}

#[derive(Clone, Debug)]
struct ModelHold {
    items: Vec<ModelItem>,
    expires: Timestamp,
    is_open: bool,
    /// No rule holds anything: it can be settled in any way until it expires.
    is_unlimited: bool,
    /// How it was settled, and the result: committed with these units, or cancelled.
    ended: Option<(Option<Option<u64>>, u64)>,
}

#[derive(Default)]
struct Model {
    rules: Vec<Ruled>,
    states: HashMap<Key, Entry>,
    holds: Vec<ModelHold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Check,
    Peek,
    Reserve,
}

struct Expected {
    is_allowed: bool,
    rules: Vec<(usize, bool, Decision)>,
    hold: Option<usize>,
}

impl Model {
    fn expire(&mut self, at: At) {
        let mut due: Vec<usize> = (0..self.holds.len())
            .filter(|&hold| self.holds[hold].is_open && self.holds[hold].expires <= at.now)
            .collect();
        due.sort_by_key(|&hold| self.holds[hold].expires);
        for hold in due {
            self.holds[hold].is_open = false;
            let at = At { now: self.holds[hold].expires, ..at };
            for item in std::mem::take(&mut self.holds[hold].items) {
                if let Some(entry) = self.states.get_mut(&item.key) {
                    entry.limit.commit(&mut entry.state, item.on_hold(), 0, at);
                }
            }
        }
    }

    fn decide(&mut self, verb: Verb, (user, org): (&str, &str), cost: u64, at: At) -> Expected {
        self.expire(at);
        let verb = if cost == 0 { Verb::Peek } else { verb };
        let mut decided: Vec<(usize, Key, Entry, Entry, u64, Decision)> = Vec::new();
        let mut is_grouped = false;
        let mut is_allowed = true;
        for (number, rule) in self.rules.iter().enumerate() {
            if rule.given.group && std::mem::replace(&mut is_grouped, true) {
                continue;
            }
            let key = (number, key_of(&rule.given, user, org));
            let limit = *rule.limit_of(user);
            let fresh = || Entry::fresh(limit, at);
            let before = self.states.get(&key).cloned().unwrap_or_else(fresh);
            assert_eq!(before.limit, limit, "edits go through all states");
            let mut after = before.clone();
            let cost = if cost == 0 { 0 } else { rule.given.fixed_cost.unwrap_or(cost) };
            let decision = match verb {
                Verb::Check => before.limit.check(&mut after.state, cost, at),
                Verb::Reserve => before.limit.hold(&mut after.state, cost, at),
                // Nothing carries over to a key that no request has made known.
                Verb::Peek if !self.states.contains_key(&key) && limit.carries() => {
                    before.limit.peek(&after.state, cost, at).with_unknown_wait()
                }
                Verb::Peek => before.limit.peek(&after.state, cost, at),
            };
            is_allowed &= decision.is_allowed() || rule.given.is_shadow;
            decided.push((number, key, before, after, cost, decision));
        }
        let mut expected = Expected { is_allowed, rules: Vec::new(), hold: None };
        let mut items = Vec::new();
        for (number, key, before, mut after, cost, mut decision) in decided {
            let rule = &self.rules[number].given;
            if verb != Verb::Peek && before.limit.carries() {
                // What is carried over counts from the first request on, be it allowed or not.
                self.states.entry(key.clone()).or_insert_with(|| before.clone());
            }
            let is_charged_anyway = rule.charges_refused && verb == Verb::Check;
            if is_allowed || is_charged_anyway {
                if is_charged_anyway && !decision.is_allowed() {
                    after.limit.charge_refused(&mut after.state, cost, at);
                    decision = after.limit.peek(&after.state, cost, at);
                }
                if after.state != before.state {
                    self.states.insert(key.clone(), after.clone());
                }
            } else if decision.is_allowed() || after.state != before.state {
                decision = before.limit.peek(&before.state, cost, at);
            }
            if decision.is_allowed() {
                let period = match after.state {
                    State::Quota(state) => state.period,
                    _ => 0,
                };
                let is_by_request = rule.fixed_cost.is_none();
                let (debt, charged) = (0, None);
                items.push(ModelItem { key, units: cost, debt, period, is_by_request, charged });
            }
            expected.rules.push((number, rule.is_shadow, decision));
        }
        if is_allowed && verb == Verb::Reserve && !expected.rules.is_empty() {
            let lengths = expected.rules.iter().map(|(rule, ..)| self.rules[*rule].given.reserve_s);
            let length = Duration::from_secs(lengths.min().unwrap());
            expected.hold = Some(self.holds.len());
            let expires = at.now.saturating_add(length);
            let is_unlimited = items.is_empty();
            let (is_open, ended) = (true, None);
            self.holds.push(ModelHold { items, expires, is_open, is_unlimited, ended });
        }
        expected
    }

    fn commit(&mut self, hold: usize, actual: Option<u64>, at: At) -> Option<u64> {
        self.expire(at);
        let held = &mut self.holds[hold];
        if held.is_unlimited {
            return (at.now < held.expires).then_some(0);
        }
        if !std::mem::replace(&mut held.is_open, false) {
            return held.ended.filter(|(how, _)| *how == Some(actual)).map(|(_, units)| units);
        }
        let committed = actual;
        let (mut most, mut least) = (0, None);
        for item in &mut held.items {
            let actual = actual.filter(|_| item.is_by_request).unwrap_or(item.units);
            let limit = self.rules[item.key.0].limit_of(item.key.1.split('/').next().unwrap());
            if let (Any::Cooldown(_), false) = (limit, self.states.contains_key(&item.key)) {
                // Nothing is held there, and an act is an act.
                (item.units, most) = (actual, most.max(actual));
                continue;
            }
            // Without carry, the state of a hold whose period is over can be gone.
            let fresh = || Entry::fresh(*limit, at);
            let entry = self.states.entry(item.key.clone()).or_insert_with(fresh);
            let (charged, left) = entry.limit.commit(&mut entry.state, item.on_hold(), actual, at);
            [item.units, item.debt] = left;
            most = most.max(charged);
            if item.is_by_request && !matches!(entry.state, State::Cooldown(_)) {
                least = Some(least.map_or(charged, |least: u64| least.min(charged)));
            }
            item.charged = Some(entry.clone());
        }
        // What was not charged somewhere is for the host to book.
        let units = least.unwrap_or(most);
        held.ended = Some((Some(committed), units));
        Some(units)
    }

    fn cancel(&mut self, hold: usize, at: At) -> Option<u64> {
        self.expire(at);
        let held = &mut self.holds[hold];
        if held.is_unlimited {
            return (at.now < held.expires).then_some(0);
        }
        if !std::mem::replace(&mut held.is_open, false) {
            return held.ended.filter(|(how, _)| how.is_none()).map(|(_, units)| units);
        }
        held.ended = Some((None, 0));
        for item in std::mem::take(&mut held.items) {
            if let Some(entry) = self.states.get_mut(&item.key) {
                entry.limit.commit(&mut entry.state, item.on_hold(), 0, at);
            }
        }
        Some(0)
    }

    /// Refunds a part of what a hold charged.
    fn refund_hold(&mut self, hold: usize, units: u64, at: At) -> u64 {
        let mut most = 0;
        for item in &mut self.holds[hold].items {
            let ModelItem { key, units: left, debt, charged: Some(charged), .. } = item else {
                continue;
            };
            let Some(entry) = self.states.get_mut(key) else { continue };
            let charge = (&mut charged.state, [left, debt]);
            most = most.max(entry.limit.refund_charge(&mut entry.state, charge, units, at));
        }
        most
    }

    fn refund(&mut self, (user, org): (&str, &str), units: u64, at: At) -> u64 {
        self.expire(at);
        let mut most = 0;
        let mut is_grouped = false;
        for (number, rule) in self.rules.iter().enumerate() {
            if rule.given.group && std::mem::replace(&mut is_grouped, true) {
                continue;
            }
            let units = if units == 0 { 0 } else { rule.given.fixed_cost.unwrap_or(units) };
            let key = (number, key_of(&rule.given, user, org));
            if let Some(entry) = self.states.get_mut(&key) {
                most = most.max(entry.limit.refund(&mut entry.state, units, at));
            }
        }
        most
    }

    /// Puts other limits into force and takes every state over.
    fn edit(&mut self, rules: &[Given], at: At) {
        for (number, given) in rules.iter().enumerate() {
            let old = self.rules[number].clone();
            let mut new = Ruled::new(given);
            if new.common == old.common {
                new.common = old.common;
            } else {
                new.common = new.common.succeeding(&old.common);
            }
            if let (Some(override_rule), Some(old)) = (&mut new.override_rule, old.override_rule) {
                *override_rule =
                    if *override_rule == old { old } else { override_rule.succeeding(&old) };
            }
            let items = self.holds.iter_mut().flat_map(|hold| &mut hold.items);
            for item in items.filter(|item| item.key.0 == number) {
                let key = &item.key.1;
                item.charged.iter_mut().for_each(|entry| take_over(&new, key, entry, at));
            }
            for ((_, key), entry) in self.states.iter_mut().filter(|((of, _), _)| *of == number) {
                take_over(&new, key, entry, at);
            }
            self.rules[number] = new;
        }
    }

    /// Forgets the states of a caller. Returns whether there were any, and whether one of them was
    /// not idle.
    fn forget(&mut self, (user, org): (&str, &str), at: At) -> (bool, bool) {
        let (mut any, mut any_live) = (false, false);
        let mut is_grouped = false;
        for (number, rule) in self.rules.iter().enumerate() {
            if rule.given.group && std::mem::replace(&mut is_grouped, true) {
                continue;
            }
            let key = (number, key_of(&rule.given, user, org));
            if let Some(entry) = self.states.get_mut(&key) {
                any = true;
                any_live |= !entry.limit.is_idle(&entry.state, at);
                let mut held = held(&entry.state);
                let mut fresh = entry.limit.fresh(at);
                match &mut fresh {
                    State::Bucket(state) => state.held = held,
                    State::Window(state) => state.held = held,
                    State::Sliding(state) => state.held = held,
                    State::Cooldown(_) => {}
                    State::Quota(state) => {
                        if let (Any::Quota(limit, _), State::Quota(old)) =
                            (entry.limit, entry.state)
                        {
                            let old = limit.current(&old, entry.limit.period(at));
                            (state.held, state.held_from) = (old.held, old.held_from);
                        }
                        held = state.held;
                    }
                }
                if held == 0 {
                    self.states.remove(&key);
                } else {
                    entry.state = fresh;
                }
            }
        }
        (any, any_live)
    }
}

/// Puts a state under the limit that a rule has for its key by now.
fn take_over(rule: &Ruled, key: &str, entry: &mut Entry, at: At) {
    let limit = *rule.limit_of(key.split('/').next().unwrap());
    // What was in force for no time has changed nothing, so nothing was rounded for it. A round may have
    // closed in no time.
    if !matches!(limit, Any::Quota(..)) {
        let before = entry.before_edits.take().filter(|(edited, _)| *edited == at.now);
        let before = before.map_or_else(|| Box::new(entry.clone()), |(_, before)| before);
        *entry = Entry { before_edits: Some((at.now, before.clone())), ..*before };
    }
    if limit != entry.limit {
        // What has left a sliding window does not come back; there and back at once is the
        // identity.
        if let (Any::Sliding(old), State::Sliding(state)) = (entry.limit, &mut entry.state)
            && entry.since < at.now
        {
            let before = Timestamp::from_nanos(at.now.as_nanos() - 1);
            *state = old.current(state, before);
        }
        // Units on hold alone open no window.
        if let (Any::Window(new), State::Window(state)) = (limit, &mut entry.state)
            && state.used == 0
        {
            state.ends_ns = state.ends_ns.min(new.end_of_window_at(at.now));
        }
        entry.state = limit.carry_over(&entry.limit, &entry.state, at);
        entry.since = at.now;
    } else if let (Any::Bucket(_), Any::Bucket(_)) = (limit, entry.limit) {
        // The same numbers, which may count in other ticks.
        entry.state = limit.carry_over(&entry.limit, &entry.state, at);
    }
    entry.limit = limit;
}

fn held(state: &State) -> u64 {
    match state {
        State::Bucket(state) => state.held,
        State::Window(state) => state.held,
        State::Sliding(state) => state.held,
        State::Cooldown(_) => 0,
        State::Quota(state) => state.held,
    }
}

fn key_of(rule: &Given, user: &str, org: &str) -> String {
    let user = if rule.by_user { user } else { "" };
    let org = if rule.by_org { org } else { "" };
    format!("{user}/{org}")
}

#[derive(Clone, Debug)]
enum Op {
    Decide(Verb, usize, usize, u64),
    Advance(u64),
    Commit(usize, Option<u64>),
    Cancel(usize),
    RefundHold(usize, u64),
    Refund(usize, usize, u64),
    Forget(usize, usize),
    CloseRound,
    /// Gives a rule other numbers, and Ada perhaps others still.
    Edit(usize, Numbers, Option<Numbers>),
}

/// Numbers for whichever algorithm a rule has.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    max: u64,
    per_ms: u64,
    count: u64,
    flavour: u8,
}

fn limit(algorithm: u8, numbers: Numbers) -> Any {
    let Numbers { max, per_ms, count, flavour } = numbers;
    let per = Duration::from_millis(per_ms);
    match algorithm % 6 {
        0 => {
            let bucket = Bucket::try_new(Rate::new(count, per), max).unwrap();
            Any::Bucket(bucket.with_debt(Debt::up_to(u64::from(flavour % 3))).unwrap())
        }
        1 => {
            let window = Window::new(max, per);
            Any::Window(if flavour % 2 == 0 { window } else { window.aligned() })
        }
        2 => Any::Sliding(Sliding::new(max * 2, per, u32::from(flavour % 5) + 1)),
        3 => Any::Cooldown(Cooldown::new(per / 4)),
        kind => {
            let carry = match flavour % 3 {
                0 => Carry::Nothing,
                1 => Carry::UpTo(count),
                _ => Carry::All,
            };
            let debt = match flavour / 3 % 3 {
                0 => Debt::All,
                1 => Debt::UpTo(count),
                _ => Debt::Nothing,
            };
            Any::Quota(Quota::new(max, carry).with_debt(debt).unwrap(), kind == 4)
        }
    }
}

/// An override of a window is aligned where its rule is.
fn like_its_rule(override_rule: Any, rule: Any) -> Any {
    match (override_rule, rule) {
        (Any::Window(override_rule), Any::Window(rule)) => {
            let window = Window::new(override_rule.max(), override_rule.per());
            Any::Window(if rule.is_aligned() { window.aligned() } else { window })
        }
        (override_rule, _) => override_rule,
    }
}

fn numbers() -> impl Strategy<Value = Numbers> {
    (1_u64..9, prop_oneof![1_u64..4_000, Just(1_000), Just(30_000)], 1_u64..8, any::<u8>())
        .prop_map(|(max, per_ms, count, flavour)| Numbers { max, per_ms, count, flavour })
}

fn given() -> impl Strategy<Value = (u8, Given)> {
    let flags = (any::<bool>(), any::<bool>(), 0..5_u8, 0..5_u8, 0..4_u8, any::<bool>());
    let numbers = (numbers(), proptest::option::of(numbers()), 0..6_u8, 1_u64..60, 1_u64..4);
    (flags, numbers).prop_map(|(flags, (common, override_rule, algorithm, reserve_s, cost))| {
        let (by_user, by_org, shadow, charges, fixed, group) = flags;
        let own = limit(algorithm, common);
        let override_rule =
            override_rule.map(|numbers| like_its_rule(limit(algorithm, numbers), own));
        (
            algorithm,
            Given {
                limit: own,
                by_user,
                by_org,
                is_shadow: shadow == 0,
                charges_refused: charges == 0,
                fixed_cost: (fixed == 0).then_some(cost),
                group,
                override_rule: override_rule.filter(|_| by_user),
                reserve_s,
            },
        )
    })
}

fn op() -> impl Strategy<Value = Op> {
    let verb = prop_oneof![4 => Just(Verb::Check), 1 => Just(Verb::Peek), 2 => Just(Verb::Reserve)];
    let advance = prop_oneof![
        0_u64..3_000,
        (0_u64..3_000_000),
        Just(1_000_000),
        Just(60_000_000),
        (0_u64..100_000_000)
    ];
    prop_oneof![
        10 => (verb, 0..3_usize, 0..2_usize, 0_u64..6)
            .prop_map(|(verb, user, org, cost)| Op::Decide(verb, user, org, cost)),
        5 => advance.prop_map(Op::Advance),
        2 => (any::<usize>(), proptest::option::of(0_u64..9)).prop_map(|(id, it)| Op::Commit(id, it)),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => (any::<usize>(), 0_u64..9).prop_map(|(id, units)| Op::RefundHold(id, units)),
        1 => (0..3_usize, 0..2_usize, 0_u64..9).prop_map(|(user, org, it)| Op::Refund(user, org, it)),
        1 => (0..3_usize, 0..2_usize).prop_map(|(user, org)| Op::Forget(user, org)),
        1 => Just(Op::CloseRound),
        2 => (any::<usize>(), numbers(), proptest::option::of(numbers()))
            .prop_map(|(rule, numbers, override_rule)| Op::Edit(rule, numbers, override_rule)),
    ]
}

fn policy(rules: &[(u8, Given)]) -> Policy {
    let rules = rules.iter().enumerate().map(|(number, (_, given))| given.in_policy(number));
    Policy::new(rules).unwrap_or_else(|errors| panic!("{errors}"))
}

struct Run {
    engine: StoreEngine,
    clock: ManualClock,
    model: Model,
    rules: Vec<(u8, Given)>,
    rounds: u64,
    /// Reservations, with the model's number of each.
    holds: Vec<(HoldId, usize)>,
    /// When the last edit was, if nothing but edits came since.
    edited: Option<Timestamp>,
}

impl Run {
    fn new(rules: Vec<(u8, Given)>, store: MemoryStore) -> Self {
        let clock = ManualClock::new(Timestamp::from_secs(1_000));
        let engine =
            StoreEngine::builder(policy(&rules)).store(store).clock(clock.clone()).build().unwrap();
        let model = Model {
            rules: rules.iter().map(|(_, given)| Ruled::first(given)).collect(),
            ..Model::default()
        };
        Self { engine, clock, model, rules, rounds: 0, holds: Vec::new(), edited: None }
    }

    fn at(&self) -> At {
        At { now: tidegate::clock::Clock::now(&self.clock), rounds: self.rounds }
    }

    /// The engine's report; `None` if it has no room for another reservation.
    fn send(&self, verb: Verb, (user, org): (&str, &str), cost: u64) -> Option<Report> {
        let attributes = [("user", user), ("org", org)];
        let request = Request::new("default", &attributes).cost(cost);
        let report = match verb {
            Verb::Check => self.engine.check(&request),
            Verb::Peek => self.engine.peek(&request),
            Verb::Reserve => self.engine.hold(&request),
        };
        match report.block() {
            Err(CheckError::TooManyHolds(_)) => None,
            report => Some(report.unwrap()),
        }
    }

    fn edit(&mut self, rule: usize, numbers: Numbers, override_rule: Option<Numbers>) {
        let number = rule % self.rules.len();
        let (algorithm, given) = &mut self.rules[number];
        // Whether a window is aligned, and what ends a quota's period, stays.
        // So does whether a quota carries over, as keys without charges may be forgotten.
        let like = |numbers: Numbers, old: Any| {
            let flavour = numbers.flavour % 60 / 3 * 3 + u8::from(old.carries());
            limit(*algorithm, if *algorithm < 4 { numbers } else { Numbers { flavour, ..numbers } })
        };
        given.limit = like(numbers, given.limit);
        // Whether there is an override stays as well: holds and refunds use the limit that the key
        // was last charged under.
        if let (Some(override_rule), Some(numbers)) = (&mut given.override_rule, override_rule) {
            *override_rule = like(numbers, *override_rule);
        }
        given.override_rule =
            given.override_rule.map(|override_rule| like_its_rule(override_rule, given.limit));
        let rules: Vec<Given> = self.rules.iter().map(|(_, given)| given.clone()).collect();
        // Edits at one instant are as one. With a decision in between the first was in force for no time, but
        // may have been written.
        if self.edited.replace(self.at().now) != Some(self.at().now) {
            self.clock.advance(Duration::from_nanos(1));
            self.edited = Some(self.at().now);
        }
        let at = self.at();
        // An expired hold is released under the limit before.
        self.model.expire(at);
        self.model.edit(&rules, at);
        self.engine.edit("test", Edit::policy(policy(&self.rules))).block().unwrap();
    }

    /// Does the same to both, and compares all there is to compare.
    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let at = self.at();
        self.edited = self.edited.filter(|_| matches!(op, Op::Edit(..)));
        match *op {
            Op::Decide(verb, user, org, cost) => {
                let cost = if verb == Verb::Reserve { cost.max(1) } else { cost };
                let caller = (USERS[user], ORGS[org]);
                let expected = self.model.decide(verb, caller, cost, at);
                let report = self.send(verb, caller, cost).unwrap();
                let is_quota = |(_, given): &(u8, Given)| matches!(given.limit, Any::Quota(..));
                let has_quota = self.rules.iter().any(is_quota);
                let has_holds = self.model.holds.iter().any(|hold| hold.is_open);
                compare(&report, &expected, has_quota, has_holds)?;
                if let (Some(id), Some(hold)) = (report.hold(), expected.hold) {
                    self.holds.push((id, hold));
                }
            }
            Op::Advance(us) => self.clock.advance(Duration::from_micros(us)),
            Op::Commit(hold, actual) if !self.holds.is_empty() => {
                let (id, hold) = self.holds[hold % self.holds.len()];
                let expected = self.model.commit(hold, actual, at);
                prop_assert_eq!(
                    self.engine.commit(id, actual).block().ok().map(|done| done.charged),
                    expected
                );
            }
            Op::Cancel(hold) if !self.holds.is_empty() => {
                let (id, hold) = self.holds[hold % self.holds.len()];
                let expected = self.model.cancel(hold, at);
                prop_assert_eq!(self.engine.cancel(id, None).block().ok(), expected);
            }
            Op::RefundHold(hold, units) if !self.holds.is_empty() => {
                let (id, hold) = self.holds[hold % self.holds.len()];
                self.model.expire(at);
                if let Ok(given) = self.engine.refund_hold(id, units).block() {
                    prop_assert_eq!(given, self.model.refund_hold(hold, units, at));
                }
            }
            Op::Refund(user, org, units) => {
                let caller = (USERS[user], ORGS[org]);
                let attributes = [("user", caller.0), ("org", caller.1)];
                let request = Request::new("default", &attributes).cost(units);
                let expected = self.model.refund(caller, units, at);
                prop_assert_eq!(self.engine.refund(&request).block().unwrap(), expected);
            }
            Op::Forget(user, org) => {
                let caller = (USERS[user], ORGS[org]);
                let attributes = [("user", caller.0), ("org", caller.1)];
                let request = Request::new("default", &attributes);
                // An expired hold that has not been released would still be held.
                self.engine.tick();
                self.model.expire(at);
                let (any, any_live) = self.model.forget(caller, at);
                // The slot of an idle key may have gone to another key.
                let forgot = self.engine.forget(&request).block().unwrap();
                let is_right = if forgot { any } else { !any_live };
                prop_assert!(is_right, "forgot: {}", forgot);
            }
            Op::CloseRound => {
                self.rounds += 1;
                prop_assert_eq!(
                    self.engine.close_round("default", None).block().unwrap(),
                    self.rounds
                );
            }
            Op::Edit(rule, numbers, override_rule) => {
                self.engine.tick();
                self.edit(rule, numbers, override_rule);
            }
            _ => {}
        }
        // Slots of keys that are as good as new may have been reused.
        prop_assert!(self.engine.len() <= self.model.states.len());
        Ok(())
    }

    /// Sends the step to the engine; whatever it allows, the model must allow as well.
    fn step_safely(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let at = self.at();
        self.edited = self.edited.filter(|_| matches!(op, Op::Edit(..)));
        match *op {
            Op::Decide(verb, user, org, cost) => {
                let cost = if verb == Verb::Reserve { cost.max(1) } else { cost };
                let caller = (USERS[user], ORGS[org]);
                let Some(report) = self.send(verb, caller, cost) else { return Ok(()) };
                if report.is_allowed() {
                    let expected = self.model.decide(verb, caller, cost, at);
                    prop_assert!(expected.is_allowed, "{:?} is allowed: {:?}", op, report);
                    if let (Some(id), Some(hold)) = (report.hold(), expected.hold) {
                        self.holds.push((id, hold));
                    }
                }
            }
            Op::Commit(hold, _) if !self.holds.is_empty() => {
                let (id, hold) = self.holds[hold % self.holds.len()];
                let expected = self.model.commit(hold, None, at);
                let charged = self.engine.commit(id, None).block();
                prop_assert_eq!(charged.is_ok(), expected.is_some());
            }
            Op::Cancel(_) | Op::Advance(_) | Op::CloseRound => {
                if let Op::CloseRound = op {
                    self.rounds += 1;
                    self.engine.close_round("default", None).block().unwrap();
                } else if let Op::Advance(us) = *op {
                    self.clock.advance(Duration::from_micros(us));
                } else {
                    return self.step_cancel(op, at);
                }
            }
            Op::Edit(rule, numbers, override_rule) => {
                self.engine.tick();
                self.edit(rule, numbers, override_rule);
            }
            _ => {}
        }
        Ok(())
    }

    fn step_cancel(&mut self, op: &Op, at: At) -> Result<(), TestCaseError> {
        if let (Op::Cancel(hold), false) = (op, self.holds.is_empty()) {
            let (id, hold) = self.holds[hold % self.holds.len()];
            let expected = self.model.cancel(hold, at);
            prop_assert_eq!(self.engine.cancel(id, None).block().ok(), expected);
        }
        Ok(())
    }
}

fn compare(
    report: &Report,
    expected: &Expected,
    has_quota: bool,
    has_holds: bool,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(report.is_allowed(), expected.is_allowed, "{:?}", report);
    let reported: Vec<(String, bool, Decision)> = report
        .rules()
        .map(|it| (it.rule.name().to_owned(), it.mode == Mode::Shadow, *it.decision))
        .collect();
    let wanted: Vec<(String, bool, Decision)> = expected
        .rules
        .iter()
        .map(|(rule, shadow, it)| (format!("rule-{rule}"), *shadow, *it))
        .collect();
    // Units come back when holds expire; `reference.rs` has what is true of waits then.
    let without_wait = |(rule, is_shadow, it): &(String, bool, Decision)| {
        let is_allowed = it.is_allowed();
        (rule.clone(), *is_shadow, is_allowed, it.limit(), it.remaining(), it.reset())
    };
    if has_holds {
        let reported: Vec<_> = reported.iter().map(without_wait).collect();
        prop_assert_eq!(reported, wanted.iter().map(without_wait).collect::<Vec<_>>());
        return Ok(());
    }
    prop_assert_eq!(reported, wanted);
    // The decisive rule: the denying one with the longest wait, else the one with the least
    // remaining.
    let rank = |wait: Option<Wait>| match wait {
        None => (0, Duration::ZERO),
        Some(Wait::After(wait)) => (1, wait),
        Some(Wait::Unknown) => (2, Duration::ZERO),
        Some(Wait::Never) => (3, Duration::ZERO),
    };
    let binding = expected.rules.iter().filter(|(_, is_shadow, _)| !is_shadow);
    if expected.is_allowed {
        prop_assert_eq!(report.retry_after(), None);
        let least = binding.map(|(_, _, it)| it.remaining()).min();
        let least = least.or_else(|| expected.rules.iter().map(|it| it.2.remaining()).min());
        prop_assert_eq!(report.remaining(), least);
    } else {
        let longest =
            binding.clone().filter(|(_, _, it)| !it.is_allowed()).map(|it| it.2.retry_after());
        let longest = longest.max_by_key(|wait| rank(*wait)).flatten();
        prop_assert!(longest.is_some());
        if has_quota && longest == Some(Wait::Unknown) {
            // The engine looks further ahead than one period; `engine_waits` has what is true.
            prop_assert!(report.retry_after().is_some());
        } else if has_quota || binding.clone().any(|(_, _, it)| it.is_allowed()) {
            // A rule that allowed the request, and charged it all the same, may deny the next one,
            // and so may a quota that an edit lowers in the next period.
            prop_assert!(
                rank(report.retry_after()) >= rank(longest),
                "{:?} {longest:?}",
                report.retry_after()
            );
        } else {
            prop_assert_eq!(report.retry_after(), longest);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn engine_agrees_with_the_model(
        rules in prop::collection::vec(given(), 1..5),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut run = Run::new(rules, MemoryStore::new(1_000, WhenFull::Deny).unwrap());
        for (index, op) in ops.iter().enumerate() {
            run.step(op).map_err(|error| TestCaseError::fail(format!("step {index}: {op:?}: {error}")))?;
        }
    }

    /// With fewer slots than keys it may deny more, but never allow more.
    #[test]
    fn small_engine_allows_no_more_than_the_model(
        rules in prop::collection::vec(given(), 1..4),
        ops in prop::collection::vec(op(), 1..80),
        max_keys in 4_usize..16,
        is_sharing: bool,
    ) {
        let plain = |(algorithm, rule): (u8, Given)| {
            // What an engine that denies more charges to other keys is not compared.
            let (is_shadow, charges_refused) = (false, false);
            (algorithm, Given { is_shadow, charges_refused, ..rule })
        };
        let carries = |(_, rule): &(u8, Given)| {
            let limits = [Some(rule.limit), rule.override_rule].into_iter().flatten();
            limits.into_iter().any(|limit| limit.carries())
        };
        let mut rules: Vec<_> = rules.into_iter().map(plain).collect();
        // A shared counter may save up for a key that was never seen.
        rules.retain(|rule| !carries(rule));
        if rules.is_empty() {
            return Ok(());
        }
        let when_full = if is_sharing { WhenFull::Share } else { WhenFull::Deny };
        let mut run = Run::new(rules, MemoryStore::new(max_keys, when_full).unwrap());
        let keeps = |op: &&Op| !matches!(op, Op::Edit(..));
        for (index, op) in ops.iter().filter(keeps).enumerate() {
            run.step_safely(op).map_err(|error| TestCaseError::fail(format!("step {index}: {op:?}: {error}")))?;
            prop_assert!(run.engine.len() <= 2 * max_keys);
        }
    }
}
