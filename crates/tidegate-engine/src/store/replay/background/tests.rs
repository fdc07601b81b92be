use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use super::{BATCH, Background, Threads};

/// The items in the order in which they were applied, and by which threads.
#[derive(Debug, Default)]
struct Applied(Vec<u64>, Vec<ThreadId>);

fn note(applied: &mut Applied, items: &mut Vec<u64>) {
    applied.0.append(items);
    applied.1.push(thread::current().id());
}

fn apply_all(threads: Threads, count: u64) -> Applied {
    let mut background = Background::new(threads, Applied::default(), note);
    (0..count).for_each(|item| background.push(item));
    background.finish()
}

#[test]
fn items_are_applied_once_and_in_order() {
    let batch = BATCH as u64;
    for count in [0, 1, batch - 1, batch, batch + 1, 100 * batch, 100 * batch + 7] {
        for threads in [Threads::None, Threads::ForWork] {
            let Applied(items, _) = apply_all(threads, count);
            assert!(items.into_iter().eq(0..count), "{count} items, {threads:?}");
        }
    }
}

#[test]
fn only_many_items_start_a_thread_and_only_where_it_may() {
    let me = thread::current().id();
    let few = apply_all(Threads::ForWork, BATCH as u64 - 1);
    assert!(few.1.iter().all(|thread| *thread == me));
    let many = apply_all(Threads::ForWork, 10 * BATCH as u64);
    // The last batch is not full; it goes to the thread, too.
    assert!(many.1.iter().all(|thread| *thread != me));
    let without = apply_all(Threads::None, 10 * BATCH as u64);
    assert!(without.1.iter().all(|thread| *thread == me));
}

#[test]
fn dropping_it_waits_for_its_thread() {
    let value = Arc::new(());
    let mut background = Background::new(Threads::ForWork, Arc::clone(&value), |_, items| {
        items.clear();
    });
    (0..3 * BATCH as u64).for_each(|item| background.push(item));
    drop(background);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn panic_of_the_thread_is_passed_on() {
    let mut background =
        Background::new(Threads::ForWork, (), |_, _: &mut Vec<u64>| panic!("a test wants this"));
    let finished = catch_unwind(AssertUnwindSafe(|| {
        (0..100 * BATCH as u64).for_each(|item| background.push(item));
        background.finish();
    }));
    assert!(finished.is_err());
}
