use tidegate_core::Timestamp;

use super::super::Clock;
use super::SystemClock;

/// 2026-01-01, which is in the past.
const YEAR_2026: Timestamp = Timestamp::from_secs(1_767_225_600);

#[test]
fn it_begins_at_the_time_of_day() {
    let clock = SystemClock::default();
    assert!(clock.now() > YEAR_2026);
    let apart_ns = clock.wall().as_nanos().abs_diff(clock.now().as_nanos());
    assert!(apart_ns < 60_000_000_000, "{apart_ns}");
}

#[test]
fn it_continues_from_its_start_whatever_the_time_of_day() {
    let clock = SystemClock::beginning_at(Timestamp::from_secs(5));
    let copy = clock;
    let before = clock.now();
    assert!(before >= Timestamp::from_secs(5) && before < Timestamp::from_secs(3_600));
    assert!(copy.now() >= before);
    assert!(clock.wall() > YEAR_2026);
}

#[test]
fn it_stays_at_the_end_of_time() {
    let clock = SystemClock::beginning_at(Timestamp::MAX);
    assert_eq!(clock.now(), Timestamp::MAX);
}
