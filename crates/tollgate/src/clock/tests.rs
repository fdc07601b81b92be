use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Timestamp;

use super::{Clock, ManualClock, MonotonicClock};

#[test]
fn clocks_can_be_borrowed_and_shared() {
    let manual = ManualClock::new(Timestamp::from_secs(3));
    let shared: Arc<dyn Clock> = Arc::new(manual.clone());
    manual.advance(Duration::from_secs(1));
    assert_eq!(Clock::now(&&manual), shared.now());
    assert_eq!(format!("{manual:?}"), "ManualClock(4.000000000s)");
}

#[test]
fn the_default_clock_begins_near_its_origin() {
    assert!(MonotonicClock.now() < Timestamp::from_secs(3_600));
}
