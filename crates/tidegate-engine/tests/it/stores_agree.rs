//! A store on disk that is restarted again and again, and two engines that share one, beside an engine in
//! memory: they agree.
//!
//! Limits have numbers that do not divide evenly; they are edited, overridden by patterns and for single
//! keys, while units are on hold. The replay of snapshots and logs has to give what memory has, and what one
//! engine has edited counts for all that the other one does next.

use std::sync::Arc;
use std::time::Duration;

use tidegate::durable::FileOptions;
use tidegate::policy::{Condition, Durability, Effective, Grant, Limit, Override, Policy, Rule};
use tidegate::store::SharedStore;
use tidegate::testing::{CrashDisk, DelayedRecords, Dice};
use tidegate::{
    Bucket, Cooldown, Edit, Rate, Report, Request, Sliding, StoreEngine, Timestamp, Wait, WhenFull,
    Window,
    clock::{Clock, ManualClock},
    hold::HoldId,
    limiter::Debt,
    policy::{Carry, Quota},
    store::MemoryStore,
};

const USERS: [&str; 4] = ["ada", "adi", "bob", "bea"];
const MAX_KEYS: usize = 1_000;

/// What is compared with an engine in memory.
enum Other {
    Disk(StoreEngine, CrashDisk),
    /// Engines that share a store; each operation is one's, whichever comes.
    Shared([StoreEngine; 2], usize),
    /// Between two runs.
    Stopped,
}

macro_rules! with_other {
    ($other:expr, $engine:ident => $then:expr) => {
        match $other {
            Other::Disk($engine, _) => $then,
            Other::Shared(nodes, next) => {
                let $engine = &nodes[*next];
                $then
            }
            Other::Stopped => panic!("the engine is stopped"),
        }
    };
}

/// The same operations on both.
struct Twins {
    memory: StoreEngine,
    other: Other,
    clock: ManualClock,
    rule: Rule,
    kind: u64,
    /// The same hold in memory and in the other store.
    holds: Vec<(HoldId, HoldId)>,
    log: Vec<String>,
}

impl Twins {
    fn new(dice: &mut Dice, is_shared: bool) -> Self {
        let clock = ManualClock::new(Timestamp::from_millis(72_001_000_000 + dice.below(60_000)));
        let kind = dice.below(6);
        let rule = any_rule(kind, dice);
        let policy = Policy::new([rule.clone()]).unwrap();
        let store = MemoryStore::new(MAX_KEYS, WhenFull::Deny).unwrap();
        let memory =
            StoreEngine::builder(policy).store(store).clock(clock.clone()).build().unwrap();
        let (holds, log) = (Vec::new(), vec![format!("{rule:?}")]);
        let mut twins = Self { memory, other: Other::Stopped, clock, rule, kind, holds, log };
        if is_shared {
            twins.share(dice.bits());
        } else {
            twins.start(CrashDisk::new());
        }
        twins
    }

    fn share(&mut self, seed: u64) {
        let records = Arc::new(DelayedRecords::new(seed));
        let engine = || {
            let store = SharedStore::new(Arc::clone(&records), b"a secret");
            let policy = Policy::new([self.rule.clone()]).unwrap();
            let engine = StoreEngine::builder(policy)
                .store(store)
                .clock(self.clock.clone())
                .build()
                .unwrap();
            engine.synchronize().block().unwrap();
            engine
        };
        self.other = Other::Shared([engine(), engine()], 0);
    }

    fn start(&mut self, disk: CrashDisk) {
        let options = FileOptions::default().max_keys(MAX_KEYS).when_full(WhenFull::Deny);
        let options = options.least_durability(Durability::Flush).fill_ahead(4_096);
        let store = options.open_on(Arc::new(disk.clone())).unwrap();
        let policy = Policy::new([self.rule.clone()]).unwrap();
        let engine =
            StoreEngine::builder(policy).store(store).clock(self.clock.clone()).build().unwrap();
        self.other = Other::Disk(engine, disk);
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: String, memory: T, other: T) {
        self.log.push(format!("{what}: {memory:?}"));
        assert_eq!(memory, other, "{:#?}", self.log);
    }

    fn operate(&mut self, dice: &mut Dice) {
        if let Other::Shared(_, next) = &mut self.other {
            *next = dice.below(2) as usize;
        }
        let user = dice.one_of(&USERS);
        let attributes = [("user", user)];
        let cost = dice.below(5);
        let request = Request::new("default", &attributes).cost(cost);
        match dice.below(17) {
            0..=3 => {
                let ms = dice.one_of(&[1, 90, 700, 4_000, 70_000]);
                self.clock.advance(Duration::from_millis(dice.below(ms)));
                self.log.push(format!("at {:?}", self.clock.now()));
            }
            4..=6 => {
                let name = format!("{user} {cost}");
                let is_named = dice.once_in(4);
                let request = if is_named { request.idempotency_key(&name) } else { request };
                let seen = (
                    check(&self.memory, &request),
                    with_other!(&self.other, it => check(it, &request)),
                );
                self.same(format!("check {user} {:?}", request), seen.0, seen.1);
            }
            7 | 8 => {
                let request = request.cost(1 + dice.below(4));
                let memory = self.memory.hold(&request).block().unwrap();
                let other = with_other!(&self.other, it => it.hold(&request).block().unwrap());
                self.same(format!("reserve {user} {request:?}"), seen(&memory), seen(&other));
                self.holds.extend(memory.hold().zip(other.hold()));
            }
            9 | 10 => self.settle(dice),
            11 => {
                self.rule = any_rule(self.kind, dice);
                self.log.push(format!("edit: {:?}", self.rule));
                let rule = self.rule.clone();
                let policy = |rule: Rule| Policy::new([rule]).unwrap();
                self.memory.edit("test", Edit::policy(policy(rule.clone()))).block().unwrap();
                with_other!(&self.other, it => it.edit("test", Edit::policy(policy(rule))).block().unwrap());
            }
            12 => self.set_override(dice),
            13 => {
                if let Other::Disk(engine, _) = &self.other {
                    self.log.push("snapshot".into());
                    engine.file_store().unwrap().take_snapshot().unwrap();
                }
            }
            14 => {
                let seen = (
                    self.memory.refund(&request).block().unwrap(),
                    with_other!(&self.other, it => it.refund(&request).block().unwrap()),
                );
                self.same(format!("refund {request:?}"), seen.0, seen.1);
            }
            _ => {
                if let Other::Disk(_, disk) = &self.other {
                    let disk = disk.clone();
                    self.log.push("restart".into());
                    self.other = Other::Stopped;
                    self.start(disk.kill());
                }
            }
        }
    }

    fn set_override(&mut self, dice: &mut Dice) {
        let mut given = any_override(self.kind, dice);
        if dice.once_in(3) {
            let until = self.clock.now().saturating_add(Duration::from_millis(dice.below(9_000)));
            given = given.until(until.as_nanos());
        }
        self.log.push(format!("override: {given:?}"));
        let rule = self.rule.id().clone();
        self.memory.edit("test", Edit::set_override(&rule, given.clone())).block().unwrap();
        with_other!(&self.other, it => it.edit("test", Edit::set_override(&rule, given)).block().unwrap());
    }

    fn settle(&mut self, dice: &mut Dice) {
        if self.holds.is_empty() {
            return;
        }
        let (memory, other) = dice.one_of(&self.holds);
        let actual = Some(dice.below(9)).filter(|_| dice.once_in(2));
        match dice.below(4) {
            0 => {
                let seen = (
                    self.memory.cancel(memory, None).block(),
                    with_other!(&self.other, it => it.cancel(other, None).block()),
                );
                self.same("cancel".into(), seen.0, seen.1);
            }
            1 => {
                let seen = (
                    self.memory.renew(memory).block(),
                    with_other!(&self.other, it => it.renew(other).block()),
                );
                self.same("renew".into(), seen.0, seen.1);
            }
            2 => {
                let seen = (
                    self.memory.refund_hold(memory, 2).block(),
                    with_other!(&self.other, it => it.refund_hold(other, 2).block()),
                );
                self.same("refund".into(), seen.0, seen.1);
            }
            _ => {
                let seen = (
                    self.memory.commit(memory, actual).block(),
                    with_other!(&self.other, it => it.commit(other, actual).block()),
                );
                self.same(format!("commit {actual:?}"), seen.0, seen.1);
            }
        }
    }
}

/// What a client sees.
#[derive(Debug, PartialEq)]
struct Seen {
    is_allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    wait: Option<Wait>,
    /// The wait of the rule itself.
    of_rule: Option<Wait>,
}

fn seen(report: &Report) -> Seen {
    Seen {
        is_allowed: report.is_allowed(),
        limit: report.limit(),
        remaining: report.remaining(),
        wait: report.retry_after(),
        of_rule: report.rules().next().and_then(|rule| rule.decision.retry_after()),
    }
}

/// What was decided, and what is used and on hold after it.
fn check(engine: &StoreEngine, request: &Request<'_>) -> (Seen, Vec<(u64, u64, u64)>) {
    let seen = seen(&engine.check(request).block().unwrap());
    let usage = engine.usage(request).block().unwrap();
    (seen, usage.iter().map(|it| (it.used, it.held, it.debt)).collect())
}

fn any_limit(kind: u64, dice: &mut Dice) -> Limit {
    let ms = |dice: &mut Dice| Duration::from_millis(300 + dice.below(700));
    let max = 1 + dice.below(12);
    match kind {
        0 | 1 => {
            let rate = Rate::new(1 + dice.below(9), ms(dice));
            let bucket = Bucket::try_new(rate, max).unwrap();
            Limit::Bucket(bucket.with_debt(Debt::up_to(dice.below(8))).unwrap())
        }
        2 => Limit::Window(Window::new(max, ms(dice) * 7)),
        3 => Limit::Sliding(Sliding::new(max, ms(dice) * 7, 10)),
        4 => Limit::Cooldown(Cooldown::new(ms(dice) * 3)),
        _ => {
            let carry = dice.one_of(&[Carry::Nothing, Carry::UpTo(3), Carry::All]);
            let quota = Quota::new(max, carry);
            let debt = dice.one_of(&[Debt::Nothing, Debt::UpTo(2), Debt::All]);
            let periods = tidegate::policy::Periods::Calendar("minute".parse().unwrap());
            Limit::Quota(quota.with_debt(debt).unwrap(), periods)
        }
    }
}

fn any_override(kind: u64, dice: &mut Dice) -> Override {
    let pattern = dice.one_of(&["a*", "ada", "b*", "bob"]);
    let grant =
        if dice.once_in(5) { Grant::Unlimited } else { Grant::Limit(any_limit(kind, dice)) };
    Override::new(vec![Condition::new("user", [pattern]).unwrap()], grant)
}

fn any_rule(kind: u64, dice: &mut Dice) -> Rule {
    let is_postpaid = kind != 4 && dice.once_in(3);
    let rule = Rule::builder("r", any_limit(kind, dice));
    let mut rule = if is_postpaid { rule.postpaid() } else { rule }
        .key(["user"])
        .effective(if dice.once_in(4) { Effective::Next } else { Effective::Now })
        .reserve_for(Duration::from_millis(500 + dice.below(30_000)));
    if dice.once_in(2) {
        rule = rule.overridden(any_override(kind, dice));
    }
    rule.build().unwrap()
}

fn agree(sequences: u64, is_shared: bool) {
    let given = std::env::var("TIDEGATE_SEQUENCES").ok().and_then(|it| it.parse().ok());
    for seed in 0..given.unwrap_or(sequences) {
        let mut dice = Dice::new(seed);
        let mut twins = Twins::new(&mut dice, is_shared);
        for _ in 0..50 {
            twins.operate(&mut dice);
        }
    }
}

#[test]
fn a_store_that_is_restarted_agrees_with_one_that_is_not() {
    agree(1_500, false);
}

#[test]
fn engines_that_share_a_store_agree_with_one_that_does_not() {
    agree(600, true);
}
