//! Runs operations on the engine and on the model, and compares.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::durable::FileOptions;
use tidegate::policy::{Durability, Limit, Policy, Rule, RuleId};
use tidegate::testing::CrashDisk;
use tidegate::{
    Bucket, CheckError, Edit, Report, Request, Sliding, StoreEngine, Timestamp, Wait, WhenFull,
    clock::ManualClock, edit::Overlay, hold::HoldId, store::MemoryStore,
};

use super::generate::{Act, Begin, Kind, Op, OtherNumbers, RuleNumbers, Step};
use super::limits::Periods;
use super::model::{Expected, Model, ModelRequest, Settlement, Verb};
use super::rules::{DOMAINS, FileRule, ModelRule, OtherLimit, USERS};
use super::{MAX_KEYS, is_on};

/// Twenty seconds before a minute ends, and many periods after 1970.
const START_NS: u64 = 72_001_000_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;

/// Where the states are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    Memory,
    Disk,
}

/// The engine under test.
enum Subject {
    Memory(StoreEngine),
    Disk(StoreEngine, CrashDisk),
    /// Between two runs.
    Stopped,
}

macro_rules! with_engine {
    ($subject:expr, $engine:ident => $then:expr) => {
        match $subject {
            Subject::Memory($engine) => $then,
            Subject::Disk($engine, _) => $then,
            Subject::Stopped => panic!("the engine is stopped"),
        }
    };
}

pub(super) struct Run {
    subject: Subject,
    clock: ManualClock,
    model: Model,
    begin: Vec<Begin>,
    /// The id of each hold of the model.
    holds: Vec<HoldId>,
    /// Whether there has been an override.
    is_overridden: bool,
}

impl Run {
    pub(super) fn new(begin: &[Begin], backend: Backend) -> Self {
        let clock = ManualClock::new(Timestamp::from_nanos(START_NS));
        let rules: Vec<FileRule> =
            begin.iter().enumerate().map(|(number, it)| it.first(number, START_NS)).collect();
        let model = Model::new(&rules, START_NS);
        let policy = policy(&model);
        let subject = match backend {
            Backend::Memory => {
                let store = MemoryStore::new(MAX_KEYS, WhenFull::Deny).unwrap();
                Subject::Memory(
                    StoreEngine::builder(policy).store(store).clock(clock.clone()).build().unwrap(),
                )
            }
            Backend::Disk => open(policy, CrashDisk::new(), &clock),
        };
        let (begin, holds) = (begin.to_vec(), Vec::new());
        Self { subject, clock, model, begin, holds, is_overridden: false }
    }

    /// The time of an operation: the clock's, unless it is late.
    fn move_time(&mut self, op: &Op) -> u64 {
        let now = self.model.now;
        let to_minute = (now / MINUTE_NS + 1) * MINUTE_NS;
        let now = match op.step {
            Step::Stay => now,
            Step::LateMs(ms) => return self.late(op, ms),
            Step::ByNanos(nanos) => now + nanos,
            Step::ByMs(ms) => now + ms * 1_000_000,
            Step::ToMinute(before) => to_minute - u64::from(before),
            Step::ByMinutes(minutes) => now + minutes * MINUTE_NS,
            Step::ToHour => (now / HOUR_NS + 1) * HOUR_NS,
            // A rule that is gone for a day may be forgotten.
            Step::ByHours(hours) if self.model.rules.iter().all(|rule| rule.is_present) => {
                now + hours * HOUR_NS
            }
            Step::ByHours(_) => now,
        }
        .max(now);
        self.clock.set(Timestamp::from_nanos(now));
        self.model.advance(now);
        now
    }

    /// A time before the present, but not before what has happened since; the keys have states.
    fn late(&self, op: &Op, ms: u64) -> u64 {
        let now = self.model.now;
        match op.act {
            Act::Decide(ModelRequest { domain, user, verb: Verb::Check | Verb::Peek, .. })
                if self.model.is_busy(domain, user) =>
            {
                (now - ms * 1_000_000).max(self.model.last_event)
            }
            _ => now,
        }
    }

    /// Whether an operation needs something that is switched off.
    fn is_off(&self, act: &Act) -> bool {
        let rules = || self.model.rules.iter();
        let is_quota = |number: usize| self.model.rules[number].periods().is_some();
        match act {
            Act::Restart => {
                let is_memory = matches!(self.subject, Subject::Memory(_));
                !is_on("quota_snapshots") && is_memory && rules().any(|it| it.periods().is_some())
            }
            Act::Remove(rule) => {
                let number = rule % self.begin.len();
                let is_uneven = self.begin[number].kind == Kind::UnevenBucket;
                (!is_on("removed_quotas") && is_quota(number))
                    || (!is_on("removed_uneven") && is_uneven)
            }
            Act::DecideOnce(..) => !is_on("uncharged_keys") && rules().any(|it| it.rule.is_shadow),
            Act::Others(_) => {
                let has_calendar =
                    |rule: &ModelRule| rule.periods().and_then(Periods::period_ns).is_some();
                (!is_on("others_while_removed") && rules().any(|it| !it.is_present))
                    || (!is_on("others_and_calendars") && rules().any(has_calendar))
            }
            Act::RefundHold(..) => !is_on("refunds_after_overrides") && self.is_overridden,
            _ => false,
        }
    }

    pub(super) fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        self.is_overridden |=
            self.model.rules.iter().any(|rule| !rule.version.overrides.is_empty());
        if self.is_off(&op.act) {
            return Ok(());
        }
        if let Act::Restart = op.act {
            return self.restart(op);
        }
        let at = self.move_time(op);
        match &op.act {
            Act::Decide(request) => {
                let expected = self.model.decide(*request, at);
                let report = self.send(*request, None, at).unwrap();
                self.compare(&report, &expected)?;
                if at == self.model.now {
                    self.compare_wait(&report, *request)?;
                }
            }
            Act::DecideOnce(request, name) => self.decide_once(*request, *name, at)?,
            Act::Commit(..) | Act::Cancel(_) | Act::Renew(_) | Act::RefundHold(..) => {
                self.settle(&op.act)?;
            }
            Act::Refund(domain, user, units) => {
                let expected = self.model.refund(*domain, *user, *units);
                let attributes = [("user", USERS[*user])];
                let request = Request::new(DOMAINS[*domain], &attributes).cost(*units);
                let given = with_engine!(&self.subject, it => it.refund(&request).block().unwrap());
                prop_assert_eq!(given, expected, "refund");
            }
            Act::Forget(domain, user) => {
                self.model.forget(*domain, *user);
                let attributes = [("user", USERS[*user])];
                let request = Request::new(DOMAINS[*domain], &attributes);
                with_engine!(&self.subject, it => it.forget(&request).block().unwrap());
            }
            Act::CloseRound(domain) => {
                let expected = self.model.close_round(*domain);
                let domain = DOMAINS[*domain];
                let given = with_engine!(&self.subject, it => it.close_round(domain, None).block().unwrap());
                prop_assert_eq!(given, expected, "rounds closed");
            }
            Act::LookAtAll(cost) => self.look_at_all(*cost, at)?,
            Act::LookAhead(cost, ms) => self.look_ahead(*cost, at + ms * 1_000_000)?,
            Act::Snapshot => {
                if let Subject::Disk(engine, _) = &self.subject {
                    engine.file_store().unwrap().take_snapshot().unwrap();
                }
            }
            Act::Others(count) => self.send_others(*count),
            _ => self.edit(&op.act),
        }
        Ok(())
    }

    /// Ends or extends a hold, or refunds what it charged.
    fn settle(&mut self, act: &Act) -> Result<(), TestCaseError> {
        match act {
            Act::Commit(hold, actual) => {
                let Some((hold, id)) = self.hold(*hold) else { return Ok(()) };
                let expected = self.model.settle(hold, Settlement::Commit(*actual));
                let given = with_engine!(&self.subject, it => it.commit(id, *actual).block().ok().map(|done| done.charged));
                prop_assert_eq!(given, expected, "commit");
            }
            Act::Cancel(hold) => {
                let Some((hold, id)) = self.hold(*hold) else { return Ok(()) };
                let expected = self.model.settle(hold, Settlement::Cancel);
                let given = with_engine!(&self.subject, it => it.cancel(id, None).block().ok());
                prop_assert_eq!(given, expected, "cancel");
            }
            Act::RefundHold(hold, units) => {
                let Some((hold, id)) = self.hold(*hold) else { return Ok(()) };
                let expected = self.model.refund_hold(hold, *units);
                let given =
                    with_engine!(&self.subject, it => it.refund_hold(id, *units).block().ok());
                prop_assert_eq!(given, expected, "refund of a hold");
            }
            Act::Renew(hold) => {
                let Some((hold, id)) = self.hold(*hold) else { return Ok(()) };
                let expected = self.model.renew(hold);
                let given = with_engine!(&self.subject, it => it.renew(id).block().is_ok());
                prop_assert_eq!(given, expected, "renewal");
            }
            other => panic!("{other:?} settles nothing"),
        }
        Ok(())
    }

    /// Looks at every key. The model's states stay as they are, so the engine's have to.
    fn look_at_all(&mut self, cost: u64, at: u64) -> Result<(), TestCaseError> {
        for (domain, user) in
            (0..DOMAINS.len()).flat_map(|it| (0..USERS.len()).map(move |u| (it, u)))
        {
            let request = ModelRequest { verb: Verb::Peek, domain, user, cost };
            let expected = self.model.decide(request, at);
            let report = self.send(request, None, at).unwrap();
            self.compare(&report, &expected)?;
        }
        Ok(())
    }

    /// Looks at every key as of a later time, as it would be if nothing came until then.
    fn look_ahead(&mut self, cost: u64, at: u64) -> Result<(), TestCaseError> {
        let mut model = self.model.clone();
        model.advance(at);
        for (domain, user) in
            (0..DOMAINS.len()).flat_map(|it| (0..USERS.len()).map(move |u| (it, u)))
        {
            let expected = model.decide(ModelRequest { verb: Verb::Peek, domain, user, cost }, at);
            let attributes = [("user", USERS[user])];
            let request = Request::new(DOMAINS[domain], &attributes).cost(cost);
            let later = Timestamp::from_nanos(at);
            let report =
                with_engine!(&self.subject, it => it.at(later).peek(&request).block().unwrap());
            self.compare(&report, &expected)?;
        }
        Ok(())
    }

    fn hold(&self, any: usize) -> Option<(usize, HoldId)> {
        let hold = any.checked_rem(self.holds.len())?;
        Some((hold, self.holds[hold]))
    }

    fn send(
        &self,
        request: ModelRequest,
        name: Option<&str>,
        at: u64,
    ) -> Result<Report, CheckError> {
        let ModelRequest { verb, domain, user, cost } = request;
        let attributes = [("user", USERS[user])];
        let mut request = Request::new(DOMAINS[domain], &attributes).cost(cost);
        if let Some(name) = name {
            request = request.idempotency_key(name);
        }
        let is_late = at < self.model.now;
        let at = Timestamp::from_nanos(at);
        with_engine!(&self.subject, it => match verb {
            Verb::Check if is_late => it.at(at).check(&request).block(),
            Verb::Check => it.check(&request).block(),
            Verb::Peek if is_late => it.at(at).peek(&request).block(),
            Verb::Peek | Verb::PeekReserve => it.peek(&request).block(),
            Verb::Reserve => it.hold(&request).block(),
        })
    }

    fn decide_once(
        &mut self,
        request: ModelRequest,
        name: u8,
        at: u64,
    ) -> Result<(), TestCaseError> {
        let request = ModelRequest { cost: request.cost.max(1), ..request };
        if request.verb == Verb::Peek {
            return Ok(());
        }
        let expected = self.model.decide_once(request, name, at);
        let given = self.send(request, Some(&name.to_string()), at);
        match (given, expected) {
            (Ok(report), Ok(expected)) => {
                let known = expected.hold.and_then(|hold| self.holds.get(hold));
                if let Some(id) = known {
                    prop_assert_eq!(report.hold(), Some(*id), "the hold of the first request");
                    return Ok(());
                }
                if expected.rules.is_empty() {
                    prop_assert_eq!(report.is_allowed(), expected.is_allowed, "{:?}", report);
                    self.holds.extend(report.hold());
                    return Ok(());
                }
                self.compare(&report, &expected)
            }
            (Err(CheckError::OtherRequest), Err(())) => Ok(()),
            (given, expected) => {
                let error = format!("{given:?} for an idempotency key, not {expected:?}");
                Err(TestCaseError::fail(error))
            }
        }
    }

    fn compare(&mut self, report: &Report, expected: &Expected) -> Result<(), TestCaseError> {
        prop_assert_eq!(report.rules().count(), expected.rules.len(), "rules: {:?}", report);
        for expected in &expected.rules {
            let decision = &expected.decision;
            let given = report.rules().find(|it| it.rule.name() == expected.name);
            let Some(given) = given else {
                return Err(TestCaseError::fail(format!("{} is not in {report:?}", expected.name)));
            };
            let (limit, remaining) = (given.decision.limit(), given.decision.remaining());
            let seen = (given.decision.is_allowed(), remaining, limit);
            let wanted = (decision.is_allowed(), decision.remaining, decision.limit);
            prop_assert_eq!(seen, wanted, "allowed, remaining, limit of {}", &expected.name);
            if is_on("waits") && !expected.changes_by_itself {
                prop_assert_eq!(
                    given.decision.retry_after(),
                    decision.wait,
                    "wait of {}",
                    given.rule
                );
            }
        }
        prop_assert_eq!(report.is_allowed(), expected.is_allowed, "{:?}", report);
        prop_assert_eq!(report.hold().is_some(), expected.hold.is_some(), "a hold");
        if let (Some(id), Some(hold)) = (report.hold(), expected.hold) {
            assert_eq!(hold, self.holds.len());
            self.holds.push(id);
        }
        Ok(())
    }

    /// A retry after the wait succeeds if nothing else comes, and one nanosecond earlier it does not.
    fn compare_wait(&self, report: &Report, request: ModelRequest) -> Result<(), TestCaseError> {
        if report.is_allowed() || !is_on("honest_waits") {
            return Ok(());
        }
        // What is booked waits for one unit, and what is reserved until it fits.
        let verb = if request.verb == Verb::Reserve { Verb::PeekReserve } else { Verb::Peek };
        let look = ModelRequest { verb, ..request };
        let is_allowed_after = |wait_ns: u64| {
            let mut model = self.model.clone();
            model.advance(self.model.now + wait_ns);
            model.decide(look, model.now).is_allowed
        };
        let from = self.model.allowed_from(look);
        let wait = from.map(|from| Duration::from_nanos(from - self.model.now));
        match (report.retry_after(), wait) {
            (Some(Wait::After(given)), Some(wait)) => prop_assert_eq!(given, wait, "{:?}", report),
            // Further than the model looks for it.
            (Some(Wait::After(given)), None) => {
                let given_ns = u64::try_from(given.as_nanos()).unwrap();
                prop_assert!(is_allowed_after(given_ns), "denied after {:?}: {:?}", given, report);
                prop_assert!(!is_allowed_after(given_ns - 1), "too long: {:?}", report);
            }
            (Some(Wait::Never), Some(wait)) => {
                return Err(TestCaseError::fail(format!("never, and not {wait:?}: {report:?}")));
            }
            // The engine follows fewer changes than the model.
            (Some(Wait::Unknown), Some(wait)) if wait < Duration::from_secs(8 * 60) => {
                return Err(TestCaseError::fail(format!("unknown, and not {wait:?}: {report:?}")));
            }
            (None, _) => return Err(TestCaseError::fail(format!("no wait: {report:?}"))),
            (Some(Wait::Never | Wait::Unknown), _) => {}
        }
        Ok(())
    }

    /// Keys of other rules come, and take the slots of those that are idle.
    fn send_others(&self, count: u64) {
        for number in 0..count {
            let user = number.to_string();
            let attributes = [("user", &*user)];
            let request = Request::new("others", &attributes);
            let report = with_engine!(&self.subject, it => it.check(&request).block().unwrap());
            drop(report);
        }
    }

    fn edit(&mut self, act: &Act) {
        match act {
            Act::EditFile(rule, numbers) => {
                let number = rule % self.begin.len();
                let rule = self.rule(number, numbers);
                self.model.edit_file(number, Some(rule));
                self.replace_policy();
            }
            Act::Remove(rule) => {
                self.model.edit_file(rule % self.begin.len(), None);
                self.replace_policy();
            }
            Act::PutOver(rule, numbers) => {
                let number = rule % self.begin.len();
                let rule = self.rule(number, numbers);
                let given = rule.in_policy();
                self.model.put_over(rule);
                with_engine!(&self.subject, it => it.edit("test", Edit::rule(given)).block().unwrap());
            }
            Act::SetOverride(rule, given) => {
                let Some((number, given)) = self.override_of(*rule, given) else { return };
                if !is_on("same_key") && self.model.has_override(number, &given) {
                    return;
                }
                self.model.set_override(number, given);
                let domain = DOMAINS[self.model.rules[number].rule.domain];
                let rule = &RuleId::named(&format!("r{number}")).in_domain(domain);
                let given = given.in_policy();
                with_engine!(&self.subject, it => it.edit("test", Edit::set_override(rule, given)).block().unwrap());
            }
            Act::DropOverride(rule, given) => {
                let Some((number, given)) = self.override_of(*rule, given) else { return };
                self.model.remove_override(number, &given);
                let domain = DOMAINS[self.model.rules[number].rule.domain];
                let rule = &RuleId::named(&format!("r{number}")).in_domain(domain);
                let key = given.target.conditions();
                with_engine!(&self.subject, it => it.edit("test", Edit::remove_override(rule, &key)).block().unwrap());
            }
            Act::DropOverlay => {
                self.model.remove_overlay();
                with_engine!(&self.subject, it => it.edit("test", Edit::overlay(Overlay::default()))).block().unwrap();
            }
            other => panic!("{other:?} is no edit"),
        }
    }

    /// A rule with these numbers.
    fn rule(&self, number: usize, numbers: &RuleNumbers) -> FileRule {
        let mut rule = self.begin[number].rule(number, numbers, self.model.now);
        rule.overrides.retain(|it| is_on("same_key") || !self.model.has_override(number, it));
        rule
    }

    /// The rule and the override, if the rule is there and has overrides.
    fn override_of(&self, rule: usize, given: &OtherNumbers) -> Option<(usize, OtherLimit)> {
        let number = rule % self.begin.len();
        let begin = &self.begin[number];
        let is_possible = self.model.rules[number].is_present && begin.is_by_user();
        let periods = self.model.rules[number].periods();
        is_possible.then(|| (number, begin.override_of(given, self.model.now).in_periods(periods)))
    }

    fn replace_policy(&self) {
        let policy = policy(&self.model);
        with_engine!(&self.subject, it => it.edit("test", Edit::policy(policy))).block().unwrap();
    }

    /// Stops the engine, lets time pass, and starts it again.
    fn restart(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let policy = policy(&self.model);
        match std::mem::replace(&mut self.subject, Subject::Stopped) {
            Subject::Memory(engine) => {
                // It has nothing to start from, and goes on.
                self.move_time(op);
                self.subject = Subject::Memory(engine);
            }
            Subject::Disk(engine, disk) => {
                drop(engine);
                self.move_time(op);
                self.subject = open(policy, disk.kill(), &self.clock);
            }
            Subject::Stopped => panic!("the engine is stopped"),
        }
        Ok(())
    }
}

fn open(policy: Policy, disk: CrashDisk, clock: &ManualClock) -> Subject {
    let options = FileOptions::default().max_keys(MAX_KEYS).when_full(WhenFull::Deny);
    let options = options.least_durability(Durability::Flush).fill_ahead(4_096);
    let store = options.open_on(Arc::new(disk.clone())).unwrap();
    Subject::Disk(
        StoreEngine::builder(policy).store(store).clock(clock.clone()).build().unwrap(),
        disk,
    )
}

/// The rules of the file, and two for other keys.
fn policy(model: &Model) -> Policy {
    let bucket = Bucket::per_second(100);
    let sliding = Sliding::new(8, Duration::from_millis(100), 10);
    let others = [
        Rule::builder("narrow", Limit::Bucket(bucket)),
        Rule::builder("wide", Limit::Sliding(sliding)),
    ];
    let others = others.map(|rule| rule.domain("others").key(["user"]).build().unwrap());
    let rules = model.file.iter().flatten().map(FileRule::in_policy);
    Policy::new(rules.chain(others)).unwrap_or_else(|errors| panic!("{errors}"))
}
