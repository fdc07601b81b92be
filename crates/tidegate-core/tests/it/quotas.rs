//! Quotas against their model. They take periods instead of a clock, so they have their own walk.

use proptest::prelude::*;
use tidegate_core::{Carry, Debt, HeldUnits, Period, Quota, Timestamp, Wait};

use crate::model::{QuotaModel, summary};
use crate::strategies::{self, Amount, Op};

const MONTH: u64 = 1_000;

pub(crate) fn quota() -> impl Strategy<Value = Quota> {
    let carry = prop_oneof![
        Just(Carry::Nothing),
        (1..=30_u64).prop_map(Carry::UpTo),
        Just(Carry::UpTo(u64::from(u32::MAX))),
        Just(Carry::All),
    ];
    let max = prop_oneof![3 => 1..=20_u64, 1 => 1..=u64::from(u32::MAX)];
    let debt = prop_oneof![
        3 => Just(Debt::All),
        2 => (1..=30_u64).prop_map(Debt::UpTo),
        1 => Just(Debt::UpTo(u64::MAX)),
        1 => Just(Debt::Nothing),
    ];
    (max, carry, debt)
        .prop_map(|(max, carry, debt)| Quota::new(max, carry).with_debt(debt).unwrap())
}

/// How many periods on (or back), where in the period, and whether its end is known.
pub(crate) type When = (i64, u64, bool);

pub(crate) fn when() -> impl Strategy<Value = When> {
    let periods = prop_oneof![8 => Just(0), 3 => 1..=3_i64, 1 => 4..=20_i64, 1 => -2..=0_i64];
    (periods, 0..=MONTH, prop::bool::weighted(0.8))
}

/// The period around a time on a calendar of thousands; its last moment belongs to the next one,
/// but a host may be late.
pub(crate) fn resolve(index: &mut u64, (periods, offset, is_known): When) -> (Period, u64) {
    *index = index.saturating_add_signed(periods).max(1);
    let ends = is_known.then(|| Timestamp::from_nanos((*index + 1) * MONTH));
    (Period { index: *index, ends }, *index * MONTH + offset)
}

/// Some hold of the model that was not settled.
fn choose(model: &QuotaModel, chosen: Amount) -> Option<(usize, HeldUnits)> {
    let count = u64::try_from(model.holds().len()).unwrap();
    let index = usize::try_from(chosen.of(97).checked_rem(count)?).unwrap();
    let hold = model.holds()[index];
    Some((index, HeldUnits { units: hold.units, period: hold.period }))
}

proptest! {
    #![proptest_config(strategies::config())]

    #[test]
    fn quota_agrees_with_its_model(
        limit in quota(),
        steps in prop::collection::vec((when(), strategies::op_with_postpaid(1)), 1..40),
    ) {
        let mut index = 3;
        let first = Period { index, ends: None };
        let (mut state, mut model) = (limit.fresh(first), QuotaModel::new(limit, index));
        for (when, op) in steps {
            let (period, now) = resolve(&mut index, when);
            let (at, max) = (Timestamp::from_nanos(now), limit.max());
            let before = state;
            match op {
                Op::Check(amount) => {
                    let cost = amount.of(max);
                    let looked = limit.peek(&state, cost, period, at);
                    let decision = limit.check(&mut state, cost, period, at);
                    prop_assert_eq!(summary(&decision), model.check(cost, period, now));
                    prop_assert_eq!(decision.retry_after(), looked.retry_after());
                    prop_assert!(state == before || (decision.is_allowed() && cost > 0));
                    if let Some(Wait::After(wait)) = decision.retry_after() {
                        prop_assert!(wait.as_nanos() >= 1);
                        prop_assert_eq!(Some(wait), period.left(at));
                        let next = Period { index: period.index + 1, ends: None };
                        prop_assert!(limit.peek(&state, cost, next, at).is_allowed());
                    }
                }
                Op::CheckPostpaid(amount) => {
                    let cost = amount.of(max);
                    let decision = limit.check_postpaid(&mut state, cost, period, at);
                    prop_assert_eq!(summary(&decision), model.check_postpaid(cost, period, now));
                    prop_assert!(cost > 0 || state == before);
                }
                Op::Peek(amount) => {
                    let cost = amount.of(max);
                    let decision = limit.peek(&state, cost, period, at);
                    prop_assert_eq!(summary(&decision), model.peek(cost, period, now));
                }
                Op::Hold(amount) => {
                    let units = amount.of(max);
                    let decision = limit.hold(&mut state, units, period, at);
                    prop_assert_eq!(summary(&decision), model.hold(units, period, now));
                }
                Op::Refund(amount) => {
                    let given = limit.refund(&mut state, amount.of(max), period);
                    prop_assert_eq!(given, model.refund(amount.of(max), period));
                }
                Op::Commit(chosen, actual) => {
                    let Some((index, held)) = choose(&model, chosen) else { continue };
                    // Around what was held, or anything.
                    let actual = match actual {
                        Amount::Sixteenths(more) => (held.units + more).saturating_sub(8),
                        actual => actual.of(max),
                    };
                    let committed = limit.commit(&mut state, held, actual, period);
                    prop_assert_eq!(committed, model.commit(index, actual, period));
                }
                Op::Cancel(chosen) => {
                    let Some((index, held)) = choose(&model, chosen) else { continue };
                    limit.cancel(&mut state, held, period);
                    model.cancel(index, period);
                }
                Op::Edit(_) => {}
            }
        }
    }

    #[test]
    fn quota_never_charges_more_than_was_granted(
        limit in quota(),
        steps in prop::collection::vec((when(), strategies::amount()), 1..40),
    ) {
        // Over any number of periods: what they grant, and what may be carried into the first.
        let (mut index, mut charges) = (3, Vec::<(u64, u128)>::new());
        let mut state = limit.fresh(Period { index, ends: None });
        for (when, amount) in steps {
            let (period, now) = resolve(&mut index, when);
            let cost = amount.of(limit.max());
            let decision = limit.check(&mut state, cost, period, Timestamp::from_nanos(now));
            if decision.is_allowed() {
                charges.push((state.period, cost.into()));
            }
        }
        for (first, &(start, _)) in charges.iter().enumerate() {
            let mut sum = 0;
            for &(end, units) in &charges[first..] {
                sum += units;
                let carried = match limit.carry() {
                    Carry::Nothing => 0,
                    Carry::UpTo(bound) => u128::from(bound),
                    Carry::All => u128::from(start - 3) * u128::from(limit.max()),
                };
                let granted = u128::from(end - start + 1) * u128::from(limit.max());
                prop_assert!(sum <= granted + carried, "{sum} in the periods {start} to {end}");
            }
        }
    }

    #[test]
    fn quota_hold_and_cancel_is_the_identity(
        limit in quota(),
        before in prop::collection::vec((when(), strategies::amount()), 0..10),
        held in (when(), strategies::amount()),
        later in 0..=2_i64,
        after in prop::collection::vec((when(), strategies::amount()), 1..10),
    ) {
        let mut index = 3;
        let mut state = limit.fresh(Period { index, ends: None });
        for (when, amount) in before {
            let (period, now) = resolve(&mut index, when);
            let cost = amount.of(limit.max());
            let _ = limit.check(&mut state, cost, period, Timestamp::from_nanos(now));
        }
        index = index.max(state.period);
        let ((periods, offset, is_known), amount): (When, Amount) = held;
        let (period, now) = resolve(&mut index, (periods.max(0), offset, is_known));
        let (at, units) = (Timestamp::from_nanos(now), amount.of(limit.max()));
        let mut other = state;
        if !limit.hold(&mut other, units, period, at).is_allowed() {
            return Ok(());
        }
        let held = HeldUnits { units, period: other.period };
        let (period, _) = resolve(&mut index, (later, 0, false));
        limit.cancel(&mut other, held, period);
        for ((periods, offset, is_known), amount) in after {
            let (period, now) = resolve(&mut index, (periods.max(0), offset, is_known));
            let (at, cost) = (Timestamp::from_nanos(now), amount.of(limit.max()));
            let ours = limit.check(&mut state, cost, period, at);
            prop_assert_eq!(summary(&ours), summary(&limit.check(&mut other, cost, period, at)));
        }
    }
}
