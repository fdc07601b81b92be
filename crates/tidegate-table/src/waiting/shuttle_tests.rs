//! The queues as shipped, under schedules that shuttle chooses. A lost wake-up is a deadlock, which
//! shuttle reports, as no sleep times out by itself here.
//!
//! Run with `RUSTFLAGS="--cfg shuttle"`; `TIDEGATE_SCHEDULES` is the number of schedules per test.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use super::sync::{Condvar, thread};
use super::*;
use crate::clock::ManualClock;

const QUEUE: u64 = 7;
const THREADS: usize = 6;

/// Explores schedules: half at random, half with few switches at unlikely points.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("TIDEGATE_SCHEDULES")
        .map(|number| number.parse().expect("a number of schedules"));
    let schedules: usize = schedules.unwrap_or(20_000);
    let model = Arc::new(model);
    let same = Arc::clone(&model);
    shuttle::check_random(move || model(), schedules.div_ceil(2));
    shuttle::check_pct(move || same(), schedules / 2, 3);
}

/// A semaphore whose slots are freed by a release or by the expiry of their lease.
struct World {
    queues: WaitQueues,
    clock: ManualClock,
    slots: usize,
    leases: Mutex<Leases>,
    /// All callers of `wait`, in that order, by rank.
    arrivals: Mutex<BTreeMap<i64, Vec<usize>>>,
    finished: AtomicUsize,
}

#[derive(Default)]
struct Leases {
    /// The holders of slots, and until when.
    held: BTreeMap<usize, Timestamp>,
    served: BTreeMap<i64, Vec<usize>>,
}

impl World {
    fn new(slots: usize) -> Self {
        let clock = ManualClock::default();
        Self {
            queues: WaitQueues::new(Arc::new(clock.clone())),
            clock,
            slots,
            leases: Mutex::new(Leases::default()),
            arrivals: Mutex::new(BTreeMap::new()),
            finished: AtomicUsize::new(0),
        }
    }

    fn in_secs(&self, secs: u64) -> Timestamp {
        self.clock.now().saturating_add(Duration::from_secs(secs))
    }

    /// Arrives, and records the order of arrival.
    fn arrive(
        &self,
        name: usize,
        request: WaitRequest,
        lease: Timestamp,
    ) -> QueueWait<'_, (), impl FnMut(AttemptTurn) -> Attempt<()>> {
        let mut arrivals = lock(&self.arrivals);
        arrivals.entry(request.rank).or_default().push(name);
        self.queues.wait(request, move |AttemptTurn { now, .. }| {
            let attempt = self.take(name, lease, now);
            if attempt == Attempt::Done(()) {
                lock(&self.leases).served.entry(request.rank).or_default().push(name);
            }
            attempt
        })
    }

    fn take(&self, name: usize, lease: Timestamp, now: Timestamp) -> Attempt<()> {
        let mut leases = lock(&self.leases);
        leases.held.retain(|_, expiry| *expiry > now);
        if leases.held.len() == self.slots {
            let expiry = leases.held.values().min().copied();
            return Attempt::NotYet { retry_at: expiry.filter(|at| *at < Timestamp::MAX) };
        }
        leases.held.insert(name, lease);
        Attempt::Done(())
    }

    fn release(&self, name: usize) {
        let held = lock(&self.leases).held.remove(&name);
        if held.is_some() {
            self.queues.wake(QUEUE);
        }
    }

    /// What holds when all threads have ended.
    fn check_at_rest(&self) {
        assert_eq!(self.queues.queue_count(), 0);
        assert_eq!(self.queues.next_due(), None);
        assert!(self.queues.shared.is_unused());
        let leases = lock(&self.leases);
        assert!(leases.held.values().all(|expiry| *expiry < Timestamp::MAX), "{:?}", leases.held);
        let arrivals = lock(&self.arrivals);
        for (rank, served) in &leases.served {
            let mut came = arrivals[rank].iter();
            let in_order = served.iter().all(|name| came.any(|other| other == name));
            assert!(in_order, "rank {rank}: {:?} came, {served:?} were served", arrivals[rank]);
        }
    }
}

fn request() -> WaitRequest {
    WaitRequest {
        queue: QUEUE,
        max_waiters: THREADS,
        rank: 0,
        deadline: None,
        attempts: Attempts::Now,
    }
}

/// Waits in one of several ways, and returns whether it has a slot at the end.
fn wait_somehow<F>(wait: QueueWait<'_, (), F>) -> Result<(), QueueError>
where
    F: FnMut(AttemptTurn) -> Attempt<()>,
{
    match thread_rng().gen_range(0..4) {
        0 | 1 => wait.block(),
        2 => shuttle::future::block_on(wait),
        _ => poll_and_drop(wait),
    }
}

/// Cancels after some polls, if it is not served before.
fn poll_and_drop<F>(wait: QueueWait<'_, (), F>) -> Result<(), QueueError>
where
    F: FnMut(AttemptTurn) -> Attempt<()>,
{
    if let WaitStage::Settled(Ok(())) = wait.stage {
        // Dropped, this would be a lease without a holder; a real lease releases itself.
        return wait.block();
    }
    let mut wait = pin!(wait);
    for _ in 0..thread_rng().gen_range(0..3) {
        let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(outcome) = polled {
            return outcome;
        }
        thread::yield_now();
    }
    Err(QueueError::DeadlinePassed)
}

fn run_threads(world: &Arc<World>, body: fn(&World, usize)) {
    let threads: Vec<_> = (0..THREADS)
        .map(|name| {
            let world = Arc::clone(world);
            thread::spawn(move || {
                body(&world, name);
                world.finished.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it did not panic"));
}

#[test]
fn no_wake_up_is_lost_and_no_waiter_is_overtaken() {
    explore(|| {
        let world = Arc::new(World::new(3));
        run_threads(&world, |world, name| {
            let rank = thread_rng().gen_range(0..2);
            let wait = world.arrive(name, WaitRequest { rank, ..request() }, Timestamp::MAX);
            if wait_somehow(wait).is_ok() {
                thread::yield_now();
                world.release(name);
            }
        });
        world.check_at_rest();
        assert!(lock(&world.leases).held.is_empty());
    });
}

/// Half of them do not wait, so the count of waiters is often none, and the lock is not taken.
#[test]
fn a_release_sees_waiters_that_are_about_to_join() {
    explore(|| {
        let world = Arc::new(World::new(1));
        run_threads(&world, |world, name| {
            let has_slot = if name % 2 == 0 {
                world.arrive(name, request(), Timestamp::MAX).block().is_ok()
            } else {
                let take = || world.take(name, Timestamp::MAX, world.clock.now());
                world.queues.is_empty(QUEUE) && take() == Attempt::Done(())
            };
            assert!(has_slot || name % 2 == 1, "a waiter without a deadline is served");
            if has_slot {
                world.release(name);
            }
        });
        world.check_at_rest();
        assert!(lock(&world.leases).held.is_empty());
    });
}

#[test]
fn deadlines_and_dead_holders_release_their_slots() {
    explore(|| {
        let world = Arc::new(World::new(3));
        let time = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                while world.finished.load(Ordering::SeqCst) < THREADS {
                    world.clock.advance(Duration::from_secs(1));
                    world.queues.tick(world.clock.now());
                    thread::yield_now();
                }
            })
        };
        run_threads(&world, |world, name| {
            let patience = thread_rng().gen_range(0..4);
            let deadline = (patience < 3).then(|| world.in_secs(patience));
            let dies = thread_rng().gen_bool(0.3);
            let lease = if dies { world.in_secs(2) } else { Timestamp::MAX };
            let max_waiters = thread_rng().gen_range(1..=THREADS);
            let wait =
                world.arrive(name, WaitRequest { deadline, max_waiters, ..request() }, lease);
            if wait_somehow(wait).is_ok() && !dies {
                world.release(name);
            }
        });
        time.join().unwrap();
        world.check_at_rest();
        world.queues.close();
    });
}

#[test]
fn closing_ends_all_waits_at_any_point() {
    explore(|| {
        let world = Arc::new(World::new(3));
        let closer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.queues.close())
        };
        run_threads(&world, |world, name| {
            let deadline = thread_rng().gen_bool(0.5).then(|| world.in_secs(1));
            let wait = world.arrive(name, WaitRequest { deadline, ..request() }, Timestamp::MAX);
            let outcome = if thread_rng().gen_bool(0.5) {
                wait.block()
            } else {
                shuttle::future::block_on(wait)
            };
            // Slots are never released, so the other waits can only be closed.
            assert!(matches!(outcome, Ok(()) | Err(QueueError::Closed)));
        });
        closer.join().unwrap();
        world.queues.close();
        assert_eq!(world.queues.queue_count(), 0);
    });
}

/// Alarms that count how many of them have fired.
struct CountingAlarms {
    timer: Timer,
    pending: Mutex<Vec<Timestamp>>,
    fired: Mutex<usize>,
    all_fired: Condvar,
}

impl Alarms for CountingAlarms {
    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_secs(10)
    }

    fn fire(&self, now: Timestamp) -> Option<Timestamp> {
        let mut pending = lock(&self.pending);
        let before = pending.len();
        pending.retain(|at| *at > now);
        *lock(&self.fired) += before - pending.len();
        self.all_fired.notify_one();
        pending.iter().min().copied()
    }
}

#[test]
fn an_alarm_that_is_set_at_any_point_fires() {
    const ALARMS: usize = 3;
    explore(|| {
        let alarms = Arc::new(CountingAlarms {
            timer: Timer::new(),
            // The one that the thread sleeps for, and that never comes.
            pending: Mutex::new(vec![Timestamp::from_secs(20)]),
            fired: Mutex::new(0),
            all_fired: Condvar::new(),
        });
        let setters = [(); ALARMS].map(|()| {
            let alarms = Arc::clone(&alarms);
            thread::spawn(move || {
                let due = Timestamp::from_secs(5);
                lock(&alarms.pending).push(due);
                assert_eq!(Timer::arm(&alarms, due), Armed::Yes);
            })
        });
        let mut fired = lock(&alarms.fired);
        while *fired < ALARMS {
            fired = sync::sleep_on(&alarms.all_fired, fired, None).guard;
        }
        drop(fired);
        setters.into_iter().for_each(|setter| setter.join().unwrap());
        alarms.timer.close();
    });
}
