use std::time::Duration;

use tidegate_table::{Clock, MonotonicClock};

use super::{ClockStep, RoundTrip, ServerClock};

/// A sample of a server's clock that is ahead of the local one by so much.
fn observe(clock: &ServerClock, ahead_us: u64, trip_us: u64) -> Option<ClockStep> {
    let sent_ns = MonotonicClock.now().as_nanos();
    let back_ns = sent_ns + trip_us * 1_000;
    let server_us = (sent_ns + trip_us * 500) / 1_000 + ahead_us;
    clock.observe(server_us, RoundTrip { sent_ns, back_ns })
}

#[test]
fn the_best_samples_bound_the_time() {
    let clock = ServerClock::default();
    let ahead_us = 1_000_000_000_000;
    for trip_us in [900, 100, 5_000] {
        assert_eq!(observe(&clock, ahead_us, trip_us), None);
    }
    let server_ns = MonotonicClock.now().as_nanos() + ahead_us * 1_000;
    assert!(clock.latest().as_nanos() + 1_000 >= server_ns, "it is no earlier than the server's");
    // Half of 100 us on each side, and a little drift.
    assert!(clock.uncertainty() < Duration::from_micros(500), "{:?}", clock.uncertainty());
}

#[test]
fn steps_of_the_servers_clock_are_reported_and_it_never_runs_backwards() {
    let clock = ServerClock::default();
    let ahead_us = 1_000_000_000_000;
    assert_eq!(observe(&clock, ahead_us, 100), None);
    let before = clock.now();
    let step = observe(&clock, ahead_us + 10_000_000, 100);
    assert!(matches!(step, Some(ClockStep::Forward(by)) if by > Duration::from_millis(9_900)));
    let after = clock.now();
    assert!(after >= before.saturating_add(Duration::from_millis(9_900)), "it counts as time");
    let step = observe(&clock, ahead_us, 100);
    assert!(matches!(step, Some(ClockStep::Back(by)) if by > Duration::from_millis(9_900)));
    assert!(clock.now() >= after, "it never runs backwards");
    assert!(clock.now() < after.saturating_add(Duration::from_secs(5)), "it stands still");
}

#[test]
fn a_system_clock_that_is_ahead_does_not_count_once_the_server_is_known() {
    let clock = ServerClock::default();
    let (hour_us, before) = (3_600_000_000, clock.now());
    let server_us = before.as_nanos() / 1_000 - hour_us;
    let local_ns = MonotonicClock.now().as_nanos();
    let trip = RoundTrip { sent_ns: local_ns, back_ns: local_ns };
    assert_eq!(clock.observe(server_us, trip), None);
    assert!(clock.now() < before, "limits refill by the server's time");
    assert!(clock.latest() < before);
}

#[test]
fn a_clock_that_is_adjusted_is_no_step_and_the_last_step_is_remembered() {
    let clock = ServerClock::default();
    let ahead_us = 1_000_000_000_000;
    assert_eq!(observe(&clock, ahead_us, 100), None);
    assert_eq!(observe(&clock, ahead_us + 4_900_000, 100), None, "less than 5 s");
    let _ = clock.now();
    assert_eq!(observe(&clock, ahead_us, 100), None);
    assert_eq!(clock.last_step(), None);
    assert!(clock.ahead() > Duration::from_millis(4_800), "it stands still: {:?}", clock.ahead());
    let step = observe(&clock, ahead_us - 5_100_000, 100);
    assert!(matches!(step, Some(ClockStep::Back(_))), "{step:?}");
    assert_eq!(clock.last_step(), step);
    assert!(clock.ahead() > Duration::from_millis(9_800), "{:?}", clock.ahead());
}

#[test]
fn a_clock_that_follows_the_server_is_not_ahead_of_it() {
    let clock = ServerClock::default();
    assert_eq!(clock.ahead(), Duration::ZERO, "nothing is known");
    assert_eq!(observe(&clock, 1_000_000_000_000, 100), None);
    let _ = clock.now();
    assert!(clock.ahead() < Duration::from_secs(1), "{:?}", clock.ahead());
}
