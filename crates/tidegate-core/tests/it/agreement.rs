//! The crate agrees with the model, step by step: decision, remaining, wait and reset.
//!
//! On the way, promises that hold for every single decision are checked on each state reached.

use proptest::prelude::*;
use tidegate_core::{Algorithm, Debt, Decision, Timestamp, Wait};

use crate::model::{Model, Summary, summary};
use crate::strategies::{self, Op, Step, Subject};

proptest! {
    #![proptest_config(strategies::config())]

    #[test]
    fn bucket_agrees_with_its_model(
        limit in strategies::bucket(),
        steps in strategies::steps_with_postpaid(strategies::anywhere(), 1),
    ) {
        follow(&[limit], &steps)?;
    }

    #[test]
    fn bucket_agrees_with_its_model_across_edits(
        limits in prop::collection::vec(strategies::related_bucket(), 3),
        steps in strategies::steps_with_postpaid(strategies::forward(), 3),
    ) {
        follow(&limits, &steps)?;
    }

    /// Where no bound of the debt is reached, it might as well be none.
    #[test]
    fn bucket_with_all_debt_is_one_with_enough(
        limit in strategies::related_bucket(),
        steps in strategies::steps_with_postpaid(strategies::forward(), 1),
    ) {
        let [all, enough] =
            [Debt::All, Debt::UpTo(1 << 32)].map(|debt| limit.with_debt(debt).unwrap());
        let (mut ours, mut theirs) = (all.fresh(), enough.fresh());
        let mut now = 0;
        for Step { time, op } in steps {
            now = time.from(now, limit.scales());
            let at = Timestamp::from_nanos(now);
            if let Op::CheckPostpaid(amount) | Op::Check(amount) = op {
                let cost = amount.of(limit.capacity()) % (1 << 26);
                let decision = all.check_postpaid(&mut ours, cost, at);
                prop_assert_eq!(decision, enough.check_postpaid(&mut theirs, cost, at));
                prop_assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn window_agrees_with_its_model(
        limits in prop::collection::vec(strategies::window(), 3),
        steps in strategies::steps_with_postpaid(strategies::anywhere(), 3),
    ) {
        follow(&limits, &steps)?;
    }

    #[test]
    fn sliding_agrees_with_its_model(
        limit in strategies::sliding(),
        steps in strategies::steps_with_postpaid(strategies::anywhere(), 1),
    ) {
        follow(&[limit], &steps)?;
    }

    #[test]
    fn sliding_agrees_with_its_model_across_edits(
        limits in prop::collection::vec(strategies::sliding(), 3),
        steps in strategies::steps_with_postpaid(strategies::forward(), 3),
    ) {
        follow(&limits, &steps)?;
    }

    #[test]
    fn cooldown_agrees_with_its_model(
        limits in prop::collection::vec(strategies::cooldown(), 3),
        steps in strategies::steps(strategies::anywhere(), 3),
    ) {
        follow(&limits, &steps)?;
    }
}

/// Walks the crate and the model through the same steps.
fn follow<S: Subject>(limits: &[S], steps: &[Step]) -> Result<(), TestCaseError> {
    let mut limit = limits[0];
    let (mut state, mut model) = (limit.fresh(), Model::<S::Picture>::new(limit));
    let mut now = limit.scales()[0];
    for Step { time, op } in steps {
        now = time.from(now, limit.scales());
        let (at, capacity, before) = (Timestamp::from_nanos(now), limit.capacity(), state);
        match *op {
            Op::Check(amount) => {
                let cost = amount.of(capacity);
                let looked = limit.peek(&state, cost, at);
                let decision = limit.check(&mut state, cost, at);
                prop_assert_eq!(summary(&decision), model.check(cost, now));
                let is_extended = limit.is_extended_by_refusals() && !decision.is_allowed();
                prop_assert_eq!(looked.is_allowed(), decision.is_allowed());
                prop_assert!(is_extended || looked.retry_after() == decision.retry_after());
                if cost == 0 || !decision.is_allowed() {
                    prop_assert!(before == state || is_extended, "{:?} is now {:?}", before, state);
                }
                keeps_its_word(&limit, &state, (cost, at), &decision)?;
            }
            Op::CheckPostpaid(amount) => {
                let cost = amount.of(capacity);
                let decision = limit.check_postpaid(&mut state, cost, at);
                prop_assert_eq!(summary(&decision), model.check_postpaid(cost, now));
                prop_assert!(cost > 0 || before == state, "{:?} is now {:?}", before, state);
                waits_honestly(&limit, &state, (1, at), &decision)?;
            }
            Op::Peek(amount) => {
                let cost = amount.of(capacity);
                let decision = limit.peek(&state, cost, at);
                prop_assert_eq!(summary(&decision), model.peek(cost, now));
            }
            Op::Hold(amount) => {
                let units = amount.of(capacity);
                let decision = limit.hold(&mut state, units, at);
                prop_assert_eq!(summary(&decision), model.hold(units, now));
                waits_honestly(&limit, &state, (units, at), &decision)?;
            }
            Op::Refund(amount) => {
                let units = amount.of(capacity);
                prop_assert_eq!(limit.refund(&mut state, units, at), model.refund(units, now));
            }
            Op::Commit(units, actual) => {
                let (units, actual) = (units.of(capacity), actual.of(capacity));
                let charged = limit.commit(&mut state, units, actual, at);
                prop_assert_eq!(charged, model.commit(units, actual, now));
            }
            Op::Cancel(amount) => {
                let units = amount.of(capacity);
                limit.cancel(&mut state, units, at);
                model.commit(units, 0, now);
            }
            Op::Edit(index) => {
                let new = limits[index].succeeding(&limit);
                state = new.carry_over(&limit, &state, at);
                model.edit(new, now);
                limit = new;
            }
        }
        looks_fresh_when_idle(&limit, &state, at)?;
    }
    Ok(())
}

/// What a decision promises about the state that it left behind.
fn keeps_its_word<S: Subject>(
    limit: &S,
    state: &S::State,
    (cost, at): (u64, Timestamp),
    decision: &Decision,
) -> Result<(), TestCaseError> {
    waits_honestly(limit, state, (cost, at), decision)?;
    let Summary { remaining, reset, allowed, .. } = summary(decision);
    prop_assert_eq!((decision.decided_at(), allowed), (at, decision.retry_after().is_none()));
    if limit.counts_units() {
        let is_overdrawn = !limit.peek(state, 0, at).is_allowed();
        prop_assert!(is_overdrawn || limit.peek(state, remaining, at).is_allowed());
        let more = remaining.saturating_add(1);
        prop_assert!(more == remaining || !limit.peek(state, more, at).is_allowed());
    }
    // A state with holds is never idle; any other is, exactly when `reset` is over.
    if limit.is_idle(state, Timestamp::MAX) {
        let fresh_at = reset.map_or(Timestamp::MAX, |it| at.saturating_add(it));
        prop_assert!(limit.is_idle(state, fresh_at));
        let earlier = fresh_at.as_nanos().checked_sub(1).filter(|&nanos| nanos >= at.as_nanos());
        if let Some(nanos) = earlier {
            prop_assert!(!limit.is_idle(state, Timestamp::from_nanos(nanos)));
        }
    }
    Ok(())
}

/// A retry after the wait succeeds, one nanosecond earlier it does not.
fn waits_honestly<S: Subject>(
    limit: &S,
    state: &S::State,
    (cost, at): (u64, Timestamp),
    decision: &Decision,
) -> Result<(), TestCaseError> {
    let is_allowed_at = |nanos: u64| {
        let at = Timestamp::from_nanos(nanos);
        limit.check(&mut state.clone(), cost, at).is_allowed()
    };
    match decision.retry_after() {
        None => prop_assert!(decision.is_allowed()),
        Some(Wait::Never | Wait::Unknown) => {
            prop_assert!(!is_allowed_at(Timestamp::MAX.as_nanos()));
        }
        Some(Wait::After(wait)) => {
            let wait = u64::try_from(wait.as_nanos()).unwrap();
            prop_assert!(wait >= 1);
            prop_assert!(is_allowed_at(at.as_nanos() + wait), "too early after {wait} ns");
            prop_assert!(!is_allowed_at(at.as_nanos() + wait - 1), "{wait} ns is too long");
        }
    }
    Ok(())
}

/// A state that is idle behaves like a fresh one, whatever comes.
fn looks_fresh_when_idle<S: Subject>(
    limit: &S,
    state: &S::State,
    at: Timestamp,
) -> Result<(), TestCaseError> {
    if !limit.is_idle(state, at) {
        return Ok(());
    }
    let (mut state, mut fresh) = (*state, limit.fresh());
    let capacity = limit.capacity();
    let [long, short] = limit.scales();
    for (after, cost) in [(0, 0), (short, capacity / 2), (0, 1), (long, capacity), (short, 1)] {
        let now = Timestamp::from_nanos(at.as_nanos().saturating_add(after));
        let (ours, theirs) =
            (limit.check(&mut state, cost, now), limit.check(&mut fresh, cost, now));
        prop_assert_eq!(summary(&ours), summary(&theirs));
        let (ours, theirs) = (limit.hold(&mut state, cost, now), limit.hold(&mut fresh, cost, now));
        prop_assert_eq!(summary(&ours), summary(&theirs));
        let commit = |state: &mut S::State| limit.commit(state, cost, cost / 2 + 1, now);
        prop_assert_eq!(commit(&mut state), commit(&mut fresh));
        let refund = |state: &mut S::State| limit.refund(state, 1, now);
        prop_assert_eq!(refund(&mut state), refund(&mut fresh));
    }
    Ok(())
}
