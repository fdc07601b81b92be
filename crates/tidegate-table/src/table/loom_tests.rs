//! The table under every interleaving of a few steps, and every order in which a processor may
//! show the writes of one thread to another.
//!
//! This is the shipped code with loom's atomics; segments have two lines. Run it with
//! `RUSTFLAGS="--cfg loom" cargo test --release -p tidegate-table --lib loom`.

use loom::sync::Arc;
use loom::thread;
use tidegate_core::{Bucket, Decision, Rate, Timestamp};

use super::{
    Capacity, KeyLocation, Locked, NarrowLine, SlotPolicy, SlotTable, Table, TaggedLine, WhenFull,
};

const NOW: Timestamp = Timestamp::from_nanos(1_000);

/// One unit per second, `burst` at once.
fn per_second(burst: u64) -> Bucket {
    Bucket::try_new(Rate::per_second(1), burst).unwrap()
}

fn table(limit: Bucket, max_keys: usize) -> Arc<Table<Bucket>> {
    Arc::new(Table::new(limit, Capacity { max_keys, when_full: WhenFull::Deny }, None).unwrap())
}

/// How many of the calls were allowed, each in its own thread.
fn admitted<const N: usize>(
    table: &Arc<Table<Bucket>>,
    calls: [fn(&Table<Bucket>) -> bool; N],
) -> usize {
    let threads = calls.map(|call| {
        let table = Arc::clone(table);
        thread::spawn(move || call(&table))
    });
    threads.into_iter().map(|thread| thread.join().unwrap()).filter(|&allowed| allowed).count()
}

fn charge(table: &Table<Bucket>, key: u64, cost: u64, now: Timestamp) -> Decision {
    table.check(table.fetch(key), cost, now, |decision| decision)
}

fn check(table: &Table<Bucket>, key: u64) -> bool {
    table.allow(table.fetch(key), NOW)
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    model_with_preemptions(3, body);
}

fn model_with_preemptions(most: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(most);
    builder.max_branches = 20_000;
    // Only growth has more schedules than fit into this: it takes many steps.
    builder.max_duration = Some(std::time::Duration::from_secs(60));
    builder.check(body);
}

#[test]
fn loom_two_threads_insert_a_key_once() {
    model(|| {
        let table = table(per_second(1), 8);
        assert_eq!(admitted(&table, [|t| check(t, 7), |t| check(t, 7)]), 1);
        assert_eq!(table.len(), 1);
    });
}

#[test]
fn loom_a_known_key_is_charged_once_per_admission() {
    model(|| {
        let table = table(per_second(2), 8);
        assert!(check(&table, 7));
        assert_eq!(admitted(&table, [|t| check(t, 7), |t| check(t, 7)]), 1);
    });
}

#[test]
fn loom_a_charge_and_a_decision_to_report_are_made_one_after_the_other() {
    model(|| {
        let table = table(per_second(2), 8);
        assert!(check(&table, 7));
        let allowed = admitted(&table, [|t| check(t, 7), |t| charge(t, 7, 1, NOW).is_allowed()]);
        assert_eq!(allowed, 1);
    });
}

#[test]
fn loom_a_denial_never_sees_half_a_write() {
    // A unit has 86 400 · 10^9 ticks, so unit number 213 504 crosses from the low word of the state
    // into the high one. The new high word with the old low one would be far overdrawn.
    model(|| {
        let limit = Bucket::per_day(1).burst(300_000);
        let table = table(limit, 8);
        assert!(charge(&table, 7, 213_503, NOW).is_allowed());
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || charge(&table, 7, 1, NOW).is_allowed())
        };
        assert!(charge(&table, 7, 1, NOW).is_allowed());
        assert!(other.join().unwrap(), "there are 86 497 units left for both");
    });
}

#[test]
fn loom_a_slow_thread_cannot_charge_again_what_a_reused_slot_dropped() {
    // Room for one key. Key 7 is drained at time 1 000 and idle two seconds later, when key 8 takes
    // its slot, while a slow thread still believes that it is time 1 000.
    model_with_preemptions(2, || {
        let table = table(per_second(1), 1);
        assert!(check(&table, 7));
        let later = Timestamp::from_secs(2);
        let slow = {
            let table = Arc::clone(&table);
            thread::spawn(move || check(&table, 7))
        };
        let reused = charge(&table, 8, 1, later).is_allowed();
        let revived = slow.join().unwrap();
        // If 7 was allowed another unit, it was as of two seconds later, so it has none left then.
        if revived {
            table.forget(8);
            assert!(!charge(&table, 7, 1, later).is_allowed());
        }
        assert!(reused || revived, "there is room for one of them");
        assert!(table.len() <= 1);
    });
}

#[test]
fn loom_growth_loses_no_charge() {
    model_with_preemptions(1, || {
        let table = table(per_second(1), 64);
        // Six keys fill the only segment; the seventh makes it grow while the first is checked.
        for key in 1..=6 {
            assert!(check(&table, key));
        }
        assert_eq!(admitted(&table, [|t| check(t, 7), |t| check(t, 1)]), 1);
        assert_eq!(table.len(), 7);
        assert!((1..=7).all(|key| !check(&table, key)));
    });
}

#[test]
fn loom_a_key_that_growth_has_moved_is_not_inserted_where_it_was() {
    model_with_preemptions(1, || {
        let table = table(per_second(1), 64);
        // Six keys fill the only segment, and the odd ones leave it: the line where the first one was
        // has free slots then.
        let keys = [1, 2, 3, 4, 5, 7];
        for key in keys {
            assert!(check(&table, key));
        }
        assert_eq!(admitted(&table, [|t| check(t, 9), |t| check(t, 1)]), 1);
        assert_eq!(table.len(), 7);
        assert!(keys.into_iter().all(|key| !check(&table, key)));
    });
}

#[test]
fn loom_an_edit_is_seen_whole() {
    model(|| {
        let table = table(per_second(1), 8);
        assert!(check(&table, 7));
        let checker = {
            let table = Arc::clone(&table);
            thread::spawn(move || [check(&table, 7), check(&table, 7)])
        };
        let faster = Bucket::per_second(3).burst(2);
        table.set_limit(faster, || NOW);
        // One more unit under the new limit, none under the old, never two.
        let mut allowed = checker.join().unwrap().to_vec();
        allowed.push(check(&table, 7));
        assert_eq!(allowed.iter().filter(|&&allowed| allowed).count(), 1);
    });
}

#[test]
fn loom_forgetting_and_checking_leave_one_slot() {
    model(|| {
        let table = table(per_second(1), 8);
        assert!(check(&table, 7));
        let forgetful = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.forget(7))
        };
        let again = check(&table, 7);
        assert!(forgetful.join().unwrap());
        assert_eq!(table.len(), usize::from(again));
    });
}

#[test]
fn loom_a_key_that_moves_to_another_slot_is_not_seen_in_both() {
    model_with_preemptions(2, || {
        let table = table(per_second(2), 8);
        assert!(check(&table, 1) && check(&table, 7));
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || check(&table, 7))
        };
        // From the second slot to the third, because another key has taken the second.
        assert!(table.forget(7));
        assert!(check(&table, 8) && check(&table, 7));
        reader.join().unwrap();
        assert!(table.len() == 3);
    });
}

/// No key is ever idle.
struct AllLive;

impl<L: super::Line> SlotPolicy<L> for AllLive {
    fn is_idle(&self, _line: &Locked<'_, L>, _slot: usize, _since: Timestamp) -> bool {
        false
    }

    fn level(&self, _lines: &mut [Locked<'_, L>], _now: Timestamp) {}
}

/// Inserts a key; false if there is no slot for it.
fn insert<L: super::Line>(table: &SlotTable<L>, key: u64) -> bool {
    match table.enter(key, NOW, &AllLive) {
        KeyLocation::Claimed(mut chain, at) => {
            chain.line(at.line).set_fingerprint(at.slot, key);
            true
        }
        KeyLocation::Known(..) => true,
        KeyLocation::Full(_) => false,
    }
}

#[test]
fn loom_tables_that_share_a_capacity_do_not_exceed_it() {
    model_with_preemptions(2, || {
        let capacity = Capacity { max_keys: 2, when_full: WhenFull::Deny };
        let narrow = Arc::new(SlotTable::<NarrowLine>::new(capacity, None).unwrap());
        let wide = Arc::new(narrow.beside::<TaggedLine>().unwrap());
        assert!(insert(&wide, 1));
        let other = {
            let wide = Arc::clone(&wide);
            thread::spawn(move || {
                // Frees its slot, and claims another.
                let (_, mut chain) = wide.lock_chain(1);
                let at = chain.find(1).unwrap();
                chain.line(at.line).clear(at.slot);
                wide.uncount_keys(1);
                drop(chain);
                usize::from(insert(&wide, 2))
            })
        };
        let inserted = [insert(&narrow, 3), insert(&narrow, 4)].into_iter().filter(|it| *it);
        let inserted = inserted.count() + other.join().unwrap();
        assert_eq!((inserted, narrow.len(), wide.len()), (2, 2, 2));
    });
}
