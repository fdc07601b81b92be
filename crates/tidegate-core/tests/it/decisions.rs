//! What a decision reports: waits, spans, measurements, and the words that stores keep.

use std::time::Duration;

use tidegate_core::{
    Algorithm, Bucket, Carry, Cooldown, Decision, Period, Quota, Rate, Sliding, Timestamp, Verdict,
    Wait, Window,
};

const SECOND: Duration = Duration::from_secs(1);

/// Three units in five nanoseconds, of which a nanosecond has three ticks; ten at once.
fn bucket() -> Bucket {
    Bucket::of(Rate::new(3, Duration::from_nanos(5))).burst(10)
}

/// The decision with these numbers: outcome, limit, room, what is lacking and what was spent.
fn with(outcome: u64, limit: u64, [room, lack, spent]: [u64; 3]) -> Decision {
    Decision::from_words([outcome, limit, 0, room, 0, lack, 0, spent, 0, 2, 1, 0])
}

#[test]
fn whole_units_of_a_wait_are_rounded_up() {
    let ms = Duration::from_millis;
    let ns = Duration::from_nanos;
    for (wait, whole_ms, whole_secs) in [
        (Duration::ZERO, 0, 0),
        (ns(1), 1, 1),
        (ms(1), 1, 1),
        (ms(1) + ns(1), 2, 1),
        (SECOND, 1_000, 1),
        (SECOND + ns(1), 1_001, 2),
        (ms(59_999), 59_999, 60),
        (Duration::MAX, u64::MAX, u64::MAX),
    ] {
        let found = (Wait::After(wait).whole_ms(), Wait::After(wait).whole_secs());
        assert_eq!(found, (Some(whole_ms), Some(whole_secs)), "{wait:?}");
    }
    for wait in [Wait::Never, Wait::Unknown] {
        assert_eq!((wait.whole_ms(), wait.whole_secs()), (None, None), "{wait:?}");
    }
}

#[test]
fn slots_are_free_or_the_wait_is_unknown() {
    const MOST: u64 = u64::MAX;
    let [unknown, never] = [Wait::Unknown, Wait::Never].map(|wait| Verdict::Deny { wait });
    let allow = |remaining| Verdict::Allow { remaining };
    for (taken, cost, verdict, remaining) in [
        (0, 0, allow(3), 3),
        (0, 1, allow(2), 2),
        (2, 1, allow(0), 0),
        (3, 0, allow(0), 0),
        (3, 1, unknown, 0),
        (2, 2, unknown, 1),
        (1, 3, unknown, 2),
        (1, 4, never, 2),
        // More than there are, after an edit.
        (4, 0, unknown, 0),
        (MOST, 1, unknown, 0),
        (MOST, MOST, never, 0),
    ] {
        let now = Timestamp::from_secs(7);
        let decision = Decision::of_slots(3, taken, cost, now);
        let found = (decision.verdict(), decision.remaining());
        assert_eq!(found, (verdict, remaining), "{cost} beside {taken}");
        let is_used = taken > 0 || cost == 1;
        let reset = (!is_used).then_some(Duration::ZERO);
        assert_eq!((decision.limit(), decision.reset()), (3, reset), "{cost} beside {taken}");
        assert_eq!((decision.span(), decision.decided_at()), (None, now));
    }
}

#[test]
fn span_is_the_time_in_which_the_capacity_returns() {
    let now = Timestamp::from_secs(3);
    let span = |decision: Decision| {
        assert_eq!(decision.decided_at(), now);
        decision.span()
    };
    let (window, sliding) = (Window::new(5, SECOND), Sliding::new(5, SECOND, 4));
    let cooldown = Cooldown::new(SECOND);
    // Fifty thirds of a nanosecond.
    let of_bucket = span(bucket().check(&mut bucket().fresh(), 1, now));
    assert_eq!(of_bucket, Some(Duration::from_nanos(17)));
    assert_eq!(span(window.check(&mut window.fresh(), 1, now)), Some(SECOND));
    assert_eq!(span(sliding.check(&mut sliding.fresh(), 1, now)), Some(SECOND));
    assert_eq!(span(cooldown.check(&mut cooldown.fresh(), 1, now)), Some(SECOND));
    let (quota, period) = (Quota::new(5, Carry::Nothing), Period { index: 0, ends: None });
    assert_eq!(span(quota.check(&mut quota.fresh(period), 1, period, now)), None);
}

#[test]
fn denied_until_waits_for_that_time() {
    let (limit, now) = (bucket(), Timestamp::from_nanos(100));
    let mut state = limit.fresh();
    let allowed = limit.check(&mut state, 10, now);
    for (ends_ns, wait_ns) in [(100, 0), (101, 1), (130, 30), (99, 0)] {
        let denied = allowed.denied_until(Timestamp::from_nanos(ends_ns));
        let wait = Wait::After(Duration::from_nanos(wait_ns));
        assert_eq!(denied.verdict(), Verdict::Deny { wait }, "until {ends_ns}");
        assert_eq!((denied.remaining(), denied.reset()), (0, allowed.reset()));
    }
}

#[test]
fn unknown_wait_takes_the_place_of_a_known_one() {
    let denied = |outcome| with(outcome, 5, [4, 3, 2]);
    for (outcome, wait, without_room) in [
        (0, None, Some(Wait::Unknown)),
        (1, Some(Wait::Unknown), Some(Wait::Unknown)),
        (2, Some(Wait::Never), Some(Wait::Never)),
        (3, Some(Wait::Unknown), Some(Wait::Unknown)),
    ] {
        let found = denied(outcome).with_unknown_wait();
        assert_eq!((found.retry_after(), found.remaining()), (wait, 2));
        let found = denied(outcome).denied_for_unknown_time();
        let remaining = if outcome == 2 { 2 } else { 0 };
        assert_eq!((found.retry_after(), found.remaining()), (without_room, remaining));
    }
}

#[test]
fn measurement_has_what_is_used_and_what_is_held() {
    for (used, held) in [(0, 0), (3, 0), (0, 5), (3, 5), (u64::MAX, 1), (1, u64::MAX)] {
        for outcome in 0..4 {
            let measured = with(outcome, 9, [8, 7, 6]).measured(used, held);
            assert_eq!((measured.measured_used(), measured.measured_held()), (used, held));
            assert_eq!(measured.verdict(), Verdict::Allow { remaining: 4 });
        }
    }
}

#[test]
fn words_of_a_decision_make_the_same_one() {
    for outcome in 0..4 {
        let words = [outcome, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(Decision::from_words(words).to_words(), words);
    }
    // No stored words make a decision that cannot be read.
    let words = Decision::from_words([9; Decision::WORDS].map(|_| 0)).to_words();
    assert_eq!(words, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0]);
    assert_eq!(Decision::from_words([99; Decision::WORDS]).to_words()[0], 3);
    let (limit, now) = (bucket(), Timestamp::from_nanos(100));
    let mut state = limit.fresh();
    for cost in [3, 8, 11] {
        let decision = limit.check(&mut state, cost, now);
        let same = Decision::from_words(decision.to_words());
        assert_eq!((same, same.span()), (decision, decision.span()), "{cost}");
    }
}

#[test]
fn decisions_are_equal_if_they_report_the_same() {
    let decision = with(3, 5, [4, 0, 6]);
    // Two ticks are a unit: what remains is the same.
    assert_eq!(decision, with(3, 5, [5, 9, 6]));
    for (other, differs_by) in [
        (with(2, 5, [4, 0, 6]), "its verdict"),
        (with(3, 6, [4, 0, 6]), "its limit"),
        (with(3, 5, [2, 0, 6]), "what remains"),
        (with(3, 5, [4, 0, 7]), "its reset"),
    ] {
        assert_ne!(decision, other, "{differs_by}");
    }
}

#[test]
fn durations_between_times_are_exact_and_never_negative() {
    let at = Timestamp::from_nanos;
    let since = |later, earlier| at(later).saturating_duration_since(at(earlier));
    assert_eq!((since(7, 3), since(3, 7)), (Duration::from_nanos(4), Duration::ZERO));
    assert_eq!(Timestamp::from_micros(3), at(3_000));
    assert_eq!(Timestamp::from_millis(3), at(3_000_000));
    assert_eq!(Timestamp::from_secs(3), at(3_000_000_000));
    assert_eq!(Timestamp::from_valid_nanos(3), at(3));
    assert_eq!(at(7).saturating_sub(Duration::from_nanos(3)), at(4));
    assert_eq!(at(7).saturating_add(Duration::from_nanos(3)), at(10));
}
