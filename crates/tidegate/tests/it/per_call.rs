//! Limits that come with each call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{
    Decision, Limiter, Rate, Timestamp, Wait, WhenFull,
    clock::ManualClock,
    limiter::{BuildError, Call, CallLimit},
};

use crate::{seconds, secs};

/// `count` per `period_secs`, `burst` at once.
fn limit(burst: u64, count: u64, period_secs: u64) -> CallLimit {
    CallLimit::new(Rate::new(count, seconds(period_secs)), burst).unwrap()
}

#[test]
fn the_example_of_redis_cell() {
    let limiter =
        Limiter::<str, CallLimit>::per_call().clock(ManualClock::default()).build().unwrap();
    let limit = limit(16, 30, 60);
    let first = limiter.check_with("user123", limit, 1);
    assert_eq!((first.is_allowed(), first.limit(), first.remaining()), (true, 16, 15));
    assert_eq!((first.retry_after(), first.reset()), (None, Some(seconds(2))));
    for _ in 0..15 {
        assert!(limiter.check_with("user123", limit, 1).is_allowed());
    }
    let denied = limiter.check_with("user123", limit, 1);
    assert_eq!((denied.remaining(), denied.reset()), (0, Some(seconds(32))));
    assert_eq!(denied.retry_after(), Some(Wait::After(seconds(2))));
    assert_eq!(limiter.check_with("user123", limit, 17).retry_after(), Some(Wait::Never));
}

#[test]
fn other_numbers_continue_from_the_same_state() {
    let limiter = Limiter::<str, CallLimit>::per_call().build().unwrap();
    // Ten units of one second each.
    assert!(limiter.at(secs(1)).check_with("k", limit(10, 1, 1), 10).is_allowed());
    // Ten seconds are twenty units of half a second: of thirty, ten are left.
    assert_eq!(limiter.at(secs(1)).peek_with("k", limit(30, 2, 1), 1).remaining(), 10);
    // And more than five units of one second: denied, also for a peek.
    let look = limiter.at(secs(1)).check_with("k", limit(5, 1, 1), 0);
    assert_eq!(look.retry_after(), Some(Wait::After(seconds(5))));
    // A call with the old numbers finds nothing changed.
    assert_eq!(limiter.at(secs(3)).peek_with("k", limit(10, 1, 1), 1).remaining(), 2);
}

#[test]
fn threads_on_a_frozen_clock_admit_exactly_the_burst() {
    let limiter = Limiter::<u64, CallLimit>::per_call().build().unwrap();
    let allowed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (limiter, allowed) = (&limiter, &allowed);
            scope.spawn(move || {
                let limit = limit(54_321, 1, 86_400);
                let calls = (0..20_000).map(|_| Call { key: &7_u64, limit, cost: 1 });
                let count = |decision: Decision| {
                    allowed.fetch_add(usize::from(decision.is_allowed()), Ordering::Relaxed);
                };
                if thread % 2 == 0 {
                    limiter.at(secs(1)).check_many_with(calls, count);
                } else {
                    calls
                        .for_each(|call| count(limiter.at(secs(1)).check_with(call.key, limit, 1)));
                }
            });
        }
    });
    assert_eq!(allowed.into_inner(), 54_321);
    assert_eq!(limiter.len(), 1);
}

#[test]
fn a_full_table_never_admits_more_than_the_limit_of_the_call() {
    for when_full in [WhenFull::Share, WhenFull::Deny] {
        let limiter = Limiter::<u64, CallLimit>::per_call()
            .max_keys(16)
            .when_full(when_full)
            .build()
            .unwrap();
        for key in 0..2_000_u64 {
            let limit = limit(3, 1, 100);
            let admitted = (0..5)
                .filter(|_| limiter.at(secs(1)).check_with(&key, limit, 1).is_allowed())
                .count();
            assert!(admitted <= 3, "{admitted} of key {key}");
        }
        assert!(limiter.len() <= limiter.capacity());
        // When all is as good as fresh, every key is allowed again.
        limiter.at(secs(1_000)).evict_idle();
        assert!(limiter.is_empty());
        assert!(limiter.at(secs(1_000)).check_with(&1_999, limit(3, 1, 100), 3).is_allowed());
    }
}

#[test]
fn bounds_are_checked() {
    let built = |keys| Limiter::<str, CallLimit>::per_call().max_keys(keys).build().map(|_| ());
    assert_eq!(built(0), Err(BuildError::MaxKeys { given: 0 }));
    assert_eq!(built(1), Ok(()));
    assert!(CallLimit::new(Rate::per_second(10_000_000_000), 1).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Pass { ns: u64 },
    Check { key: u8, limit: usize, cost: u64 },
    Peek { key: u8, limit: usize, cost: u64 },
    Many { calls: Vec<(u8, usize, u64)> },
    Forget { key: u8 },
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = prop_oneof![0..10_u64, 0..2_000_000_000_u64, 0..100_000_000_000_u64];
    let cost = || prop_oneof![4 => Just(1), 2 => 0..20_u64, 1 => any::<u64>()];
    let call = || (0..40_u8, 0..LIMITS.len(), cost());
    let step = prop_oneof![
        2 => time.prop_map(|ns| Step::Pass { ns }),
        12 => call().prop_map(|(key, limit, cost)| Step::Check { key, limit, cost }),
        2 => call().prop_map(|(key, limit, cost)| Step::Peek { key, limit, cost }),
        3 => prop::collection::vec(call(), 0..60).prop_map(|calls| Step::Many { calls }),
        1 => (0..40_u8).prop_map(|key| Step::Forget { key }),
        1 => Just(Step::Evict),
    ];
    prop::collection::vec(step, 1..200)
}

/// Burst, count, period in nanoseconds.
const LIMITS: [(u64, u64, u64); 5] = [
    (1, 1, 1_000_000_000),
    (16, 30, 60_000_000_000),
    (10, 3, 7_000_000_000),
    (1_000_000, 999_983, 1_000_000_000),
    (5, 1, 3_600_000_000_000),
];

/// The theoretical arrival time of every key, in 256ths of a nanosecond.
#[derive(Default)]
struct Model {
    full_at: HashMap<u8, i128>,
    now_ns: u64,
}

impl Model {
    /// Whether it is allowed, what remains, and the time that a denied call lacks.
    fn check(&mut self, key: u8, limit: usize, cost: u64, charge: bool) -> (bool, i128, i128) {
        let (burst, count, period_ns) = LIMITS[limit];
        let per_unit = (i128::from(period_ns) * 256 + i128::from(count) - 1) / i128::from(count);
        let now = i128::from(self.now_ns) * 256;
        let full_at = self.full_at.get(&key).copied().unwrap_or(0).max(now);
        let wanted = full_at + per_unit * i128::from(cost);
        let end = now + per_unit * i128::from(burst);
        let allowed = wanted <= end;
        let after = if allowed && charge { wanted } else { full_at };
        self.full_at.insert(key, after);
        (allowed, ((end - after) / per_unit).max(0), (wanted - end).max(0))
    }

    fn compare(&mut self, call: (u8, usize, u64), charge: bool, decision: &Decision) {
        let (key, limit, cost) = call;
        let (allowed, remaining, lack) = self.check(key, limit, cost, charge);
        assert_eq!(decision.is_allowed(), allowed, "{call:?}");
        assert_eq!(i128::from(decision.remaining()), remaining, "{call:?}");
        let wait = match decision.retry_after() {
            None => 0,
            Some(Wait::After(wait)) => i128::try_from(wait.as_nanos()).unwrap(),
            Some(Wait::Never) => return assert!(cost > LIMITS[limit].0),
            Some(Wait::Unknown) => panic!("nothing is held"),
        };
        assert_eq!(wait, (lack + 255) / 256, "{call:?}");
    }
}

proptest! {
    #[test]
    fn a_limiter_per_call_is_a_map_of_arrival_times(steps in steps()) {
        let limiter = Limiter::<u8, CallLimit>::per_call().build().unwrap();
        let limits = LIMITS.map(|(burst, count, period_ns)| {
            let rate = Rate::new(count, Duration::from_nanos(period_ns));
            CallLimit::new(rate, burst).unwrap()
        });
        let mut model = Model::default();
        for step in steps {
            let now = Timestamp::from_nanos(model.now_ns);
            match step {
                Step::Pass { ns } => model.now_ns += ns,
                Step::Check { key, limit, cost } => {
                    let decision = limiter.at(now).check_with(&key, limits[limit], cost);
                    model.compare((key, limit, cost), true, &decision);
                }
                Step::Peek { key, limit, cost } => {
                    let decision = limiter.at(now).peek_with(&key, limits[limit], cost);
                    model.compare((key, limit, cost), false, &decision);
                }
                Step::Many { calls } => {
                    let mut expected = calls.iter();
                    let batch = calls.iter().map(|(key, limit, cost)| Call {
                        key, limit: limits[*limit], cost: *cost,
                    });
                    limiter.at(now).check_many_with(batch, |decision| model.compare(*expected.next().unwrap(), true, &decision));
                    prop_assert!(expected.next().is_none());
                }
                Step::Forget { key } => {
                    limiter.forget(&key);
                    model.full_at.remove(&key);
                }
                Step::Evict => limiter.at(now).evict_idle(),
            }
        }
    }
}
