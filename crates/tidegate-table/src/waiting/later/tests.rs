use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::*;
use crate::clock::ManualClock;
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
    ) -> impl FnMut(Timestamp) -> Tried<'a, &'static str> {
        move |_| {
            lock(names).push(name);
            let result = Arc::new(Mutex::new(None));
            lock(&self.0).push_back(Arc::clone(&result));
            Tried::Later(Box::pin(std::future::poll_fn(move |_| match lock(&result).take() {
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
    WaitRequest { queue: QUEUE, max_waiters, rank: 0, deadline: None, is_later: true }
}

fn queues() -> WaitQueues {
    WaitQueues::new(Arc::new(ManualClock::default()))
}

fn poll<'a, F: FnMut(Timestamp) -> Tried<'a, &'static str>>(
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
