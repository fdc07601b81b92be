//! Laws between states: holds, refunds, joins, and limits as words.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Algorithm, Bucket, Cooldown, Sliding, Timestamp, Wait, Window};

use crate::model::summary;
use crate::strategies::{self, Amount, Move, Op, Step, Subject};
use crate::walk::Walk;

fn forward_steps() -> impl Strategy<Value = Vec<Step>> {
    strategies::steps(strategies::forward(), 1)
}

/// The same laws for each kind of limit.
macro_rules! laws_for {
    ($($limit:ident),*) => {$(
        mod $limit {
            use super::*;

            proptest! {
                #![proptest_config(strategies::config())]

                #[test]
                fn join_is_at_least_as_restrictive_as_both(
                    limit in strategies::$limit(),
                    a in forward_steps(),
                    b in forward_steps(),
                    later in prop::collection::vec((strategies::forward(), strategies::amount()), 8),
                ) {
                    joined_is_restrictive([Walk::new(limit).through(&a), Walk::new(limit).through(&b)], &later)?;
                }

                #[test]
                fn refunds_are_never_more_than_was_charged(
                    limit in strategies::$limit(),
                    steps in forward_steps(),
                ) {
                    refunds_are_covered(Walk::new(limit), &steps)?;
                }

                #[test]
                fn words_make_the_same_limit(
                    limit in strategies::$limit(),
                    steps in forward_steps(),
                ) {
                    let copy = Algorithm::from_words(limit.to_words());
                    prop_assert_eq!(limit, copy);
                    let (mut walk, mut other) = (Walk::new(limit), Walk::new(copy));
                    for step in &steps {
                        prop_assert_eq!(walk.step(step), other.step(step));
                    }
                }
            }
        }
    )*};
}

laws_for!(bucket, window, sliding, cooldown);

/// Hold and cancel, for the limits that give a cancelled hold back.
macro_rules! holds_for {
    ($($name:ident: $limit:ident),*) => {
        proptest! {
            #![proptest_config(strategies::config())]

            $(
                #[test]
                fn $name(
                    limit in strategies::$limit(),
                    before in forward_steps(),
                    held in (strategies::forward(), strategies::amount()),
                    cancelled in strategies::forward(),
                    after in forward_steps(),
                ) {
                    let walk = Walk::new(limit).through(&before);
                    hold_and_cancel_changes_nothing(walk, held, cancelled, &after)?;
                }
            )*
        }
    };
}

holds_for!(
    bucket_hold_and_cancel_is_the_identity: bucket,
    window_hold_and_cancel_is_the_identity: window,
    sliding_hold_and_cancel_is_the_identity: sliding
);

/// Not for windows: a charge that opens one also ends it earlier.
macro_rules! refunds_for {
    ($($name:ident: $limit:ident),*) => {
        proptest! {
            #![proptest_config(strategies::config())]

            $(
                #[test]
                fn $name(
                    limit in strategies::$limit(),
                    before in forward_steps(),
                    charge in (strategies::forward(), strategies::amount()),
                    later in prop::collection::vec((strategies::forward(), strategies::amount()), 6),
                    parts in prop::collection::vec(strategies::amount(), 3),
                ) {
                    let walk = Walk::new(limit).through(&before);
                    refunded_charge_is_covered(walk, charge, &later, &parts)?;
                }
            )*
        }
    };
}

refunds_for!(
    bucket_refund_leaves_no_more_than_without_the_charge: bucket,
    sliding_refund_leaves_no_more_than_without_the_charge: sliding,
    cooldown_refund_leaves_no_more_than_without_the_charge: cooldown
);

/// In parts, and each unit once, whatever others have charged since.
#[test]
fn refund_of_a_charge_returns_what_still_counts_of_it() {
    let second = Duration::from_secs(1);
    returns_what_counts(Bucket::per_second(10));
    returns_what_counts(Window::new(10, second));
    returns_what_counts(Sliding::new(10, second, 10));
}

fn returns_what_counts<A: Algorithm>(limit: A) {
    let (mut state, now) = (limit.fresh(), Timestamp::ZERO);
    assert!(limit.check(&mut state, 4, now).is_allowed());
    let mut charge = state;
    assert!(limit.check(&mut state, 3, now).is_allowed());
    for (units, given, used) in [(0, 0, 7), (3, 3, 4), (5, 1, 3), (1, 0, 3)] {
        let refunded = limit.refund_charge(&mut state, &mut charge, units, now);
        assert_eq!((refunded, limit.used(&state, now)), (given, used), "{units} of {limit:?}");
    }
}

/// Not even the time: a clock that steps back finds the state as it was.
#[test]
fn refund_and_hold_of_nothing_change_nothing() {
    let second = Duration::from_secs(1);
    stays_as_it_is(Bucket::per_second(10));
    stays_as_it_is(Window::new(10, second));
    stays_as_it_is(Sliding::new(10, second, 10));
    stays_as_it_is(Cooldown::new(second));
}

fn stays_as_it_is<A: Algorithm>(limit: A) {
    let mut state = limit.fresh();
    assert!(limit.check(&mut state, 4, Timestamp::from_secs(1)).is_allowed());
    let before = state;
    for (units, secs) in [(0, 1), (0, 9), (4, 9)] {
        let now = Timestamp::from_secs(secs);
        assert_eq!(limit.refund(&mut state, units, now), 0, "{units} of {limit:?}");
        assert_eq!(limit.refund_charge(&mut state, &mut { before }, units, now), 0);
        assert!(limit.hold(&mut state, 0, Timestamp::from_secs(9)).is_allowed());
        assert_eq!(state, before, "{units} of {limit:?} after {secs} s");
    }
}

/// The decision of a store without room: denied for an unknown time.
#[test]
fn refused_for_unknown_time_stays_refused() {
    let limit = Window::new(3, Duration::from_secs(1));
    let mut state = limit.fresh();
    for (cost, wait) in [(1, Wait::Unknown), (3, Wait::Unknown), (4, Wait::Never)] {
        let decision = limit.check(&mut state, cost, Timestamp::ZERO);
        let denied = decision.denied_for_unknown_time();
        assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(wait)), "{cost}");
    }
}

fn hold_and_cancel_changes_nothing<S: Subject>(
    mut walk: Walk<S>,
    (time, amount): (Move, Amount),
    later: Move,
    after: &[Step],
) -> Result<(), TestCaseError> {
    walk.now = time.from(walk.now, walk.limit.scales());
    let mut other = walk.clone();
    let units = amount.of(walk.limit.capacity());
    let at = walk.at();
    if !walk.limit.hold(&mut walk.state, units, at).is_allowed() {
        return Ok(());
    }
    walk.now = later.from(walk.now, walk.limit.scales());
    other.now = walk.now;
    let at = walk.at();
    walk.limit.cancel(&mut walk.state, units, at);
    for step in after {
        prop_assert_eq!(walk.step(step), other.step(step));
    }
    Ok(())
}

fn refunds_are_covered<S: Subject>(mut walk: Walk<S>, steps: &[Step]) -> Result<(), TestCaseError> {
    for step in steps {
        let before = walk.clone();
        walk.step(step);
        let net: i128 = walk.admissions.iter().map(|admission| admission.1).sum();
        prop_assert!(net >= 0, "{net} units were refunded that were never charged");
        if let Op::Refund(_) = step.op {
            let at = |walk: &Walk<S>| walk.limit.peek(&walk.state, 0, walk.at()).remaining();
            let (was, is) = (at(&Walk { now: walk.now, ..before.clone() }), at(&walk));
            let given = before.admissions.len() != walk.admissions.len();
            prop_assert!(is <= walk.limit.capacity() && is >= was);
            prop_assert!(given || is == was);
        }
    }
    Ok(())
}

/// Charges one key and not its twin, and refunds that charge in parts between later requests.
fn refunded_charge_is_covered<S: Subject>(
    mut walk: Walk<S>,
    (time, amount): (Move, Amount),
    later: &[(Move, Amount)],
    parts: &[Amount],
) -> Result<(), TestCaseError> {
    let limit = walk.limit;
    walk.now = time.from(walk.now, limit.scales());
    let (mut state, mut twin) = (walk.state, walk.state);
    let cost = amount.of(limit.capacity());
    if !limit.check(&mut state, cost, walk.at()).is_allowed() {
        return Ok(());
    }
    let (mut charge, mut left) = (state, cost);
    let mut parts = parts.iter();
    for (time, amount) in later {
        walk.now = time.from(walk.now, limit.scales());
        let (at, cost) = (walk.at(), amount.of(limit.capacity()));
        if limit.check(&mut state, cost, at).is_allowed() {
            prop_assert!(limit.check(&mut twin, cost, at).is_allowed());
        }
        if let Some(part) = parts.next() {
            let units = part.of(limit.capacity()).min(left);
            left -= limit.refund_charge(&mut state, &mut charge, units, at).min(left);
        }
        let remaining = |state: &S::State| limit.peek(state, 0, at).remaining();
        prop_assert!(remaining(&state) <= remaining(&twin), "{state:?} and {twin:?} at {at:?}");
    }
    Ok(())
}

fn joined_is_restrictive<S: Subject>(
    [a, b]: [Walk<S>; 2],
    later: &[(Move, Amount)],
) -> Result<(), TestCaseError> {
    let limit = a.limit;
    let joined = limit.join(&a.state, &b.state);
    let swapped = limit.join(&b.state, &a.state);
    let mut now = a.now.max(b.now);
    for (time, amount) in later {
        now = time.from(now, limit.scales());
        let (at, cost) = (Timestamp::from_nanos(now), amount.of(limit.capacity()));
        let decision = limit.peek(&joined, cost, at);
        prop_assert_eq!(summary(&decision), summary(&limit.peek(&swapped, cost, at)));
        for state in [&a.state, &b.state] {
            let alone = limit.peek(state, cost, at);
            prop_assert!(!decision.is_allowed() || alone.is_allowed(), "{} at {}", cost, now);
            let (left, left_alone) =
                [&joined, state].map(|state| limit.peek(state, 0, at).remaining()).into();
            prop_assert!(left <= left_alone, "{left} left of {left_alone}");
        }
    }
    Ok(())
}
