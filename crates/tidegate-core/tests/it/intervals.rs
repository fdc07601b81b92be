//! Never too much: whatever was admitted, every interval is counted, by brute force.

use num_bigint::BigInt;
use proptest::prelude::*;
use tidegate_core::{Bucket, Sliding, Window};

use crate::model::{most_in, nanos};
use crate::strategies::{self, Amount, Op, Step};
use crate::walk::{Walk, without_steps_back};

/// Steps without refunds, so that every interval of the clock can be counted even
/// if the clock steps back.
fn taking_only() -> impl Strategy<Value = Vec<Step>> {
    strategies::steps(strategies::anywhere(), 1).prop_map(|mut steps| {
        steps.retain(|step| !matches!(step.op, Op::Refund(_) | Op::Cancel(_)));
        for step in &mut steps {
            if let Op::Commit(_, actual) = &mut step.op {
                *actual = Amount::CapacityAnd(0);
            }
        }
        steps
    })
}

/// Steps of checks alone. A sliding window does not know when a hold was taken: one that is
/// committed before that time, by a clock that stepped back, counts from when it is committed.
fn checks_only() -> impl Strategy<Value = Vec<Step>> {
    taking_only().prop_map(|mut steps| {
        steps.retain(|step| !matches!(step.op, Op::Hold(_)));
        steps
    })
}

/// Steps with refunds, on a clock that runs forward; refunds count at their own time.
fn give_and_take() -> impl Strategy<Value = Vec<Step>> {
    strategies::steps(strategies::forward(), 1)
}

proptest! {
    #![proptest_config(strategies::config())]

    #[test]
    fn bucket_admits_at_most_burst_and_refill_on_any_clock(
        limit in strategies::bucket(),
        steps in taking_only(),
    ) {
        let admissions = Walk::new(limit).through(&steps).admissions;
        every_run_fits_bucket(&limit, &without_steps_back(&admissions))?;
    }

    #[test]
    fn bucket_admits_at_most_burst_and_refill_between_any_two_readings(
        limit in strategies::bucket(),
        steps in checks_only(),
    ) {
        // By the clock's own readings: sorted, as if each had come at its own time.
        let mut admissions = Walk::new(limit).through(&steps).admissions;
        admissions.sort_by_key(|admission| admission.0);
        every_run_fits_bucket(&limit, &admissions)?;
    }

    #[test]
    fn bucket_admits_at_most_burst_and_refill_net_of_refunds(
        limit in strategies::bucket(),
        steps in give_and_take(),
    ) {
        every_run_fits_bucket(&limit, &Walk::new(limit).through(&steps).admissions)?;
    }

    #[test]
    fn sliding_admits_at_most_max_in_every_window_on_any_clock(
        limit in strategies::sliding(),
        steps in checks_only(),
    ) {
        let admissions = Walk::new(limit).through(&steps).admissions;
        every_run_fits_sliding(&limit, &without_steps_back(&admissions))?;
    }

    #[test]
    fn sliding_admits_at_most_max_in_every_window_net_of_refunds(
        limit in strategies::sliding(),
        steps in give_and_take(),
    ) {
        every_run_fits_sliding(&limit, &Walk::new(limit).through(&steps).admissions)?;
    }

    #[test]
    fn window_admits_at_most_max_per_window_on_any_clock(
        limit in strategies::window(),
        steps in taking_only(),
    ) {
        let admissions = Walk::new(limit).through(&steps).admissions;
        every_window_fits(&limit, &without_steps_back(&admissions))?;
    }

    #[test]
    fn aligned_window_admits_at_most_max_per_window_net_of_refunds(
        limit in strategies::window().prop_map(Window::aligned),
        steps in give_and_take(),
    ) {
        every_window_fits(&limit, &Walk::new(limit).through(&steps).admissions)?;
    }
}

/// Calls `check` with the length and the sum of every run of admissions.
fn every_run(
    admissions: &[(u64, i128)],
    mut check: impl FnMut(u64, i128) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    for (first, (start, _)) in admissions.iter().enumerate() {
        let mut sum = 0;
        for (end, units) in &admissions[first..] {
            sum += units;
            check(end - start, sum)?;
        }
    }
    Ok(())
}

fn every_run_fits_bucket(limit: &Bucket, admissions: &[(u64, i128)]) -> Result<(), TestCaseError> {
    every_run(admissions, |length, sum| {
        prop_assert!(BigInt::from(sum) <= most_in(limit, length), "{sum} within {length} ns");
        Ok(())
    })
}

fn every_run_fits_sliding(
    limit: &Sliding,
    admissions: &[(u64, i128)],
) -> Result<(), TestCaseError> {
    every_run(admissions, |length, sum| {
        let is_one_window = length < nanos(limit.per());
        prop_assert!(!is_one_window || sum <= limit.max().into(), "{sum} within {length} ns");
        Ok(())
    })
}

/// Windows as the definition cuts them: on the grid, or from the first charge after the last one.
fn every_window_fits(limit: &Window, admissions: &[(u64, i128)]) -> Result<(), TestCaseError> {
    let per = u128::from(nanos(limit.per()));
    let (mut ends, mut sum) = (0, 0);
    // A hold charges nothing, so it opens no window.
    for &(at, units) in admissions.iter().filter(|admission| admission.1 != 0) {
        let at = u128::from(at);
        if at >= ends {
            let start = if limit.is_aligned() { at / per * per } else { at };
            (ends, sum) = (start + per, 0);
        }
        sum += units;
        prop_assert!(sum <= limit.max().into(), "{sum} in the window up to {ends}");
    }
    Ok(())
}
