use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;

use super::{CachedClock, Clock, ManualClock, MonotonicClock};

#[test]
fn clocks_can_be_borrowed_and_shared() {
    let manual = ManualClock::new(Timestamp::from_secs(3));
    let shared: Arc<dyn Clock> = Arc::new(manual.clone());
    manual.advance(Duration::from_secs(1));
    assert_eq!(Clock::now(&&manual), shared.now());
    assert_eq!(format!("{manual:?}"), "ManualClock { nanos: 4000000000 }");
}

#[test]
fn the_default_clock_begins_near_its_origin() {
    assert!(MonotonicClock.now() < Timestamp::from_secs(3_600));
}

/// A clock whose time of day was set.
struct Shifted(ManualClock);

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_secs(1_000).saturating_sub(Duration::from_nanos(self.0.now().as_nanos()))
    }
}

#[test]
fn wall_defaults_to_the_clocks_own_time() {
    let manual = ManualClock::new(Timestamp::from_secs(3));
    assert_eq!(manual.wall(), Timestamp::from_secs(3));
    let shifted = Shifted(manual);
    assert_eq!(Clock::wall(&&shifted), Timestamp::from_secs(997));
    let shared: Arc<dyn Clock> = Arc::new(shifted);
    assert_eq!(shared.wall(), Timestamp::from_secs(997));
    assert!(MonotonicClock.wall() > Timestamp::from_secs(1_767_225_600));
}

#[test]
fn a_cached_clock_follows_the_time_of_day_also_backwards() {
    let manual = ManualClock::new(Timestamp::from_secs(3));
    let cached = CachedClock::new(Shifted(manual.clone()));
    manual.advance(Duration::from_secs(1));
    assert_eq!(cached.wall(), Timestamp::from_secs(997));
    cached.refresh();
    assert_eq!(cached.wall(), Timestamp::from_secs(996));
}
