use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::locks::lock;
use crate::waiting::QueueWait;

const QUEUE: u64 = 7;

/// Attempts on their way, oldest first; the test decides their results.
#[derive(Default)]
struct Server(Mutex<VecDeque<Answer>>);

type Answer = Arc<Mutex<Option<Attempt<&'static str>>>>;

impl Server {
    fn attempt<'a>(
        &'a self,
        name: &'static str,
        names: &'a Mutex<Vec<&'static str>>,
    ) -> impl FnMut(AttemptTurn) -> Tried<'a, &'static str> {
        move |_| {
            lock(names).push(name);
            let result = Arc::new(Mutex::new(None));
            lock(&self.0).push_back(Arc::clone(&result));
            Tried::Pending(Box::pin(std::future::poll_fn(move |_| match lock(&result).take() {
                Some(result) => Poll::Ready(result),
                None => Poll::Pending,
            })))
        }
    }

    fn answer(&self, result: Attempt<&'static str>) {
        let oldest = lock(&self.0).pop_front().expect("an attempt is on its way");
        *lock(&oldest) = Some(result);
    }
}

const NOT_YET: Attempt<&str> = Attempt::NotYet { retry_at: None };

fn request(max_waiters: usize) -> WaitRequest {
    WaitRequest { queue: QUEUE, max_waiters, rank: 0, deadline: None, attempts: Attempts::Later }
}

fn queues() -> WaitQueues {
    WaitQueues::new(Arc::new(ManualClock::default()))
}

fn poll<'a, F: FnMut(AttemptTurn) -> Tried<'a, &'static str>>(
    wait: &mut QueueWait<'a, &'static str, F>,
) -> Poll<Result<&'static str, QueueError>> {
    Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn only_the_head_attempts_and_the_next_after_its_result() {
    let (queues, server, made) = (queues(), Server::default(), Mutex::default());
    let mut first = queues.wait(request(9), server.attempt("first", &made));
    let mut second = queues.wait(request(9), server.attempt("second", &made));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert_eq!(*lock(&made), ["first"]);
    server.answer(Attempt::Done("first"));
    assert_eq!(poll(&mut first), Poll::Ready(Ok("first")));
    assert!(poll(&mut second).is_pending());
    server.answer(Attempt::Done("second"));
    assert_eq!(poll(&mut second), Poll::Ready(Ok("second")));
}

#[test]
fn no_lock_is_held_and_a_wake_up_meanwhile_repeats_the_attempt() {
    let (queues, server, made) = (queues(), Server::default(), Mutex::default());
    let mut wait = queues.wait(request(9), server.attempt("a", &made));
    assert!(poll(&mut wait).is_pending());
    queues.wake(QUEUE);
    server.answer(NOT_YET);
    assert!(poll(&mut wait).is_pending());
    assert_eq!(*lock(&made), ["a", "a"], "the release came after the attempt");
    server.answer(NOT_YET);
    assert!(poll(&mut wait).is_pending());
    assert_eq!(lock(&made).len(), 2, "nothing has changed since");
}

#[test]
fn without_a_queue_each_gets_its_own_attempt() {
    let (queues, server, made) = (queues(), Server::default(), Mutex::default());
    let mut first = queues.wait(request(0), server.attempt("first", &made));
    let mut second = queues.wait(request(0), server.attempt("second", &made));
    server.answer(NOT_YET);
    assert_eq!(poll(&mut first), Poll::Ready(Err(QueueError::QueueFull)));
    assert!(poll(&mut second).is_pending());
    server.answer(Attempt::Done("second"));
    assert_eq!(poll(&mut second), Poll::Ready(Ok("second")));
}

#[test]
fn those_that_find_no_room_behind_a_waiter_are_refused_without_an_attempt() {
    let (queues, server, made) = (queues(), Server::default(), Mutex::default());
    let mut waits: Vec<_> =
        (0..4).map(|_| queues.wait(request(2), server.attempt("x", &made))).collect();
    server.answer(NOT_YET);
    let outcomes: Vec<_> = waits.iter_mut().map(poll).collect();
    let refused = Poll::Ready(Err(QueueError::QueueFull));
    assert_eq!(outcomes, [Poll::Pending, Poll::Pending, refused, refused]);
    assert_eq!(lock(&made).len(), 1);
}

#[test]
fn a_caller_that_does_not_wait_still_attempts_behind_one_that_only_attempts() {
    let (queues, server, made) = (queues(), Server::default(), Mutex::default());
    let now = WaitRequest { deadline: Some(Timestamp::ZERO), ..request(9) };
    let mut first = queues.wait(now, server.attempt("first", &made));
    let mut second = queues.wait(now, server.attempt("second", &made));
    assert!(poll(&mut second).is_pending());
    server.answer(Attempt::Done("first"));
    assert_eq!(poll(&mut first), Poll::Ready(Ok("first")));
    assert!(poll(&mut second).is_pending());
    server.answer(NOT_YET);
    assert_eq!(poll(&mut second), Poll::Ready(Err(QueueError::DeadlinePassed)));
    let mut third = queues.wait(request(9), server.attempt("third", &made));
    server.answer(NOT_YET);
    assert!(poll(&mut third).is_pending());
    let mut fourth = queues.wait(now, server.attempt("fourth", &made));
    let late = poll(&mut fourth);
    assert_eq!(late, Poll::Ready(Err(QueueError::DeadlinePassed)), "behind one that waits");
}

#[test]
fn dropping_a_wait_passes_its_turn_on() {
    let (queues, server, made) = (queues(), Server::default(), Mutex::default());
    let first = queues.wait(request(9), server.attempt("first", &made));
    let mut second = queues.wait(request(9), server.attempt("second", &made));
    drop(first);
    assert!(poll(&mut second).is_pending());
    assert_eq!(*lock(&made), ["first", "second"]);
    drop(second);
    assert_eq!((queues.waiting(), queues.queue_count()), (0, 0));
}

const TICKETED: Attempts = Attempts::Ticketed { renewed_every: Duration::from_secs(1) };

#[test]
fn where_the_order_is_kept_elsewhere_each_attempts_at_once_and_then_the_head() {
    let clock = ManualClock::new(Timestamp::from_millis(10_300));
    let (server, made) = (Server::default(), Mutex::default());
    let queues = WaitQueues::new(Arc::new(clock.clone()));
    let soon = Attempt::NotYet { retry_at: Some(Timestamp::from_millis(10_350)) };
    let request = WaitRequest { attempts: TICKETED, ..request(0) };
    let mut first = queues.wait(request, server.attempt("first", &made));
    let mut second = queues.wait(request, server.attempt("second", &made));
    assert_eq!(std::mem::take(&mut *lock(&made)), ["first", "second"]);
    for _ in 0..2 {
        server.answer(soon);
    }
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    let mut at = |ms: u64| {
        clock.set(Timestamp::from_millis(ms));
        queues.tick(clock.now());
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        let attempted = std::mem::take(&mut *lock(&made));
        attempted.iter().for_each(|_| server.answer(NOT_YET));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        attempted
    };
    assert_eq!(at(10_340), [""; 0]);
    assert_eq!(at(10_350), ["first"], "the head, at its retry time");
    assert_eq!(at(10_999), [""; 0]);
    assert_eq!(at(11_000), ["first", "second"], "all, so that their turn is kept");
    assert_eq!(at(11_500), [""; 0]);
    assert_eq!(at(12_000), ["first", "second"]);
    queues.wake(QUEUE);
    assert_eq!(at(12_001), ["first"]);
    drop(first);
    assert!(poll(&mut second).is_pending());
    assert_eq!(*lock(&made), ["second"], "it is the head now");
}

#[test]
fn where_the_order_is_kept_elsewhere_the_last_attempt_comes_at_the_deadline() {
    let clock = ManualClock::default();
    let queues = WaitQueues::new(Arc::new(clock.clone()));
    let turns: Mutex<Vec<AttemptTurn>> = Mutex::default();
    let attempt = |turn: AttemptTurn| {
        lock(&turns).push(turn);
        Tried::Now(NOT_YET)
    };
    let request = WaitRequest {
        deadline: Some(Timestamp::from_millis(500)),
        attempts: TICKETED,
        ..request(9)
    };
    let mut first = queues.wait(WaitRequest { deadline: None, ..request }, attempt);
    let mut second = queues.wait(request, attempt);
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    clock.set(Timestamp::from_millis(500));
    queues.tick(clock.now());
    assert_eq!(poll(&mut second), Poll::Ready(Err(QueueError::DeadlinePassed)));
    let turn = |now, arrival, is_last| AttemptTurn { now, arrival, is_last };
    let zero = Timestamp::ZERO;
    let expected = [turn(zero, 0, false), turn(zero, 1, false), turn(clock.now(), 1, true)];
    assert_eq!(*lock(&turns), expected);
    let mut third = queues.wait(request, attempt);
    assert_eq!(poll(&mut third), Poll::Ready(Err(QueueError::DeadlinePassed)));
    assert_eq!(lock(&turns).last(), Some(&turn(clock.now(), 2, true)));
    assert_eq!(queues.waiting(), 1);
}
