use std::time::Duration;

use tidegate_core::Timestamp;

use super::{Gathered, Gathering, LONGEST, RETRY_AFTER};

const FSYNC: Duration = Duration::from_micros(200);

fn at(us: u64) -> Timestamp {
    Timestamp::from_nanos(us * 1_000)
}

/// After many fsyncs that took so long; the last one has ended at one second.
fn after_syncs_of(us: u64) -> Gathering {
    let mut gathering = Gathering::new(FSYNC, LONGEST);
    (0..200).for_each(|_| gathering.note_sync(at(1_000_000 - us), at(1_000_000)));
    gathering
}

fn gathered(early: u64, late: u64, waited_us: u64) -> Gathered {
    Gathered { early, late, waited: Duration::from_micros(waited_us) }
}

#[test]
fn batch_waits_for_half_of_the_usual_fsync_after_the_last() {
    for us in [100, 200, 4_000] {
        let until = after_syncs_of(us).until().map(|until| until.as_nanos() / 1_000 - 1_000_000);
        assert!(until.is_some_and(|until| until <= us / 2 && until + 2 >= us / 2), "{until:?}");
    }
    assert_eq!(after_syncs_of(10).until(), None, "the disk is faster than a sleep");
    assert_eq!(after_syncs_of(900_000).until(), Some(at(1_000_000).saturating_add(LONGEST)));
}

#[test]
fn slow_fsync_hardly_changes_what_is_usual() {
    let mut gathering = after_syncs_of(200);
    gathering.note_sync(at(0), at(1_000_000));
    let until = gathering.until().map_or(0, |until| until.as_nanos() / 1_000 - 1_000_000);
    assert!((90..=150).contains(&until), "{until} us");
}

#[test]
fn it_goes_on_while_it_pays() {
    let mut gathering = after_syncs_of(200);
    // Thirty records save 150 us each, and thirty wait 50 us longer.
    gathering.note(gathered(30, 30, 50));
    assert!(gathering.until().is_some());
    // Nothing has come in a hundred microseconds.
    gathering.note(gathered(30, 0, 100));
    assert_eq!(gathering.until(), None);
    // It is tried again after a while.
    let tries = (0..2 * RETRY_AFTER).filter(|_| gathering.until().is_some());
    assert!(tries.count() > 0);
    gathering.note(gathered(2, 2, 100));
    assert_eq!(gathering.until(), None, "as much is lost as won");
    gathering.note(gathered(2, 3, 99));
    assert!(gathering.until().is_some());
}
