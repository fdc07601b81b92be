//! Buckets with the largest and the smallest numbers, edited into each other, against exact arithmetic.

use std::time::Duration;

use tidegate::policy::{Limit, Policy, Rule};
use tidegate::testing::Dice;
use tidegate::{
    Bucket, Edit, Rate, Request, StoreEngine, Timestamp, Wait, WhenFull,
    clock::{Clock, ManualClock},
    limiter::Debt,
    store::MemoryStore,
};

/// Every rate gives a whole number of these parts of a unit in a nanosecond.
const PARTS: i128 = 1_000_000_000_000;

/// Periods that divide the parts, in nanoseconds.
const PERIODS_NS: [u64; 8] =
    [1, 20, 32, 1_000, 15_625, 1_000_000, 1_000_000_000, 1_000_000_000_000];

/// A bucket that keeps what is missing to full, in parts.
#[derive(Clone, Copy, Debug)]
struct Model {
    rate: (u64, u64),
    burst: u64,
    /// `None`: without a bound.
    debt: Option<u64>,
    level: i128,
    as_of_ns: u64,
}

impl Model {
    fn per_ns(&self) -> i128 {
        i128::from(self.rate.0) * PARTS / i128::from(self.rate.1)
    }

    fn advance(&mut self, now_ns: u64) {
        let refilled = i128::from(now_ns - self.as_of_ns) * self.per_ns();
        (self.level, self.as_of_ns) = ((self.level - refilled).max(0), now_ns);
    }

    /// Charges a cost; how long it has to wait otherwise, in nanoseconds.
    fn check(&mut self, cost: u64) -> Option<i128> {
        let lack = self.level + i128::from(cost) * PARTS - i128::from(self.burst) * PARTS;
        if lack <= 0 {
            self.level += i128::from(cost) * PARTS;
            return None;
        }
        Some(lack / self.per_ns() + i128::from(lack % self.per_ns() > 0))
    }

    /// Charges what a commit of one held unit came to, and returns it.
    fn overdraw(&mut self, actual: u64) -> u64 {
        // More than any level there can be.
        let debt = self.debt.map_or(1 << 80, i128::from);
        let most = i128::from(self.burst) + debt;
        let room = (most * PARTS - (self.level - PARTS).max(0)) / PARTS;
        let charged = i128::from(actual).min(room.max(1));
        self.level += (charged - 1) * PARTS;
        u64::try_from(charged).unwrap()
    }
}

fn policy(rate: (u64, u64), burst: u64, debt: Option<u64>) -> Option<Policy> {
    let rate = Rate::new(rate.0, Duration::from_nanos(rate.1));
    let bucket =
        Bucket::try_new(rate, burst).ok()?.with_debt(debt.map_or(Debt::All, Debt::up_to)).ok()?;
    Some(Policy::new([Rule::builder("r", Limit::Bucket(bucket)).build().unwrap()]).unwrap())
}

/// Compares the wait of a request, `None` if it was allowed, with what it has to be.
fn compare(model: &mut Model, (cost, edits): (u64, i128), given: Option<Wait>, log: &[String]) {
    let mut after = *model;
    let wanted_ns = after.check(cost).unwrap_or(0);
    let left_ns = i128::from(Timestamp::MAX.as_nanos() - model.as_of_ns);
    // Each edit rounds the level up, by less than a unit.
    let unit_ns = i128::from(model.rate.1 / model.rate.0) + 1;
    let most_ns = wanted_ns + edits * unit_ns;
    match given {
        None => {
            assert_eq!(wanted_ns, 0, "{log:#?}");
            *model = after;
        }
        Some(Wait::After(wait)) => {
            let given_ns = i128::try_from(wait.as_nanos()).unwrap();
            let is_right = (wanted_ns..=most_ns).contains(&given_ns);
            assert!(is_right, "{given_ns}, not {wanted_ns} to {most_ns}: {log:#?}");
        }
        Some(_) => assert!(most_ns > left_ns, "{given:?}, not {wanted_ns}: {log:#?}"),
    }
}

#[test]
fn buckets_are_exact_whatever_their_numbers_are() {
    for seed in 0..SEEDS {
        let mut dice = Dice::new(seed);
        let clock = ManualClock::new(Timestamp::from_nanos(dice.below(1 << 62)));
        let mut any = |clock: &ManualClock| loop {
            let count = 1 + (dice.bits() >> (32 + dice.below(32)));
            let rate = (count, dice.one_of(&PERIODS_NS));
            let burst = 1 + (dice.bits() >> dice.below(64)).min(1 << 62);
            let debt = (dice.bits() >> dice.below(64)).min(1 << 62);
            let debt = (!dice.once_in(4)).then_some(debt);
            if let Some(policy) = policy(rate, burst, debt) {
                let as_of_ns = clock.now().as_nanos();
                break (policy, Model { rate, burst, debt, level: 0, as_of_ns });
            }
        };
        let (first, mut model) = any(&clock);
        let store = MemoryStore::new(100, WhenFull::Deny).unwrap();
        let engine = StoreEngine::builder(first).store(store).clock(clock.clone()).build().unwrap();
        let mut dice = Dice::new(!seed);
        let (mut log, mut edits) = (vec![format!("seed {seed}: {model:?}")], 0_i128);
        for _ in 0..40 {
            match dice.below(5) {
                4 => {
                    let request = Request::new("default", &[]);
                    let held = engine.hold(&request).block().unwrap().hold();
                    let Some(id) = held else { continue };
                    assert_eq!(model.check(1), None, "{log:#?}");
                    let actual = dice.bits() >> dice.below(64);
                    let charged = engine.commit(id, Some(actual)).block().unwrap().charged;
                    let wanted = model.overdraw(actual);
                    log.push(format!("commit {actual}: {wanted}"));
                    let is_cut = charged < wanted && model.debt.is_none();
                    let is_near = charged <= wanted && i128::from(wanted - charged) <= edits;
                    assert!(is_cut || is_near, "{charged}, not {wanted}: {log:#?}");
                    if is_cut {
                        // It owes as much as a state can express: more than the clock has time for.
                        let report = engine.check(&Request::new("default", &[])).block().unwrap();
                        assert_eq!(report.retry_after(), Some(Wait::Never), "{log:#?}");
                    }
                    model.level -= i128::from(wanted - charged) * PARTS;
                }
                0 => {
                    let (policy, Model { rate, burst, debt, .. }) = any(&clock);
                    engine.edit("test", Edit::policy(policy)).block().unwrap();
                    model.advance(clock.now().as_nanos());
                    (model.rate, model.burst, model.debt) = (rate, burst, debt);
                    edits += 1;
                    log.push(format!("{model:?}"));
                }
                1 => {
                    clock.advance(Duration::from_nanos(dice.bits() >> (12 + dice.below(52))));
                    model.advance(clock.now().as_nanos());
                    log.push(format!("{model:?}"));
                }
                _ => {
                    let cost = 1 + (dice.bits() >> dice.below(64)) % model.burst;
                    let report = engine.check(&Request::new("default", &[]).cost(cost));
                    let given = report.block().unwrap().retry_after();
                    log.push(format!("check {cost}"));
                    compare(&mut model, (cost, edits), given, &log);
                }
            }
        }
    }
}

const SEEDS: u64 = 6_000;
