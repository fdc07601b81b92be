//! Edits keep history: nothing is refilled, and there and back is where it was.

use proptest::prelude::*;
use tidegate_core::{Algorithm, Bucket, Cooldown, Sliding, Wait, Window};

use crate::model::{BucketPicture, Model, summary};
use crate::strategies::{self, Amount, Move, Op, Step, Subject};
use crate::walk::Walk;

fn forward_steps() -> impl Strategy<Value = Vec<Step>> {
    strategies::steps(strategies::forward(), 1)
}

/// Two walks decide alike from here on.
fn stay_together<S: Subject>(
    mut a: Walk<S>,
    mut b: Walk<S>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    for step in steps {
        prop_assert_eq!(a.step(step), b.step(step));
    }
    Ok(())
}

proptest! {
    #![proptest_config(strategies::config())]

    #[test]
    fn bucket_there_and_back_is_the_identity(
        limit in strategies::related_bucket(),
        other in strategies::related_bucket(),
        before in forward_steps(),
        after in forward_steps(),
    ) {
        let walk = Walk::new(limit).through(&before);
        let back = walk.edit(other).edit(limit);
        stay_together(walk, back, &after)?;
    }

    #[test]
    fn bucket_burst_there_and_back_is_the_identity_even_later(
        limit in strategies::bucket(),
        burst in 1..=1_000_u64,
        before in forward_steps(),
        meanwhile in strategies::forward(),
        after in forward_steps(),
    ) {
        let Ok(other) = Bucket::try_new(limit.rate(), burst) else { return Ok(()) };
        let mut walk = Walk::new(limit).through(&before);
        let mut edited = walk.edit(other);
        walk.now = meanwhile.from(walk.now, limit.scales());
        edited.now = walk.now;
        let back = edited.edit(limit);
        stay_together(walk, back, &after)?;
    }

    #[test]
    fn bucket_burst_raised_adds_exactly_the_difference(
        limit in strategies::bucket(),
        more in 0..=1_000_000_u64,
        before in forward_steps(),
    ) {
        let raised = Bucket::try_new(limit.rate(), limit.capacity().saturating_add(more));
        let Ok(raised) = raised.and_then(|raised| raised.with_debt(limit.debt())) else {
            return Ok(());
        };
        let walk = Walk::new(limit).through(&before);
        let is_overdrawn = !limit.peek(&walk.state, 0, walk.at()).is_allowed();
        let (remaining, added) = (walk.edit(raised).remaining(), raised.capacity() - limit.capacity());
        prop_assert!(is_overdrawn || remaining == walk.remaining() + added);
        prop_assert!(remaining <= walk.remaining() + added);
    }

    #[test]
    fn bucket_edit_rounds_against_the_caller_by_less_than_a_tick(
        limits in prop::collection::vec(strategies::bucket(), 3),
        costs in prop::collection::vec((strategies::forward(), strategies::amount()), 1..10),
        amount in strategies::amount(),
    ) {
        // One edit: the model knows the exact decision, the crate may lag it by a tick, which is at
        // most a nanosecond.
        let (mut walk, mut model) = (Walk::new(limits[0]), Model::<BucketPicture>::new(limits[0]));
        for (time, amount) in costs {
            walk.step(&Step { time, op: Op::Check(amount) });
            model.check(amount.of(limits[0].capacity()), walk.now);
        }
        let edited = walk.edit(limits[1]);
        model.edit(limits[1], walk.now);
        let cost = amount.of(limits[1].capacity());
        let ours = summary(&edited.limit.peek(&edited.state, cost, edited.at()));
        let exact = model.peek(cost, walk.now);
        prop_assert!(!ours.allowed || exact.allowed);
        prop_assert!(ours.remaining <= exact.remaining && exact.remaining - ours.remaining <= 1);
        if let (Some(Wait::After(ours)), Some(Wait::After(exact))) = (ours.wait, exact.wait) {
            prop_assert!(ours >= exact && (ours - exact).as_nanos() <= 1);
        }
    }

    #[test]
    fn window_there_and_back_is_the_identity(
        limit in strategies::window(),
        other in strategies::window(),
        before in forward_steps(),
        after in forward_steps(),
    ) {
        let walk = Walk::new(limit).through(&before);
        let back = walk.edit(other).edit(limit);
        stay_together(walk, back, &after)?;
    }

    #[test]
    fn sliding_max_there_and_back_is_the_identity(
        limit in strategies::sliding(),
        max in 1..=1_000_u64,
        before in forward_steps(),
        after in forward_steps(),
    ) {
        let other = Sliding::new(max, limit.per(), limit.parts());
        let walk = Walk::new(limit).through(&before);
        let back = walk.edit(other).edit(limit);
        stay_together(walk, back, &after)?;
    }

    #[test]
    fn sliding_log_there_and_back_is_the_identity_on_any_grid(
        max in 1..=8_u64,
        limit in strategies::sliding(),
        other in strategies::sliding(),
        before in forward_steps(),
        after in forward_steps(),
    ) {
        let limit = Sliding::new(max, limit.per(), limit.parts());
        let walk = Walk::new(limit).through(&before);
        let back = walk.edit(other).edit(limit);
        stay_together(walk, back, &after)?;
    }

    #[test]
    fn sliding_there_and_back_never_refills(
        limit in strategies::sliding(),
        other in strategies::sliding(),
        before in forward_steps(),
        later in strategies::forward(),
    ) {
        let mut walk = Walk::new(limit).through(&before);
        let mut back = walk.edit(other).edit(limit);
        prop_assert!(back.remaining() <= walk.remaining());
        walk.now = later.from(walk.now, limit.scales());
        back.now = walk.now;
        prop_assert!(back.remaining() <= walk.remaining());
    }

    #[test]
    fn cooldown_there_and_back_is_the_identity(
        limit in strategies::cooldown(),
        other in strategies::cooldown(),
        before in forward_steps(),
        after in forward_steps(),
    ) {
        let walk = Walk::new(limit).through(&before);
        let back = walk.edit(other).edit(limit);
        stay_together(walk, back, &after)?;
    }

    #[test]
    fn no_edit_to_a_lower_limit_refills(
        bucket in (strategies::bucket(), strategies::bucket(), forward_steps()),
        window in (strategies::window(), strategies::window(), forward_steps()),
        sliding in (strategies::sliding(), strategies::sliding(), forward_steps()),
        cooldown in (strategies::cooldown(), strategies::length(), forward_steps()),
    ) {
        let (limit, other, steps) = bucket;
        let lowered = Bucket::try_new(other.rate(), other.capacity().min(limit.capacity()));
        lowering_does_not_refill(Walk::new(limit).through(&steps), lowered.ok())?;

        let (limit, other, steps) = window;
        let lowered = Window::try_new(other.max().min(limit.max()), other.per());
        lowering_does_not_refill(Walk::new(limit).through(&steps), lowered.ok())?;

        // A shorter sliding window lets go of what is older than it; a longer one does not.
        let (limit, other, steps) = sliding;
        let (max, per) = (other.max().min(limit.max()), other.per().max(limit.per()));
        let lowered = Sliding::try_new(max, per, other.parts());
        lowering_does_not_refill(Walk::new(limit).through(&steps), lowered.ok())?;

        let (limit, gap, steps) = cooldown;
        let lowered = Cooldown::try_new(gap.max(limit.gap()));
        lowering_does_not_refill(Walk::new(limit).through(&steps), lowered.ok())?;
    }
}

fn lowering_does_not_refill<S: Subject>(
    walk: Walk<S>,
    lowered: Option<S>,
) -> Result<(), TestCaseError> {
    let Some(lowered) = lowered else { return Ok(()) };
    let edited = walk.edit(lowered);
    prop_assert!(edited.remaining() <= walk.remaining());
    for amount in [Amount::Exactly(1), Amount::Sixteenths(8), Amount::CapacityAnd(0)] {
        let cost = amount.of(lowered.capacity());
        let is_allowed =
            |walk: &Walk<S>| walk.limit.peek(&walk.state, cost, walk.at()).is_allowed();
        prop_assert!(is_allowed(&walk) || !is_allowed(&edited));
    }
    Ok(())
}

#[test]
fn rate_edit_there_and_back_is_exact_to_the_tick() {
    // A third of a unit is consumed and neither rate has a tick that is a third of the other's.
    let thirds = Bucket::per_second(3).burst(10);
    let sevenths = Bucket::per_second(7).burst(10);
    let take_all = Step { time: Move::By(0), op: Op::Check(Amount::Exactly(10)) };
    let mut walk = Walk::new(thirds).through(&[take_all]);
    walk.now += 1;
    let mut edited = walk.edit(sevenths);
    for _ in 0..1_000 {
        edited = edited.edit(thirds).edit(sevenths);
    }
    let back = edited.edit(thirds);
    let look = |walk: &Walk<Bucket>| summary(&walk.limit.peek(&walk.state, 1, walk.at()));
    assert_eq!(look(&walk), look(&back));
    assert_eq!(look(&walk).remaining, 0);
}
