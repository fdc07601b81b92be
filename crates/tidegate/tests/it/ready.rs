//! Waiting on a limiter, in arrival order.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tidegate::{Bucket, Decision, Limiter, WaitError, clock::ManualClock, limiter::UntilReady};

use crate::seconds;

type Manual = Limiter<str, Bucket, ManualClock>;

/// One per second, one at once.
fn manual() -> (Manual, ManualClock) {
    let clock = ManualClock::default();
    let limit = Bucket::per_second(1);
    (Limiter::builder(limit).clock(clock.clone()).build().unwrap(), clock)
}

fn poll(wait: &mut UntilReady<'_>) -> Poll<Result<Decision, WaitError>> {
    Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()))
}

fn is_ready(wait: &mut UntilReady<'_>) -> bool {
    matches!(poll(wait), Poll::Ready(Ok(_)))
}

#[test]
fn waiters_are_served_in_arrival_order_one_unit_each() {
    let (limiter, clock) = manual();
    assert!(limiter.ready("ada").block().unwrap().is_allowed(), "one unit is free");
    let mut waits: Vec<UntilReady<'_>> = (0..5).map(|_| limiter.ready("ada")).collect();
    for served in 0..waits.len() {
        // The last one is polled first, and does not overtake.
        for wait in waits[served..].iter_mut().rev() {
            assert!(poll(wait).is_pending());
        }
        clock.advance(seconds(1));
        limiter.tick();
        for wait in waits[served + 1..].iter_mut().rev() {
            assert!(poll(wait).is_pending());
        }
        assert!(is_ready(&mut waits[served]));
    }
    assert_eq!(limiter.peek("ada").remaining(), 0);
}

#[test]
fn other_keys_have_queues_of_their_own() {
    let (limiter, _) = manual();
    assert!(limiter.allow("ada"));
    let mut ada = limiter.ready("ada");
    assert!(poll(&mut ada).is_pending());
    assert!(is_ready(&mut limiter.ready("bob")));
}

#[test]
fn dropped_wait_leaves_the_queue_and_charges_nothing() {
    let (limiter, clock) = manual();
    assert!(limiter.allow("ada"));
    let first = limiter.ready("ada");
    let mut second = limiter.ready("ada");
    assert!(poll(&mut second).is_pending());
    drop(first);
    clock.advance(seconds(1));
    limiter.tick();
    assert!(is_ready(&mut second));
    clock.advance(seconds(1));
    assert!(limiter.allow("ada"), "two units were charged in two seconds");
}

#[test]
fn cost_that_never_fits_and_a_deadline_that_passes_are_errors() {
    let (limiter, clock) = manual();
    assert_eq!(limiter.ready_n("ada", 2).block(), Err(WaitError::Never));
    assert!(limiter.allow("ada"));
    let no_wait = limiter.ready_within("ada", seconds(0)).block();
    assert_eq!(no_wait, Err(WaitError::TimedOut));
    let mut short = limiter.ready_within("ada", seconds(1) - std::time::Duration::from_nanos(1));
    let mut exact = limiter.ready_within("ada", seconds(1));
    assert!(poll(&mut short).is_pending() && poll(&mut exact).is_pending());
    clock.advance(seconds(1) - std::time::Duration::from_nanos(1));
    limiter.tick();
    assert_eq!(poll(&mut short), Poll::Ready(Err(WaitError::TimedOut)));
    drop(short);
    clock.advance(std::time::Duration::from_nanos(1));
    limiter.tick();
    assert!(is_ready(&mut exact), "the unit is free at the instant of the deadline");
}

#[test]
fn refund_forget_and_another_limit_wake_waiters() {
    let free: [fn(&Manual); 5] = [
        |limiter| assert_eq!(limiter.refund("ada", 1), 1),
        |limiter| assert!(limiter.forget("ada")),
        |limiter| assert_eq!(limiter.forget_all(), 1),
        |limiter| {
            let limit = Bucket::per_second(1).burst(2);
            limiter.set_limit(limit);
        },
        |limiter| {
            let limit = Bucket::per_second(1).burst(2);
            limiter.set_override("ada", limit).unwrap();
        },
    ];
    for free in free {
        let (limiter, _) = manual();
        assert!(limiter.allow("ada"));
        std::thread::scope(|scope| {
            let wait = limiter.ready("ada");
            // On a clock that stands, only a wake-up ends it.
            let waiter = scope.spawn(|| wait.block());
            free(&limiter);
            assert!(waiter.join().unwrap().is_ok());
        });
    }
}

#[test]
fn closed_limiter_ends_waits_and_continues_to_decide() {
    let (limiter, clock) = manual();
    assert!(limiter.allow("ada"));
    let mut wait = limiter.ready("ada");
    assert!(poll(&mut wait).is_pending());
    limiter.close();
    limiter.close();
    assert_eq!(poll(&mut wait), Poll::Ready(Err(WaitError::Closed)));
    assert_eq!(limiter.ready("ada").block(), Err(WaitError::Closed));
    clock.advance(seconds(1));
    assert!(limiter.allow("ada"));
    let (unused, _) = manual();
    unused.close();
    assert_eq!(unused.ready("ada").block(), Err(WaitError::Closed));
}

#[test]
fn waiters_are_bounded_for_all_keys_together() {
    let clock = ManualClock::default();
    let limit = Bucket::per_second(1);
    let limiter = Limiter::<u32, _, _>::builder(limit).clock(clock).build().unwrap();
    let waits: Vec<_> = (0..1 << 16)
        .map(|number| {
            let key = number % 100;
            let _ = limiter.allow(&key);
            limiter.ready(&key)
        })
        .collect();
    assert_eq!(limiter.ready(&7).block(), Err(WaitError::QueueFull));
    drop(waits);
    assert!(limiter.ready(&1_000).block().is_ok());
}

/// On the real clock, by threads that block and by futures that a runtime polls.
#[test]
fn threads_and_futures_get_no_more_than_the_rate() {
    let limit = Bucket::per_second(2_000).burst(1);
    let limiter: Limiter<str> = Limiter::new(limit);
    let served = AtomicU64::new(0);
    let start = limiter.check("ada").decided_at();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (limiter, served) = (&limiter, &served);
            scope.spawn(move || {
                for _ in 0..50 {
                    let wait = limiter.ready("ada");
                    let decision = if thread % 2 == 0 { wait.block() } else { block_on(wait) };
                    let elapsed_ns = decision.unwrap().decided_at().as_nanos() - start.as_nanos();
                    let most = 1 + elapsed_ns / 500_000;
                    assert!(served.fetch_add(1, Ordering::SeqCst) < most + 3, "beyond the rate");
                }
            });
        }
    });
    assert_eq!(served.load(Ordering::SeqCst), 200);
}

/// A runtime for one future: it sleeps until it is woken.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Thread(std::thread::Thread);

    impl std::task::Wake for Thread {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(std::sync::Arc::new(Thread(std::thread::current())));
    loop {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn wait_can_be_sent_to_another_thread() {
    const fn is_send<T: Send>(_: &T) {}
    let (limiter, _) = manual();
    is_send(&limiter.ready("ada"));
}
