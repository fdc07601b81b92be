//! Slots without an engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate::{Slots, WaitError};

#[test]
fn no_more_are_in_use_than_there_are() {
    let slots = Slots::new(3);
    let (in_use, most) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let slot = slots.acquire().block().unwrap();
                    most.fetch_max(in_use.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    in_use.fetch_sub(1, Ordering::SeqCst);
                    drop(slot);
                }
            });
        }
    });
    assert!(most.into_inner() <= 3);
    assert_eq!((slots.in_use(), slots.waiting()), (0, 0));
}

#[test]
fn slots_go_out_in_the_order_in_which_they_were_asked_for() {
    let slots = Slots::new(1);
    let first = slots.acquire().block().unwrap();
    let (served, order) = mpsc::channel();
    thread::scope(|scope| {
        for waiter in 0..10 {
            let (slots, served) = (&slots, served.clone());
            scope.spawn(move || {
                let _slot = slots.acquire().block().unwrap();
                served.send(waiter).unwrap();
            });
            while slots.waiting() <= waiter {
                thread::yield_now();
            }
        }
        assert!(slots.try_acquire().is_none(), "it does not overtake");
        drop(first);
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert!(slots.try_acquire().is_some());
}

#[test]
fn a_full_queue_a_deadline_and_a_close_end_the_wait() {
    let slots = Slots::new(1).queue(1);
    let held = slots.try_acquire().unwrap();
    assert_eq!(slots.acquire_within(Duration::ZERO).block().unwrap_err(), WaitError::TimedOut);
    assert_eq!(
        slots.acquire_within(Duration::from_millis(20)).block().unwrap_err(),
        WaitError::TimedOut
    );
    thread::scope(|scope| {
        let waiter = scope.spawn(|| slots.acquire().block().map(drop));
        while slots.waiting() == 0 {
            thread::yield_now();
        }
        assert_eq!(slots.acquire().block().unwrap_err(), WaitError::QueueFull);
        slots.close();
        assert_eq!(waiter.join().unwrap().unwrap_err(), WaitError::Closed);
    });
    drop(held);
    assert_eq!(slots.in_use(), 0);
}

#[test]
fn a_slot_comes_back_from_a_panic() {
    let slots = Slots::new(1);
    let panicked = thread::scope(|scope| {
        scope
            .spawn(|| {
                let _slot = slots.acquire().block().unwrap();
                panic!("the holder fails");
            })
            .join()
    });
    assert!(panicked.is_err());
    assert!(slots.try_acquire().is_some());
}
