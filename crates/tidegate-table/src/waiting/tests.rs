use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::Wake;
use std::time::Duration;

use super::sync::Woken;
use super::*;
use crate::clock::{ManualClock, MonotonicClock};

const QUEUE: u64 = 7;

fn request() -> WaitRequest {
    WaitRequest {
        queue: QUEUE,
        max_waiters: 10_000,
        rank: 0,
        deadline: None,
        attempts: Attempts::Now,
    }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn until(secs: u64) -> WaitRequest {
    WaitRequest { deadline: Some(at(secs)), ..request() }
}

/// Queues on a clock that stands.
fn standing() -> (WaitQueues, ManualClock) {
    let clock = ManualClock::default();
    (WaitQueues::new(Arc::new(clock.clone())), clock)
}

/// Slots, with the names of all that took one, in order.
struct TestSlots {
    free: AtomicUsize,
    served: Mutex<Vec<usize>>,
}

impl TestSlots {
    fn new(free: usize) -> Self {
        Self { free: AtomicUsize::new(free), served: Mutex::new(Vec::new()) }
    }

    /// What the waiter with that name does at its turn.
    fn take(&self, name: usize) -> impl FnMut(AttemptTurn) -> Attempt<usize> + Send + '_ {
        move |_| {
            let fewer = |free: usize| free.checked_sub(1);
            match self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
                Ok(_) => {
                    lock(&self.served).push(name);
                    Attempt::Done(name)
                }
                Err(_) => Attempt::NotYet { retry_at: None },
            }
        }
    }

    fn release(&self, queues: &WaitQueues) {
        self.free.fetch_add(1, Ordering::SeqCst);
        queues.wake(QUEUE);
    }

    fn served(&self) -> Vec<usize> {
        lock(&self.served).clone()
    }
}

/// A waker that notes that it was called.
#[derive(Default)]
struct Flag {
    is_woken: AtomicBool,
}

impl Flag {
    fn take(&self) -> bool {
        self.is_woken.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
    }
}

/// A future with its own waker, polled by hand.
struct Task<F> {
    future: Pin<Box<F>>,
    flag: Arc<Flag>,
}

impl<F: Future> Task<F> {
    fn new(future: F) -> Self {
        Self { future: Box::pin(future), flag: Arc::default() }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.flag));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls if the waker was called.
    fn poll_if_woken(&mut self) -> Poll<F::Output> {
        if self.flag.take() { self.poll() } else { Poll::Pending }
    }
}

/// A future that has been polled once and waits.
fn asleep<F: Future>(future: F) -> Task<F> {
    let mut task = Task::new(future);
    assert!(task.poll().is_pending());
    task
}

#[test]
fn a_thousand_tasks_on_three_slots_are_served_in_arrival_order() {
    const TASKS: usize = 1_000;
    let (queues, _) = standing();
    let slots = TestSlots::new(3);
    let mut tasks: Vec<_> =
        (0..TASKS).map(|name| Some(Task::new(queues.wait(request(), slots.take(name))))).collect();
    // First polled in another order than they came.
    let mut holders = VecDeque::new();
    for slot in tasks.iter_mut().rev() {
        if let Poll::Ready(outcome) = slot.as_mut().unwrap().poll() {
            holders.push_back(outcome.unwrap());
            *slot = None;
        }
    }
    assert_eq!(holders.len(), 3);
    while let Some(_done) = holders.pop_front() {
        slots.release(&queues);
        for slot in &mut tasks {
            let Some(task) = slot else { continue };
            if let Poll::Ready(outcome) = task.poll_if_woken() {
                holders.push_back(outcome.unwrap());
                *slot = None;
            }
        }
    }
    assert_eq!(slots.served(), (0..TASKS).collect::<Vec<_>>());
    assert_eq!(slots.free.load(Ordering::SeqCst), 3);
    assert_eq!(queues.queue_count(), 0);
    assert!(queues.is_empty(QUEUE));
}

#[test]
fn two_hundred_threads_on_three_slots_are_served_in_arrival_order() {
    const THREADS: usize = 200;
    let (queues, _) = standing();
    let slots = TestSlots::new(3);
    let arrivals = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for name in 0..THREADS {
            let (queues, slots, arrivals) = (&queues, &slots, &arrivals);
            scope.spawn(move || {
                let mut order = lock(arrivals);
                let wait = queues.wait(request(), slots.take(name));
                order.push(name);
                drop(order);
                assert_eq!(wait.block(), Ok(name));
                std::thread::yield_now();
                slots.release(queues);
            });
        }
    });
    assert_eq!(slots.served(), *lock(&arrivals));
    assert_eq!(slots.free.load(Ordering::SeqCst), 3);
    assert_eq!(queues.queue_count(), 0);
}

#[test]
fn a_later_waiter_does_not_overtake() {
    let (queues, _) = standing();
    let slots = TestSlots::new(0);
    let mut first = asleep(queues.wait(request(), slots.take(1)));
    assert!(!queues.is_empty(QUEUE));
    assert!(queues.is_empty(QUEUE + 1));
    // A slot is free, and the waiter has been woken but has not run yet.
    slots.release(&queues);
    let mut second = asleep(queues.wait(request(), slots.take(2)));
    assert_eq!(first.poll_if_woken(), Poll::Ready(Ok(1)));
    assert!(second.poll_if_woken().is_pending(), "it attempts in vain");
    slots.release(&queues);
    assert_eq!(second.poll_if_woken(), Poll::Ready(Ok(2)));
}

#[test]
fn one_wake_up_serves_all_free_slots() {
    let (queues, _) = standing();
    let slots = TestSlots::new(0);
    let mut tasks: Vec<_> =
        (0..5).map(|name| asleep(queues.wait(request(), slots.take(name)))).collect();
    slots.free.store(3, Ordering::SeqCst);
    queues.wake(QUEUE);
    for (name, task) in tasks.iter_mut().enumerate() {
        let outcome = task.poll_if_woken();
        assert_eq!(outcome.is_ready(), name < 3, "{name}");
    }
    assert!(!tasks[4].flag.take());
}

#[test]
fn a_dropped_future_leaves_the_queue_and_passes_its_wake_up_on() {
    // Dropped before the first poll, asleep, and woken but not polled.
    for dropped_when in 0..3 {
        let (queues, _) = standing();
        let slots = TestSlots::new(0);
        let mut first = Task::new(queues.wait(request(), slots.take(1)));
        let mut second = asleep(queues.wait(request(), slots.take(2)));
        if dropped_when > 0 {
            assert!(first.poll().is_pending());
        }
        if dropped_when == 1 {
            drop(first);
            slots.release(&queues);
        } else {
            slots.release(&queues);
            assert!(!second.flag.take());
            drop(first);
        }
        assert_eq!(second.poll_if_woken(), Poll::Ready(Ok(2)), "{dropped_when}");
        assert_eq!(queues.queue_count(), 0);
    }
}

#[test]
fn an_unpolled_success_is_dropped_with_the_future() {
    struct Lease<'a>(&'a AtomicU64);
    impl Drop for Lease<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (queues, _) = standing();
    let held = AtomicU64::new(0);
    let wait = queues.wait(request(), |_| {
        held.fetch_add(1, Ordering::SeqCst);
        Attempt::Done(Lease(&held))
    });
    assert_eq!(held.load(Ordering::SeqCst), 1);
    drop(wait);
    assert_eq!(held.load(Ordering::SeqCst), 0);
}

#[test]
fn an_attempt_that_panics_passes_its_turn_on() {
    let (queues, _) = standing();
    let slots = TestSlots::new(0);
    let mut looks = 0;
    let mut first = asleep(queues.wait(request(), |_| {
        looks += 1;
        if looks > 1 {
            panic!("on purpose");
        }
        Attempt::<usize>::NotYet { retry_at: None }
    }));
    let mut second = asleep(queues.wait(request(), slots.take(2)));
    slots.release(&queues);
    assert!(panic::catch_unwind(AssertUnwindSafe(|| first.poll())).is_err());
    // The future still exists, but waits no longer.
    assert_eq!(second.poll_if_woken(), Poll::Ready(Ok(2)));
    assert_eq!(queues.queue_count(), 0);

    let newcomer = || queues.wait(request(), |_| -> Attempt<()> { panic!("on purpose") });
    assert!(panic::catch_unwind(AssertUnwindSafe(newcomer)).is_err());
    assert!(queues.shared.is_unused());
}

#[test]
fn an_attempt_that_calls_the_queues_panics_and_does_not_deadlock() {
    let (queues, _) = standing();
    let calls: [fn(&WaitQueues); 4] = [
        |queues| queues.wake(QUEUE),
        |queues| queues.tick(at(1)),
        |queues| queues.close(),
        |queues| drop(queues.wait(request(), |_| Attempt::Done(()))),
    ];
    for call in calls {
        let wait = || {
            queues.wait(request(), |_| {
                call(&queues);
                Attempt::Done(())
            })
        };
        assert!(panic::catch_unwind(AssertUnwindSafe(wait)).is_err());
    }
    assert_eq!(queues.wait(request(), |_| Attempt::Done(1)).block(), Ok(1));
}

#[test]
fn a_future_may_move_to_another_thread() {
    fn is_send(_: &impl Send) {}
    let (queues, _) = standing();
    is_send(&queues.wait(request(), |_| Attempt::Done(1)));
}

#[test]
fn a_waker_that_panics_does_not_cost_others_their_turn() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let (queues, clock) = standing();
    let slots = TestSlots::new(0);
    let mut first = pin!(queues.wait(until(5), slots.take(1)));
    let broken = Waker::from(Arc::new(Broken));
    assert!(first.as_mut().poll(&mut Context::from_waker(&broken)).is_pending());
    let mut second = asleep(queues.wait(until(5), slots.take(2)));
    clock.set(at(5));
    queues.tick(at(5));
    assert!(second.poll_if_woken().is_pending(), "the first has an attempt to make");
    let later = Timestamp::from_millis(5_010);
    clock.set(later);
    queues.tick(later);
    assert_eq!(second.poll_if_woken(), Poll::Ready(Err(QueueError::DeadlinePassed)));
}

#[test]
fn a_waker_may_be_another_one_at_each_poll() {
    let (queues, _) = standing();
    let slots = TestSlots::new(0);
    let mut task = asleep(queues.wait(request(), slots.take(1)));
    let old = std::mem::take(&mut task.flag);
    assert!(task.poll().is_pending());
    slots.release(&queues);
    assert!(!old.take());
    assert_eq!(task.poll_if_woken(), Poll::Ready(Ok(1)));
}

#[test]
fn a_waker_may_own_another_waiter() {
    struct Owner {
        _owned: TicketGuard<'static>,
    }
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }
    // A replaced waker that is the last owner of a task drops that task's future.
    let queues: &'static WaitQueues = Box::leak(Box::new(standing().0));
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    let mut first = Box::pin(queues.wait(request(), never));
    let WaitStage::Waits(seat) = queues.wait(request(), never).stage else { panic!("it waits") };
    let owner = Waker::from(Arc::new(Owner { _owned: seat }));
    assert!(first.as_mut().poll(&mut Context::from_waker(&owner)).is_pending());
    drop(owner);
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(first);
    assert_eq!(queues.queue_count(), 0);
}

#[test]
fn higher_ranks_are_served_first() {
    let (queues, _) = standing();
    let slots = TestSlots::new(0);
    let mut tasks: Vec<_> = [0, 5, -1, 5, 0]
        .into_iter()
        .enumerate()
        .map(|(name, rank)| {
            asleep(queues.wait(WaitRequest { rank, ..request() }, slots.take(name)))
        })
        .collect();
    for _ in 0..tasks.len() {
        slots.release(&queues);
        for task in &mut tasks {
            let _ = task.poll_if_woken();
        }
    }
    assert_eq!(slots.served(), [1, 3, 0, 4, 2]);
}

#[test]
fn a_full_queue_accepts_only_immediate_successes() {
    let (queues, _) = standing();
    let slots = TestSlots::new(1);
    let none = WaitRequest { max_waiters: 0, ..request() };
    assert_eq!(queues.wait(none, slots.take(1)).block(), Ok(1));
    assert_eq!(queues.wait(none, slots.take(2)).block(), Err(QueueError::QueueFull));
    let one = WaitRequest { max_waiters: 1, ..request() };
    let task = asleep(queues.wait(one, slots.take(3)));
    assert_eq!(queues.wait(one, slots.take(4)).block(), Err(QueueError::QueueFull));
    drop(task);
    let _task = asleep(queues.wait(one, slots.take(5)));
    assert_eq!(queues.queue_count(), 1);
}

#[test]
fn a_deadline_fires_at_the_tick_of_its_time() {
    let (queues, clock) = standing();
    let slots = TestSlots::new(0);
    let mut tasks: Vec<_> =
        [5, 3, 5].map(|secs| asleep(queues.wait(until(secs), slots.take(0)))).into();
    assert_eq!(queues.next_due(), Some(at(3)));
    clock.set(at(2));
    queues.tick(at(2));
    assert!(tasks.iter().all(|task| !task.flag.take()));
    clock.set(at(3));
    queues.tick(at(3));
    assert_eq!(tasks.remove(1).poll_if_woken(), Poll::Ready(Err(QueueError::DeadlinePassed)));
    // At the deadline they still get what is free, in their order.
    assert_eq!(queues.next_due(), Some(at(5)));
    slots.free.store(2, Ordering::SeqCst);
    queues.tick(at(5));
    let mut second = tasks.remove(1);
    assert!(second.poll_if_woken().is_pending());
    assert_eq!(tasks.remove(0).poll_if_woken(), Poll::Ready(Ok(0)));
    assert_eq!(second.poll_if_woken(), Poll::Ready(Ok(0)));
    assert_eq!(queues.queue_count(), 0);
    queues.close();
}

#[test]
fn a_deadline_in_the_past_means_do_not_wait() {
    let (queues, clock) = standing();
    clock.set(at(5));
    let slots = TestSlots::new(1);
    assert_eq!(queues.wait(until(5), slots.take(1)).block(), Ok(1));
    assert_eq!(queues.wait(until(5), slots.take(2)).block(), Err(QueueError::DeadlinePassed));
    let _task = asleep(queues.wait(request(), slots.take(3)));
    slots.free.store(1, Ordering::SeqCst);
    assert_eq!(queues.wait(until(5), slots.take(4)).block(), Err(QueueError::DeadlinePassed));
}

#[test]
fn an_attempt_is_repeated_at_its_retry_time() {
    let (queues, clock) = standing();
    let mut tokens_at = [2, 4].map(at).into_iter();
    let mut next = at(0);
    let mut task = asleep(queues.wait(request(), |AttemptTurn { now, .. }| {
        if now < next {
            return Attempt::NotYet { retry_at: Some(next) };
        }
        match tokens_at.next() {
            Some(later) => {
                next = later;
                Attempt::NotYet { retry_at: Some(later) }
            }
            None => Attempt::Done(now),
        }
    }));
    for secs in [2, 4] {
        assert_eq!(queues.next_due(), Some(at(secs)));
        clock.set(at(secs - 1));
        queues.tick(clock.now());
        assert!(!task.flag.take());
        clock.set(at(secs));
        queues.tick(clock.now());
        let outcome = task.poll_if_woken();
        assert_eq!(outcome, if secs == 4 { Poll::Ready(Ok(at(4))) } else { Poll::Pending });
    }
    drop(task);
    assert_eq!(queues.next_due(), None);
    queues.close();
}

#[test]
fn a_retry_time_in_the_past_does_not_loop() {
    let (queues, _) = standing();
    let mut looks = 0;
    let attempt = |AttemptTurn { now, .. }| {
        looks += 1;
        if looks == 4 { Attempt::Done(()) } else { Attempt::NotYet { retry_at: Some(now) } }
    };
    let mut task = asleep(queues.wait(request(), attempt));
    for _ in 0..2 {
        queues.tick(queues.next_due().unwrap());
        assert!(task.poll_if_woken().is_pending());
    }
    queues.tick(queues.next_due().unwrap());
    assert_eq!(task.poll_if_woken(), Poll::Ready(Ok(())));
    drop(task);
    queues.close();
}

#[test]
fn a_thread_gives_up_at_its_deadline_without_a_timer() {
    let queues = WaitQueues::new(Arc::new(MonotonicClock));
    let soon = queues.shared.clock.now().saturating_add(Duration::from_millis(20));
    let request = WaitRequest { deadline: Some(soon), ..request() };
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    assert_eq!(queues.wait(request, never).block(), Err(QueueError::DeadlinePassed));
    assert!(queues.shared.clock.now() >= soon);
    let retrying = |AttemptTurn { now, .. }| {
        if now >= soon.saturating_add(Duration::from_millis(10)) {
            Attempt::Done(now)
        } else {
            Attempt::NotYet { retry_at: Some(soon.saturating_add(Duration::from_millis(10))) }
        }
    };
    assert!(queues.wait(WaitRequest { deadline: None, ..request }, retrying).block().is_ok());
    assert!(!queues.shared.timer.is_running());
}

#[test]
fn a_thread_on_a_clock_that_stands_waits_for_the_tick() {
    let (queues, clock) = standing();
    let looked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let wait = queues.wait(until(1), |_| Attempt::<()>::NotYet { retry_at: None });
            looked.store(true, Ordering::SeqCst);
            wait.block()
        });
        while queues.next_due().is_none() {
            std::thread::yield_now();
        }
        clock.set(at(1));
        queues.tick(at(1));
        assert_eq!(thread.join().unwrap(), Err(QueueError::DeadlinePassed));
    });
}

/// Blocks on a future that another thread has to wake.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let parker = Arc::new(Parker::new());
    let waker = Waker::from(Arc::clone(&parker));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => parker.park(None),
        };
    }
}

#[test]
fn the_timer_wakes_tasks_at_their_times() {
    let queues = WaitQueues::new(Arc::new(MonotonicClock));
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    let in_ms = |ms| queues.shared.clock.now().saturating_add(Duration::from_millis(ms));
    assert!(!queues.shared.timer.is_running());
    let far =
        asleep(queues.wait(WaitRequest { deadline: Some(in_ms(60_000)), ..request() }, never));
    assert!(queues.shared.timer.is_running());
    // An earlier alarm than the one that the thread sleeps for.
    for _ in 0..20 {
        let deadline = in_ms(2);
        let soon = WaitRequest { deadline: Some(deadline), ..request() };
        assert_eq!(block_on(queues.wait(soon, never)), Err(QueueError::DeadlinePassed));
        assert!(queues.shared.clock.now() >= deadline);
    }
    assert!(!far.flag.take());
    queues.close();
    assert!(far.flag.take());
    assert!(!queues.shared.timer.is_running());
    drop(far);
    queues.close();
}

#[test]
fn a_clock_that_stands_does_not_make_a_sleeper_spin() {
    let short = Duration::from_micros(100);
    let until = Timestamp::from_micros(100);
    let mut patience = SleepBudget::new();
    assert_eq!(patience.timeout(until, at(0)), short);
    patience.note(until, Woken::Early);
    assert_eq!(patience.timeout(until, at(0)), short);
    patience.note(until, Woken::TimedOut);
    assert_eq!(patience.timeout(until, at(0)), queue::PAUSE);
    // The next alarm of a clock that moves is met to the microsecond.
    let next = Timestamp::from_micros(200);
    assert_eq!(patience.timeout(next, until), short);
    assert_eq!(patience.timeout(next, at(1)), Duration::ZERO);
}

#[test]
fn closing_ends_all_waits() {
    let (queues, _) = standing();
    let slots = TestSlots::new(0);
    let mut task = asleep(queues.wait(until(5), slots.take(1)));
    let mut untimed = asleep(queues.wait(WaitRequest { queue: 1, ..request() }, slots.take(2)));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| queues.wait(request(), slots.take(3)).block());
        while queues.shared.waiting.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
        queues.close();
        assert_eq!(thread.join().unwrap(), Err(QueueError::Closed));
    });
    assert_eq!(task.poll_if_woken(), Poll::Ready(Err(QueueError::Closed)));
    assert_eq!(untimed.poll_if_woken(), Poll::Ready(Err(QueueError::Closed)));
    slots.release(&queues);
    assert_eq!(queues.wait(request(), slots.take(4)).block(), Err(QueueError::Closed));
    assert_eq!(queues.queue_count(), 0);
    queues.close();
}

#[test]
fn the_timer_does_not_outlive_its_queues() {
    let (queues, _) = standing();
    let weak = Arc::downgrade(&queues.shared);
    let slots = TestSlots::new(0);
    // Waiters borrow the queues, so only one that is never dropped can be there at its end.
    std::mem::forget(asleep(queues.wait(until(3_600), slots.take(1))));
    assert!(queues.shared.timer.is_running());
    drop(queues);
    while weak.strong_count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn the_timer_ends_when_it_is_not_needed_and_starts_again() {
    struct Name(Mutex<Option<String>>);
    impl Wake for Name {
        fn wake(self: Arc<Self>) {
            *lock(&self.0) = std::thread::current().name().map(str::to_owned);
        }
    }
    let (queues, clock) = standing();
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    for round in 1..=2 {
        let name = Arc::new(Name(Mutex::new(None)));
        let waker = Waker::from(Arc::clone(&name));
        let mut wait = pin!(queues.wait(until(round), never));
        clock.set(at(round).saturating_sub(Duration::from_nanos(1)));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // The thread reads the clock from time to time, as the alarm is almost due.
        clock.set(at(round));
        while lock(&name.0).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(lock(&name.0).as_deref(), Some("tidegate-timer"));
        while queues.shared.timer.is_running() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn the_timer_may_drop_the_last_handle_of_its_queues() {
    struct Last(Mutex<Option<Arc<WaitQueues>>>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            let queues = lock(&self.0).take();
            if let Some(queues) = queues {
                queues.close();
            }
        }
    }
    let queues = Arc::new(WaitQueues::new(Arc::new(MonotonicClock)));
    let weak = Arc::downgrade(&queues);
    let soon = queues.shared.clock.now().saturating_add(Duration::from_millis(1));
    let waker = Waker::from(Arc::new(Last(Mutex::new(Some(Arc::clone(&queues))))));
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    let deadline = WaitRequest { deadline: Some(soon), ..request() };
    {
        let mut wait = pin!(queues.wait(deadline, never));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        while queues.shared.timer.is_running() {
            std::thread::yield_now();
        }
    }
    drop(queues);
    while weak.strong_count() > 0 {
        std::thread::yield_now();
    }
}
