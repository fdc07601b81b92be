//! The whole engine, eager and naive: everything that happens is applied to all keys at its own
//! instant, in the order of time.

use std::collections::HashMap;

use tidegate::Wait;

use super::is_on;
use super::limits::{Decision, Held, Limit, Periods, State, When};
use super::rules::{DOMAINS, FileRule, InForce, KeyEntry, ModelRule, OtherLimit, USERS, Version};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Check,
    Peek,
    Reserve,
    /// Whether a reservation would be allowed; of the model alone.
    PeekReserve,
}

impl Verb {
    fn reserves(self) -> bool {
        matches!(self, Self::Reserve | Self::PeekReserve)
    }

    fn looks(self) -> bool {
        matches!(self, Self::Peek | Self::PeekReserve)
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModelRequest {
    pub(super) verb: Verb,
    pub(super) domain: usize,
    pub(super) user: usize,
    pub(super) cost: u64,
}

/// What a rule has to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpectedRule {
    pub(super) name: String,
    pub(super) decision: Decision,
    /// Whether the limit changes by itself or holds expire, so that more than its own wait counts.
    pub(super) changes_by_itself: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) is_allowed: bool,
    pub(super) rules: Vec<ExpectedRule>,
    /// The index of the new hold.
    pub(super) hold: Option<usize>,
    /// Whether a rule was charged: a denial may be, too.
    pub(super) has_charged: bool,
}

/// Units that a hold has at one rule.
#[derive(Clone, Debug)]
struct HoldItem {
    rule: usize,
    key: String,
    held: Held,
    /// What a refund may still return.
    refundable: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldStage {
    Open,
    Committed,
    Gone,
}

/// How a hold was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settlement {
    /// With a charge of so much, or of what was held.
    Commit(Option<u64>),
    Cancel,
}

#[derive(Clone, Debug)]
struct ModelHold {
    items: Vec<HoldItem>,
    expires: u64,
    length_ns: u64,
    stage: HoldStage,
    /// When it was settled.
    ended: u64,
    /// Whether its request had an idempotency key.
    is_named: bool,
    /// How it was ended, and the units that this returned.
    settled: Option<(Settlement, u64)>,
}

/// A result under an idempotency key.
#[derive(Clone, Copy, Debug)]
struct CachedResult {
    request: ModelRequest,
    at: u64,
    is_allowed: bool,
    hold: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) now: u64,
    /// The last time at which something happened by itself or by an edit.
    pub(super) last_event: u64,
    pub(super) rules: Vec<ModelRule>,
    holds: Vec<ModelHold>,
    rounds: [u64; DOMAINS.len()],
    /// The policy file, by rule.
    pub(super) file: Vec<Option<FileRule>>,
    /// Rules put over it.
    over: Vec<Option<FileRule>>,
    /// Overrides set at run time by rule, newest first.
    set: Vec<Vec<OtherLimit>>,
    /// Results under idempotency keys, by domain and key.
    cached: HashMap<(usize, u8), CachedResult>,
}

impl Model {
    pub(super) fn new(file: &[FileRule], now: u64) -> Self {
        let rules = file.iter().map(|rule| {
            let (common, overrides) = (rule.limit, rule.overrides.clone());
            ModelRule::new(rule, Version { common, overrides }, now)
        });
        Self {
            now,
            last_event: now,
            rules: rules.collect(),
            holds: Vec::new(),
            rounds: [0; DOMAINS.len()],
            file: file.iter().cloned().map(Some).collect(),
            over: vec![None; file.len()],
            set: vec![Vec::new(); file.len()],
            cached: HashMap::new(),
        }
    }
}

/// What happens by itself.
impl Model {
    /// Lets everything happen that is due by `now`.
    pub(super) fn advance(&mut self, now: u64) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            // A late request may be of a period that has closed since, but of no other limit.
            let mut entries = self.rules.iter().flat_map(|rule| rule.keys.values());
            let is_waiting = entries.any(|entry| entry.waiting.is_some());
            if is_waiting || self.next_change() == Some(at) {
                self.last_event = at;
            }
            self.now = at;
            self.expire_holds();
            for periods in [Periods::Minute, Periods::Hour] {
                if periods.period_ns().is_some_and(|period_ns| at % period_ns == 0) {
                    self.close_periods(periods, None);
                }
            }
            self.end_windows();
            for rule in &mut self.rules {
                rule.keys.iter_mut().for_each(|(key, entry)| entry.refresh(key, at));
            }
        }
        self.now = self.now.max(now);
    }

    /// The next instant at which something happens by itself.
    fn next_event(&self) -> Option<u64> {
        let periods = self.rules.iter().filter_map(|rule| rule.periods()?.period_ns());
        let periods = periods.map(|period_ns| (self.now / period_ns + 1) * period_ns);
        periods.chain(self.next_change()).min()
    }

    /// The next instant at which a hold expires, or the limit of a key changes.
    fn next_change(&self) -> Option<u64> {
        let open = self.holds.iter().filter(|hold| hold.stage == HoldStage::Open);
        let expiries = open.map(|hold| hold.expires);
        let entries = || self.rules.iter().flat_map(|rule| rule.keys.values());
        let ends = entries().filter_map(|entry| entry.version.next_end(self.now));
        let windows = entries().filter(|entry| entry.waiting.is_some());
        let windows = windows.filter_map(|entry| match entry.state {
            State::Window { ends, .. } => Some(ends),
            _ => None,
        });
        expiries.chain(ends).chain(windows).min()
    }

    fn expire_holds(&mut self) {
        let now = self.now;
        for index in 0..self.holds.len() {
            let hold = &self.holds[index];
            if hold.stage == HoldStage::Open && hold.expires <= now {
                self.release(index);
            }
        }
    }

    /// A window that has ended, or is empty, lets a waiting version in.
    fn end_windows(&mut self) {
        let now = self.now;
        for (key, entry) in self.rules.iter_mut().flat_map(|rule| &mut rule.keys) {
            let is_window = matches!(entry.state, State::Window { .. });
            if is_window && entry.waiting.is_some() && !entry.state.is_open_window(now) {
                entry.stop_waiting(key, now);
            }
        }
    }

    fn close_periods(&mut self, periods: Periods, domain: Option<usize>) {
        let now = self.now;
        let is_closed = |rule: &&mut ModelRule| {
            rule.periods() == Some(periods)
                && domain.is_none_or(|domain| rule.rule.domain == domain)
        };
        let numbered = (0..).zip(&mut self.rules);
        for (number, rule) in numbered.filter_map(|it| is_closed(&&mut *it.1).then_some(it)) {
            for (key, entry) in &mut rule.keys {
                let limit = entry.in_force.limit;
                if !limit.carries() && is_on("lapsing_holds") {
                    let items = self.holds.iter_mut().flat_map(|hold| &mut hold.items);
                    let its = items.filter(|item| item.rule == number && item.key == *key);
                    its.for_each(|item| item.held.is_lapsed = true);
                }
                if entry.is_known || !limit.carries() {
                    limit.close_period(&mut entry.state);
                }
                entry.charges.values_mut().for_each(|state| limit.close_period(state));
                entry.stop_waiting(key, now);
            }
        }
    }
}

/// Decisions.
impl Model {
    fn when(&self, periods: Option<Periods>, now: u64) -> When {
        let ends = periods.and_then(Periods::period_ns).and_then(|period_ns| {
            let is_open = now / period_ns == self.now / period_ns;
            is_open.then_some((now / period_ns + 1) * period_ns)
        });
        When { now, ends }
    }

    /// The present rules of a domain, by number, with the key of a user.
    fn applying(&self, domain: usize, user: usize) -> Vec<(usize, String)> {
        let applies = |rule: &&ModelRule| rule.is_present && rule.rule.domain == domain;
        let rules = self.rules.iter().filter(applies);
        rules.map(|rule| (rule.rule.number, rule.rule.key_of(USERS[user]))).collect()
    }

    /// Those of them that limit the key.
    fn limited(&self, domain: usize, user: usize) -> Vec<(usize, String)> {
        let is_limited = |id: &(usize, String)| !self.rules[id.0].keys[&id.1].in_force.is_unlimited;
        self.applying(domain, user).into_iter().filter(is_limited).collect()
    }

    fn entry(&mut self, (rule, key): &(usize, String)) -> &mut KeyEntry {
        self.rules[*rule].keys.get_mut(key).unwrap()
    }

    /// Decides a request at `at`, which may be late.
    pub(super) fn decide(&mut self, request: ModelRequest, at: u64) -> Expected {
        let ModelRequest { domain, user, cost, .. } = request;
        let verb = if cost == 0 { Verb::Peek } else { request.verb };
        let mut decided = Vec::new();
        let (mut is_allowed, mut is_payable) = (true, true);
        for id in self.applying(domain, user) {
            let when = self.when(self.rules[id.0].periods(), at);
            let (rule, entry) = (&self.rules[id.0].rule, &self.rules[id.0].keys[&id.1]);
            let InForce { limit, is_unlimited } = entry.in_force;
            if is_unlimited {
                continue;
            }
            // Where costs are booked afterwards, one unit has to be left.
            let is_postpaid = rule.is_postpaid && !verb.reserves();
            let decision = limit.decide(&entry.state, if is_postpaid { 1 } else { cost }, when);
            let is_permitted = decision.is_allowed() || rule.is_shadow;
            is_allowed &= is_permitted;
            is_payable &= is_permitted || is_postpaid;
            decided.push((id, limit, decision, when));
        }
        let (rules, hold, has_charged) = (Vec::new(), None, false);
        let mut expected = Expected { is_allowed, rules, hold, has_charged };
        let mut items = Vec::new();
        for (id, limit, decision, when) in decided {
            let charges_refused = self.rules[id.0].rule.charges_refused && verb == Verb::Check;
            let is_postpaid = self.rules[id.0].rule.is_postpaid && verb == Verb::Check;
            let name = self.rules[id.0].rule.name();
            let entry = self.entry(&id);
            let is_extended = matches!(limit, Limit::Cooldown { is_extended: true, .. });
            let changes_by_itself = entry.waiting.is_some()
                || entry.version.next_end(at).is_some()
                || entry.state.held() > 0
                || (is_extended && verb == Verb::Reserve && !is_on("held_cooldowns"));
            let (fits, before) = (decision.is_allowed(), entry.state.clone());
            let decision = match verb {
                _ if verb.looks() && !fits && !entry.is_known && limit.carries() => {
                    decision.of_unknown_key()
                }
                _ if verb.looks() => decision,
                _ if is_postpaid && is_payable => {
                    limit.book(&mut entry.state, cost, when);
                    let after = limit.decide(&entry.state, 1, when);
                    let allowed = Decision { remaining: after.remaining, ..decision };
                    if fits { allowed } else { after }
                }
                _ if is_postpaid => decision,
                _ if fits && (is_allowed || charges_refused) => {
                    match verb {
                        Verb::Reserve => limit.hold(&mut entry.state, cost, when),
                        _ => limit.charge(&mut entry.state, cost, when),
                    }
                    let after = limit.decide(&entry.state, 0, when);
                    Decision { remaining: after.remaining, ..decision }
                }
                _ if charges_refused => {
                    limit.charge_refused(&mut entry.state, cost, when);
                    limit.decide(&entry.state, cost, when)
                }
                _ => decision,
            };
            entry.is_known |= !verb.looks();
            expected.has_charged |= entry.state != before;
            if fits {
                let held = Held { units: cost, is_lapsed: false };
                items.push(HoldItem { rule: id.0, key: id.1, held, refundable: 0 });
            }
            expected.rules.push(ExpectedRule { name, decision, changes_by_itself });
        }
        if is_allowed && verb == Verb::Reserve {
            expected.hold = Some(self.add_hold(domain, user, items, at));
        }
        expected
    }

    /// When a request that is denied now is allowed, if nothing else comes; `None` if it is not, for as
    /// many changes as are followed.
    pub(super) fn allowed_from(&self, request: ModelRequest) -> Option<u64> {
        let mut model = self.clone();
        for _ in 0..MOST_CHANGES {
            // A look charges nothing, as a rule may do that charges denied requests.
            let expected = model.clone().decide(request, model.now);
            if expected.is_allowed {
                return Some(model.now);
            }
            let waits = expected.rules.iter().filter_map(|rule| match rule.decision.wait {
                Some(Wait::After(wait)) => u64::try_from(wait.as_nanos()).ok(),
                _ => None,
            });
            let waits = waits.filter(|wait| *wait > 0).map(|wait| model.now + wait).min();
            let next = waits.into_iter().chain(model.next_event()).min()?;
            model.advance(next);
        }
        None
    }

    fn add_hold(&mut self, domain: usize, user: usize, items: Vec<HoldItem>, at: u64) -> usize {
        let limited = self.limited(domain, user);
        let length_s =
            limited.iter().map(|id| self.rules[id.0].rule.reserve_s).min().unwrap_or(600);
        let length_ns = length_s * 1_000_000_000;
        self.holds.push(ModelHold {
            is_named: false,
            items,
            expires: at + length_ns,
            length_ns,
            ended: 0,
            stage: HoldStage::Open,
            settled: None,
        });
        self.holds.len() - 1
    }

    /// Decides a request under an idempotency key; `Err` if another request had it.
    pub(super) fn decide_once(
        &mut self,
        request: ModelRequest,
        name: u8,
        at: u64,
    ) -> Result<Expected, ()> {
        if request.verb == Verb::Check && self.limited(request.domain, request.user).is_empty() {
            // There is nothing to decide, so nothing is looked up.
            return Ok(self.decide(request, at));
        }
        let is_young = |cached: &&CachedResult| at - cached.at <= DAY_NS;
        if let Some(before) = self.cached.get(&(request.domain, name)).filter(is_young) {
            let CachedResult { is_allowed, hold, .. } = *before;
            let repeated = Expected { is_allowed, rules: Vec::new(), hold, has_charged: false };
            return if before.request == request { Ok(repeated) } else { Err(()) };
        }
        let expected = self.decide(request, at);
        if let Some(hold) = expected.hold {
            self.holds[hold].is_named = true;
        }
        let is_remembered = expected.is_allowed || expected.has_charged;
        if is_remembered && (!expected.rules.is_empty() || expected.hold.is_some()) {
            let Expected { is_allowed, hold, .. } = expected;
            let result = CachedResult { request, at, is_allowed, hold };
            self.cached.insert((request.domain, name), result);
        }
        Ok(expected)
    }

    /// Whether a key has state that no store may have dropped, at every rule of a domain.
    pub(super) fn is_busy(&self, domain: usize, user: usize) -> bool {
        self.applying(domain, user).iter().all(|(rule, key)| {
            let entry = &self.rules[*rule].keys[key];
            match &entry.state {
                State::Quota { used, .. } => *used > 0,
                state => {
                    let when = When { now: self.now, ends: None };
                    let (limit, mut fresh) = (entry.in_force.limit, entry.in_force.limit.fresh());
                    let is_alike = |state: &State| limit.decide(state, 0, when).remaining;
                    if state.held() > 0 {
                        *fresh.held_mut() = state.held();
                    }
                    is_alike(state) != is_alike(&fresh)
                }
            }
        })
    }
}

/// Settlements.
impl Model {
    /// Ends a hold; `None` if it was ended differently, or has expired.
    ///
    /// The same settlement again returns the first result.
    pub(super) fn settle(&mut self, hold: usize, settlement: Settlement) -> Option<u64> {
        let is_open = self.holds[hold].stage == HoldStage::Open;
        let ModelHold { items, is_named, settled, .. } = &self.holds[hold];
        if items.is_empty() && !is_named && settled.is_none() {
            // No rule limits it, so there is nothing to settle.
            return is_open.then_some(0);
        }
        if is_open {
            let units = match settlement {
                Settlement::Commit(actual) => self.commit(hold, actual),
                Settlement::Cancel => {
                    self.release(hold);
                    0
                }
            };
            self.holds[hold].settled = Some((settlement, units));
            self.holds[hold].ended = self.now;
            return Some(units);
        }
        if self.now - self.holds[hold].ended > DAY_NS {
            return None;
        }
        let settled = self.holds[hold].settled.filter(|_| is_on("repeated_settlements"));
        settled.filter(|(first, _)| *first == settlement).map(|(_, units)| units)
    }

    /// Extends a hold; false if it has ended.
    pub(super) fn renew(&mut self, hold: usize) -> bool {
        let now = self.now;
        let ModelHold { items, is_named, stage, expires, length_ns, .. } = &mut self.holds[hold];
        // The id of a hold that no rule limits says when it ends.
        if *stage == HoldStage::Open && (*is_named || !items.is_empty()) {
            *expires = now + *length_ns;
        }
        *stage == HoldStage::Open
    }

    fn commit(&mut self, hold: usize, actual: Option<u64>) -> u64 {
        self.holds[hold].stage = HoldStage::Committed;
        let mut items = std::mem::take(&mut self.holds[hold].items);
        let (mut most, mut least) = (0, None);
        for item in &mut items {
            let when = self.when(self.rules[item.rule].periods(), self.now);
            let is_postpaid = self.rules[item.rule].rule.is_postpaid;
            let entry = self.rules[item.rule].keys.get_mut(&item.key).unwrap();
            let actual = actual.unwrap_or(item.held.units);
            let limit = entry.in_force.limit;
            let committed = if is_postpaid {
                limit.commit_postpaid(&mut entry.state, item.held, actual, when)
            } else {
                limit.commit(&mut entry.state, item.held, actual, when)
            };
            item.refundable = committed.refundable;
            entry.charges.insert(hold, entry.state.clone());
            most = most.max(committed.charged);
            if !matches!(limit, Limit::Cooldown { .. }) {
                least = Some(least.map_or(committed.charged, |it: u64| it.min(committed.charged)));
            }
        }
        self.holds[hold].items = items;
        self.end_windows();
        least.unwrap_or(most)
    }

    fn release(&mut self, hold: usize) {
        self.holds[hold].stage = HoldStage::Gone;
        self.cached.retain(|_, cached| cached.hold != Some(hold));
        for item in std::mem::take(&mut self.holds[hold].items) {
            let when = self.when(self.rules[item.rule].periods(), self.now);
            let entry = self.rules[item.rule].keys.get_mut(&item.key).unwrap();
            entry.in_force.limit.release(&mut entry.state, item.held, when);
        }
    }

    pub(super) fn refund_hold(&mut self, hold: usize, units: u64) -> Option<u64> {
        let is_old = self.now - self.holds[hold].ended > DAY_NS;
        if self.holds[hold].stage != HoldStage::Committed || is_old {
            return None;
        }
        let mut most = 0;
        let mut items = std::mem::take(&mut self.holds[hold].items);
        for item in &mut items {
            let when = self.when(self.rules[item.rule].periods(), self.now);
            let entry = self.rules[item.rule].keys.get_mut(&item.key).unwrap();
            let charge = entry.charges.get_mut(&hold).unwrap();
            let units = units.min(item.refundable);
            let limit = entry.in_force.limit;
            let refunded = limit.refund_charge(&mut entry.state, charge, units, when);
            item.refundable -= refunded;
            most = most.max(refunded);
        }
        self.holds[hold].items = items;
        self.end_windows();
        Some(most)
    }

    pub(super) fn refund(&mut self, domain: usize, user: usize, units: u64) -> u64 {
        let mut most = 0;
        for id in self.applying(domain, user) {
            let when = self.when(self.rules[id.0].periods(), self.now);
            let entry = self.entry(&id);
            if !entry.in_force.is_unlimited {
                most = most.max(entry.in_force.limit.refund(&mut entry.state, units, when));
            }
        }
        self.end_windows();
        most
    }

    pub(super) fn forget(&mut self, domain: usize, user: usize) {
        for id in self.applying(domain, user) {
            let entry = self.entry(&id);
            if entry.in_force.is_unlimited {
                continue;
            }
            let held = entry.state.held();
            entry.state = entry.in_force.limit.fresh();
            entry.is_known &= held > 0;
            if held > 0 {
                *entry.state.held_mut() = held;
            }
        }
        self.end_windows();
    }

    /// Closes a round, and returns how many are closed.
    pub(super) fn close_round(&mut self, domain: usize) -> u64 {
        if !self.rules.iter().any(|rule| rule.is_present && rule.rule.domain == domain) {
            return 0;
        }
        self.last_event = self.now;
        self.close_periods(Periods::Round, Some(domain));
        self.rounds[domain] += 1;
        self.rounds[domain]
    }
}

/// Edits.
impl Model {
    pub(super) fn edit_file(&mut self, number: usize, rule: Option<FileRule>) {
        self.file[number] = rule;
        self.apply(number);
    }

    pub(super) fn put_over(&mut self, rule: FileRule) {
        let number = rule.number;
        self.over[number] = Some(rule);
        self.apply(number);
    }

    pub(super) fn set_override(&mut self, number: usize, given: OtherLimit) {
        self.set[number].retain(|it| it.target != given.target);
        self.set[number].insert(0, given);
        self.apply(number);
    }

    pub(super) fn remove_override(&mut self, number: usize, given: &OtherLimit) {
        self.set[number].retain(|it| it.target != given.target);
        self.apply(number);
    }

    pub(super) fn remove_overlay(&mut self) {
        for number in 0..self.rules.len() {
            self.over[number] = None;
            self.set[number].clear();
            self.apply(number);
        }
    }

    /// Whether an override in the file, or set at run time, is for the same keys.
    pub(super) fn has_override(&self, number: usize, given: &OtherLimit) -> bool {
        let rule = self.over[number].as_ref().or(self.file[number].as_ref());
        let in_file = rule.into_iter().flat_map(|rule| &rule.overrides);
        in_file.chain(&self.set[number]).any(|it| it.target == given.target)
    }

    /// Puts a rule as the file and the edits over it have it now into force.
    fn apply(&mut self, number: usize) {
        self.last_event = self.now;
        let rule = self.over[number].as_ref().or(self.file[number].as_ref());
        let version = rule.map(|rule| {
            // One that is for another calendar does not fit any more.
            let periods = rule.limit.periods();
            let fits = |it: &&OtherLimit| it.limit.is_none_or(|limit| limit.periods() == periods);
            let set = self.set[number].iter().filter(fits);
            let overrides = set.chain(&rule.overrides).copied().collect();
            Version { common: rule.limit, overrides }
        });
        let version = version.unwrap_or_else(|| (*self.rules[number].version).clone());
        self.rules[number].edit(rule, version, self.now);
    }
}

/// How many changes ahead are followed; the engine follows fewer.
const MOST_CHANGES: usize = 200;

/// How long idempotency keys and settled holds are remembered.
const DAY_NS: u64 = 24 * 3_600_000_000_000;
