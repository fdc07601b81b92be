use super::*;
use crate::Wait;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn sliding(max: u64, per_ns: u64, parts: u32) -> Sliding {
    Sliding::new(max, Duration::from_nanos(per_ns), parts)
}

fn counts(state: &SlidingState) -> Option<(u64, Vec<u32>)> {
    match state.record {
        SlidingRecord::Log { .. } => None,
        SlidingRecord::Parts { newest, counts } => Some((newest, counts[..5].to_vec())),
    }
}

#[test]
fn grid_has_every_nanosecond_in_one_part() {
    for (per_ns, parts) in [(100, 15), (7, 7), (7, 3), (1, 1), (1_000, 10), (u64::MAX >> 1, 15)] {
        let limit = sliding(1, per_ns, parts);
        for part in [0, 1, 2, 3, 14, 15, 16, 31] {
            let start = limit.part_start_ns(part);
            if start > 0 && start <= Timestamp::MAX.as_nanos() {
                assert_eq!(limit.part_at(start), part, "{parts} parts of {per_ns}");
                assert_eq!(limit.part_at(start - 1), part - 1, "{parts} parts of {per_ns}");
            }
        }
        // One window later is `parts` parts later, from every nanosecond.
        for now in [0, 1, 5, 6, 7, 99, 1_000] {
            let later = limit.part_at(now + per_ns);
            assert_eq!(later, limit.part_at(now) + u64::from(parts));
        }
    }
}

#[test]
fn log_keeps_eight_units_and_then_counts() {
    let limit = sliding(20, 40, 4);
    let mut state = limit.fresh();
    for (now, cost, expected) in [
        (5, 3, None),
        (15, 5, None),
        (25, 1, Some((2, vec![1, 5, 3, 0, 0]))),
        (24, 2, Some((2, vec![3, 5, 3, 0, 0]))),
        // A clock that steps back counts in the newest part.
        (5, 2, Some((2, vec![5, 5, 3, 0, 0]))),
        (45, 1, Some((4, vec![1, 0, 5, 5, 3]))),
        (50, 1, Some((5, vec![1, 1, 0, 5, 5]))),
        // Everything has left: units are logged one by one again.
        (200, 1, None),
    ] {
        assert!(limit.check(&mut state, cost, at(now)).is_allowed(), "{cost} at {now}");
        assert_eq!(counts(&state), expected, "{cost} at {now}");
    }
}

#[test]
fn a_logged_unit_is_counted_in_the_part_of_its_nanosecond() {
    let limit = sliding(20, 40, 4);
    for (first, second) in [(0, 10), (9, 19), (5, 10), (9, 10)] {
        let mut state = limit.fresh();
        for (now, cost) in [(first, 4), (second, 4), (25, 1)] {
            assert!(limit.check(&mut state, cost, at(now)).is_allowed());
        }
        assert_eq!(counts(&state), Some((2, vec![1, 4, 4, 0, 0])), "{first} and {second}");
    }
}

#[test]
fn waits_until_enough_has_left() {
    let after = |nanos| Some(Wait::After(Duration::from_nanos(nanos)));
    let log = sliding(3, 40, 4);
    let parts = sliding(12, 40, 4);
    let (mut log_state, mut parts_state) = (log.fresh(), parts.fresh());
    for now in [5, 15, 25] {
        assert!(log.check(&mut log_state, 1, at(now)).is_allowed());
        assert!(parts.check(&mut parts_state, 4, at(now)).is_allowed());
    }
    // (cost to the log, cost to the parts, wait of the log, wait of the parts), checked at 30
    for (cost, parts_cost, wait, parts_wait) in [
        (1, 1, after(15), after(20)),
        (1, 4, after(15), after(20)),
        (2, 5, after(25), after(30)),
        (3, 12, after(35), after(40)),
        (4, 13, Some(Wait::Never), Some(Wait::Never)),
    ] {
        assert_eq!(log.peek(&log_state, cost, at(30)).retry_after(), wait, "{cost}");
        assert_eq!(
            parts.peek(&parts_state, parts_cost, at(30)).retry_after(),
            parts_wait,
            "{parts_cost}"
        );
    }
}

#[test]
fn refund_takes_the_oldest() {
    let limit = sliding(20, 40, 4);
    let mut state = limit.fresh();
    for now in [5, 15, 25] {
        assert!(limit.check(&mut state, 4, at(now)).is_allowed());
    }
    for (units, given, left) in [(0, 0, [4, 4, 4]), (5, 5, [4, 3, 0]), (9, 7, [0, 0, 0])] {
        assert_eq!(limit.refund(&mut state, units, at(25)), given);
        assert_eq!(counts(&state).unwrap().1[..3], left);
    }
    assert!(limit.is_idle(&state, at(25)));
}

#[test]
fn new_grid_takes_counts_at_their_last_moment() {
    let old = sliding(20, 40, 4);
    let mut state = old.fresh();
    for (now, cost) in [(5, 6), (15, 4), (25, 2)] {
        assert!(old.check(&mut state, cost, at(now)).is_allowed());
    }
    // Parts end at 9, 19 and, cut off by the edit at 27, at 27.
    for (per_ns, parts, expected) in [
        (40, 4, (2, vec![2, 4, 6, 0, 0])),
        (40, 8, (5, vec![2, 0, 4, 0, 6])),
        (80, 4, (1, vec![2, 10, 0, 0, 0])),
        // Only 10 ns fit, in parts of 5: what is older stays in the oldest.
        (10, 2, (5, vec![2, 0, 10, 0, 0])),
    ] {
        let new = sliding(20, per_ns, parts);
        let carried = new.carry_over(&old, &state, at(27));
        assert_eq!(counts(&carried), Some(expected), "{parts} parts of {per_ns}");
    }
    // Where nothing was charged lately, the newest part is that of the last charge.
    let carried = sliding(20, 40, 8).carry_over(&old, &old.current(&state, at(37)), at(37));
    assert_eq!(counts(&carried), Some((5, vec![2, 0, 4, 0, 6])));
}

#[test]
fn reset_is_unknown_while_units_are_held() {
    for max in [3, 20] {
        let limit = sliding(max, 40, 4);
        let mut state = limit.fresh();
        assert_eq!(limit.peek(&state, 0, at(5)).reset(), Some(Duration::ZERO));
        assert!(limit.hold(&mut state, 1, at(5)).is_allowed());
        assert_eq!(limit.peek(&state, 0, at(5)).reset(), None, "a hold alone");
        assert_eq!(limit.check(&mut state, max - 1, at(15)).reset(), None, "and a charge");
        assert_eq!(limit.peek(&state, max, at(15)).reset(), None, "denied");
        assert_eq!(limit.peek(&state, 0, at(500)).reset(), None, "the charge has left");
        limit.cancel(&mut state, 1, at(500));
        assert_eq!(limit.peek(&state, 0, at(500)).reset(), Some(Duration::ZERO));
    }
}
