//! What is visible only from inside: sizes, layouts, and counts of lines.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use std::hash::BuildHasher;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_core::{Bucket, Sliding, Timestamp, Window};

use super::arena::Arena;
use super::directory::{PROBE, home_of};
use super::grow::{MovingKey, compact, insert_moved, lock_all, presized, staggered_homes};
use super::keyed::KeyedLimit;
use super::line::{Line, Locked, Narrow, NarrowLine};
use super::sync::Ordering;
use super::{Capacity, Table, WhenFull, read_header};
use crate::hash::{KeyedHash, spread};

const NOW: Timestamp = Timestamp::from_secs(1);

fn table(max_keys: usize, hint: Option<usize>) -> Table<Bucket> {
    let limit = Bucket::per_day(1);
    Table::new(limit, Capacity { max_keys, when_full: WhenFull::Share }, hint).unwrap()
}

fn bytes_per_key(table: &Table<Bucket>) -> usize {
    table.table.counters.lines.load(Ordering::Relaxed) * size_of::<NarrowLine>() / table.len()
}

/// Inserts a key as a limiter does: keys that count up have hashes at equal distances, which a few
/// seeds in a hundred would crowd into few lines.
fn insert(table: &Table<Bucket>, hash: &KeyedHash, key: usize) {
    let decision =
        table.check(table.fetch(spread(hash.hash_one(key))), 1, NOW, |decision| decision);
    assert!(decision.is_allowed(), "key {key}");
}

#[test]
fn a_growing_table_takes_at_most_45_bytes_per_key() {
    let (table, hash) = (table(1 << 24, None), KeyedHash::new());
    for key in 0..2_500_000 {
        insert(&table, &hash, key);
        if key >= 1_000_000 && key % 25_000 == 0 {
            assert!(bytes_per_key(&table) <= 45, "{} at {key}", bytes_per_key(&table));
            let ahead = table.table.directory.arena.touched_ahead();
            assert!(ahead > 0, "no memory is touched ahead at {key}");
        }
    }
}

#[test]
fn a_small_table_is_small() {
    let (table, hash) = (table(1 << 24, None), KeyedHash::new());
    assert!(table.table.counters.lines.load(Ordering::Relaxed) * 64 <= 8_192);
    (0..100).for_each(|key| insert(&table, &hash, key));
    assert!(table.table.counters.lines.load(Ordering::Relaxed) * 64 <= 32_768);
}

#[test]
fn a_presized_table_does_not_grow() {
    for keys in [1, 100, 10_000, 1_000_000] {
        let (table, hash) = (table(1 << 24, Some(keys)), KeyedHash::new());
        let before = table.table.counters.lines.load(Ordering::Relaxed);
        (0..keys).for_each(|key| insert(&table, &hash, key));
        let grown = table.table.counters.lines.load(Ordering::Relaxed) - before;
        // Chance may fill one neighbourhood of a large table early.
        assert!(grown * 100 <= before, "{grown} of {before} lines for {keys} keys");
    }
}

#[test]
fn the_capacity_is_reachable_within_its_lines() {
    for max_keys in [1, 10, 1_000, 50_000, 300_000] {
        let (table, hash) = (table(max_keys, None), KeyedHash::new());
        (0..max_keys).for_each(|key| insert(&table, &hash, key));
        // Chance may fill one neighbourhood early; its last keys share counters then.
        assert!(table.len() * 1_000 >= max_keys * 999, "{} of {max_keys}", table.len());
        let lines = table.table.counters.lines.load(Ordering::Relaxed);
        assert!(
            lines <= table.capacity().max_lines(NarrowLine::SLOTS),
            "{lines} lines for {max_keys} keys"
        );
    }
}

fn holds(line: &Locked<'_, NarrowLine>, key: &MovingKey<Narrow>) -> bool {
    line.occupied().any(|slot| MovingKey::of(line, slot) == *key)
}

/// Checks that each key is in its chain, and that no search ends before it.
fn all_are_found(lines: &[Locked<'_, NarrowLine>], homes: usize, keys: &[MovingKey<Narrow>]) {
    for key in keys {
        let mut line = home_of(key.hash, homes);
        while !holds(&lines[line], key) {
            assert!(lines[line].header.is_overflowed(), "the search for a key ends before it");
            line += 1;
        }
    }
    let found: usize = lines.iter().map(|line| line.occupied().count()).sum();
    assert_eq!(found, keys.len());
}

fn some_keys(count: u64) -> Vec<MovingKey<Narrow>> {
    let hash = KeyedHash::new();
    let key = |low| MovingKey {
        hash: spread(hash.hash_one(low)),
        packed: Narrow { high: 7, low },
        is_pinned: low % 5 == 0,
    };
    (0..count).map(key).collect()
}

#[test]
fn keys_are_inserted_and_compacted_where_a_search_finds_them() {
    let arena = Arena::<NarrowLine>::new(100 + PROBE - 1).unwrap();
    let mut lines = lock_all(arena.allocate(100 + PROBE - 1).unwrap());
    let mut keys = some_keys(230);
    assert!(keys.iter().all(|key| insert_moved(&mut lines, 100, *key)));
    all_are_found(&lines, 100, &keys);
    keys.retain(|key| key.hash % 2 == 0);
    compact(&mut lines, 100, |hash| hash % 2 == 0);
    all_are_found(&lines, 100, &keys);
    compact(&mut lines, 100, |_| false);
    all_are_found(&lines, 100, &[]);
    assert!(lines.iter().all(|line| !line.header.is_overflowed()));
}

#[test]
fn a_key_is_not_inserted_into_a_full_chain() {
    let arena = Arena::<NarrowLine>::new(100 + PROBE - 1).unwrap();
    let mut lines = lock_all(arena.allocate(100 + PROBE - 1).unwrap());
    let same = |low| MovingKey { hash: 7, packed: Narrow { high: 0, low }, is_pinned: false };
    let fit = (PROBE * NarrowLine::SLOTS) as u64;
    assert!((0..fit).all(|low| insert_moved(&mut lines, 100, same(low))));
    assert!(!insert_moved(&mut lines, 100, same(fit)));
}

#[test]
fn segments_differ_in_size_by_up_to_two() {
    let sizes: Vec<_> = (0..10_000).map(staggered_homes).collect();
    let (least, most) = (*sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
    assert!(least >= 768 && most < 2 * 768 && most > 1_500, "{least} to {most}");
    // Log-uniform: half of them are below the geometric mean.
    let small = sizes.iter().filter(|&&size| size * size < 2 * 768 * 768).count();
    assert!((4_800..5_200).contains(&small), "{small}");
}

#[test]
fn presized_segments_stay_small_enough_to_split() {
    for keys in [0, 1, 1_000, 1_000_000, 16_000_000, 1 << 32] {
        let (bits, homes) = presized::<NarrowLine>(keys);
        assert!(homes <= 4_096 && bits < 32, "{keys}: 2^{bits} segments of {homes}");
        assert!((homes << bits) * NarrowLine::SLOTS * 62 / 100 >= keys.saturating_sub(1), "{keys}");
    }
}

#[test]
fn a_zeroed_line_is_an_empty_line() {
    let (arena, empty) = (Arena::<NarrowLine>::new(3).unwrap(), NarrowLine::empty());
    for len in [3, 100, 100_000, 1] {
        let lines = arena.allocate(len).unwrap();
        assert_eq!(lines.len(), len);
        assert_eq!(lines.as_ptr().addr() % 64, 0);
        let last = lines.last().unwrap();
        assert_eq!(format!("{last:?}"), format!("{empty:?}"));
        last.header().store(7, Ordering::Relaxed);
    }
}

#[test]
fn memory_is_touched_before_it_is_needed() {
    let arena = Arena::<NarrowLine>::new(1).unwrap();
    let empty = format!("{:?}", NarrowLine::empty());
    arena.touch_page();
    assert_eq!(arena.touched_ahead(), 0, "a small arena is not touched ahead");
    arena.allocate((8 << 20) / 64).unwrap();
    let mut allocated = 0;
    // Beyond the end of several pieces.
    while allocated < (16 << 20) / 64 {
        // More pages than there are ahead, with the next piece.
        (0..300).for_each(|_| arena.touch_page());
        let before = arena.touched_ahead();
        assert!(before >= (512 << 10) / 64, "{before} lines at {allocated}");
        assert!(before <= (1_032 << 10) / 64, "{before} lines at {allocated}");
        let lines = arena.allocate(1_000).unwrap();
        assert!(lines.iter().all(|line| format!("{line:?}") == empty), "touched or not");
        lines.iter().for_each(|line| line.header().store(7, Ordering::Relaxed));
        allocated += lines.len();
    }
}

#[test]
fn a_key_is_not_inserted_twice_when_the_count_of_writes_has_wrapped() {
    let table = table(8, None);
    let key = table.fetch(7);
    let before = read_header(key.home);
    assert!(table.allow(key, NOW));
    // Each lock counts as one write.
    while read_header(key.home) != before {
        drop(Locked::new(key.home));
    }
    assert!(!table.allow_absent(key, before, NOW), "its only unit has been charged");
    assert_eq!(table.len(), 1);
}

/// One key is forgotten and inserted again into another slot of its line, while others read it.
fn shuffle<A: KeyedLimit>(limit: A) {
    let capacity = Capacity { max_keys: 100, when_full: WhenFull::Share };
    let table = Table::new(limit, capacity, None).unwrap();
    // Small numbers have the first line as their home.
    let check = |key, cost, now| table.check(table.fetch(key), cost, now, |decision| decision);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..40_000 {
                let now = Timestamp::from_micros(step);
                for (key, cost) in [(1, 1), (7, 1)] {
                    let _ = check(key, cost, now);
                }
                table.forget(7);
                for (key, cost) in [(2, 9), (7, 9)] {
                    let _ = check(key, cost, now);
                }
                for key in [1, 2, 7] {
                    table.forget(key);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = check(7, 1, Timestamp::from_micros(20_000));
            }
        });
    });
}

#[test]
fn a_key_that_moves_between_slots_is_read_whole_or_again() {
    shuffle(Bucket::per_second(1_000).burst(20));
    shuffle(Sliding::new(20, Duration::from_millis(1), 10));
    shuffle(Window::new(20, Duration::from_millis(1)));
}
