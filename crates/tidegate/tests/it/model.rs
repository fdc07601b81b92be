//! A limiter against a plain map of states: the same decisions on any sequence of calls.
//!
//! That the states themselves are right is proven by the tests of the core.

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate::{
    Bucket, Cooldown, Decision, Limiter, Rate, Sliding, Timestamp, Window, clock::ManualClock,
    limiter::KeyedLimit,
};

use crate::seconds;

/// A call of a limiter.
#[derive(Clone, Debug)]
enum Step<A> {
    Pass { ns: u64 },
    Check { key: u16, cost: u64 },
    Peek { key: u16 },
    Batch { keys: Vec<u16> },
    Refund { key: u16, units: u64 },
    Forget { key: u16 },
    SetLimit { limit: A },
    SetOverride { key: u16, limit: A },
    RemoveOverride { key: u16 },
    Evict,
}

fn steps<A: KeyedLimit>(
    limit: impl Strategy<Value = A> + Clone + 'static,
    keys: u16,
) -> impl Strategy<Value = Vec<Step<A>>> {
    let key = move || 0..keys;
    let time = prop_oneof![0..10_u64, 0..2_000_000_000_u64, 0..100_000_000_000_000_u64];
    let cost = prop_oneof![4 => Just(1), 2 => 0..20_u64, 1 => any::<u64>()];
    let step = prop_oneof![
        2 => time.prop_map(|ns| Step::Pass { ns }),
        12 => (key(), cost).prop_map(|(key, cost)| Step::Check { key, cost }),
        2 => key().prop_map(|key| Step::Peek { key }),
        1 => prop::collection::vec(key(), 0..40).prop_map(|keys| Step::Batch { keys }),
        2 => (key(), 0..20_u64).prop_map(|(key, units)| Step::Refund { key, units }),
        1 => key().prop_map(|key| Step::Forget { key }),
        1 => limit.clone().prop_map(|limit| Step::SetLimit { limit }),
        1 => (key(), limit).prop_map(|(key, limit)| Step::SetOverride { key, limit }),
        1 => key().prop_map(|key| Step::RemoveOverride { key }),
        1 => Just(Step::Evict),
    ];
    prop::collection::vec(step, 1..400)
}

/// One state per key, and never a slot to share.
struct Model<A: KeyedLimit> {
    common: A,
    overrides: HashMap<u16, A>,
    states: HashMap<u16, A::State>,
}

impl<A: KeyedLimit> Model<A> {
    fn key(&mut self, key: u16) -> (A, &mut A::State) {
        let limit = *self.overrides.get(&key).unwrap_or(&self.common);
        (limit, self.states.entry(key).or_insert_with(|| limit.fresh()))
    }

    fn check(&mut self, key: u16, cost: u64, now: Timestamp) -> Decision {
        let (limit, state) = self.key(key);
        limit.check(state, cost, now)
    }

    /// Moves a key to another limit, which it is then to be found under.
    fn carry_over(&mut self, key: u16, new: A, now: Timestamp) {
        let (old, state) = self.key(key);
        *state = new.carry_over(&old, state, now);
    }
}

struct Pair<A: KeyedLimit> {
    limiter: Limiter<u16, A, ManualClock>,
    model: Model<A>,
    clock: ManualClock,
    now: Timestamp,
}

impl<A: KeyedLimit> Pair<A> {
    fn new(limit: A) -> Self {
        let clock = ManualClock::default();
        let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
        let model = Model { common: limit, overrides: HashMap::new(), states: HashMap::new() };
        Self { limiter, model, clock, now: Timestamp::ZERO }
    }

    fn step(&mut self, step: Step<A>) {
        let (limiter, model, now) = (&self.limiter, &mut self.model, self.now);
        match step {
            Step::Pass { ns } => {
                self.clock.advance(std::time::Duration::from_nanos(ns));
                self.now = tidegate::clock::Clock::now(&self.clock);
            }
            Step::Check { key, cost } => {
                assert_eq!(limiter.check_n(&key, cost), model.check(key, cost, now));
            }
            Step::Peek { key } => {
                let (limit, state) = model.key(key);
                assert_eq!(limiter.peek(&key), limit.peek(state, 1, now));
            }
            Step::Batch { keys } => {
                let mut decisions = vec![];
                limiter.check_many(&keys.iter().collect::<Vec<_>>(), &mut decisions);
                let expected: Vec<_> = keys.iter().map(|&key| model.check(key, 1, now)).collect();
                assert_eq!(decisions, expected);
            }
            Step::Refund { key, units } => {
                let (limit, state) = model.key(key);
                assert_eq!(limiter.refund(&key, units), limit.refund(state, units, now));
            }
            Step::Forget { key } => {
                limiter.forget(&key);
                model.states.remove(&key);
            }
            Step::Evict => {
                // What is forgotten as idle stays forgotten, even if a later edit counts back
                // further.
                limiter.evict_idle();
                let Model { common, overrides, states } = model;
                states.retain(|key, state| {
                    overrides.contains_key(key) || !common.is_idle(state, now)
                });
                let ours = states.keys().chain(overrides.keys());
                let ours: std::collections::HashSet<_> = ours.collect();
                assert_eq!(limiter.len(), ours.len());
            }
            edit => self.edit(edit),
        }
    }

    fn edit(&mut self, edit: Step<A>) {
        let (limiter, model, now) = (&self.limiter, &mut self.model, self.now);
        match edit {
            Step::SetLimit { limit } => {
                limiter.set_limit(limit);
                let new = limit.succeeding(&model.common);
                let mut keys: Vec<_> = model.states.keys().copied().collect();
                keys.retain(|key| !model.overrides.contains_key(key));
                keys.into_iter().for_each(|key| model.carry_over(key, new, now));
                model.common = new;
            }
            Step::SetOverride { key, limit } => {
                limiter.set_override(&key, limit).unwrap();
                let new = limit.succeeding(&model.key(key).0);
                model.carry_over(key, new, now);
                model.overrides.insert(key, new);
            }
            Step::RemoveOverride { key } => {
                let is_overridden = model.overrides.contains_key(&key);
                assert_eq!(limiter.remove_override(&key), is_overridden);
                model.carry_over(key, model.common, now);
                model.overrides.remove(&key);
            }
            _ => unreachable!("not an edit"),
        }
    }
}

fn agree<A: KeyedLimit>(limit: A, steps: Vec<Step<A>>) {
    let mut pair = Pair::new(limit);
    steps.into_iter().for_each(|step| pair.step(step));
}

/// Rates whose ticks divide each other, so that edits stay exact however many there are.
fn bucket() -> impl Strategy<Value = Bucket> + Clone {
    let count = prop::sample::select(vec![1, 2, 5, 10, 40, 1_000]);
    (count, 1..30_u64)
        .prop_map(|(count, burst)| Bucket::try_new(Rate::per_second(count), burst).unwrap())
}

fn window() -> impl Strategy<Value = Window> + Clone {
    (1..30_u64, 1..100_u64, any::<bool>()).prop_map(|(max, per, aligned)| {
        let window = Window::new(max, seconds(per));
        if aligned { window.aligned() } else { window }
    })
}

fn sliding() -> impl Strategy<Value = Sliding> + Clone {
    (1..40_u64, 1..100_u64, 1..=15_u32)
        .prop_map(|(max, per, parts)| Sliding::new(max, seconds(per), parts))
}

fn cooldown() -> impl Strategy<Value = Cooldown> + Clone {
    (1..100_u64, any::<bool>()).prop_map(|(gap, extended)| {
        let cooldown = Cooldown::new(seconds(gap));
        if extended { cooldown.extended_by_refusals() } else { cooldown }
    })
}

proptest! {
    #[test]
    fn a_limiter_of_buckets_decides_like_a_map(limit in bucket(), steps in steps(bucket(), 300)) {
        agree(limit, steps);
    }

    #[test]
    fn a_limiter_of_few_buckets_decides_like_a_map(limit in bucket(), steps in steps(bucket(), 4)) {
        agree(limit, steps);
    }

    #[test]
    fn a_limiter_of_windows_decides_like_a_map(limit in window(), steps in steps(window(), 20)) {
        agree(limit, steps);
    }

    #[test]
    fn a_limiter_of_sliding_windows_decides_like_a_map(
        limit in sliding(),
        steps in steps(sliding(), 20),
    ) {
        agree(limit, steps);
    }

    #[test]
    fn a_limiter_of_cooldowns_decides_like_a_map(
        limit in cooldown(),
        steps in steps(cooldown(), 20),
    ) {
        agree(limit, steps);
    }
}
