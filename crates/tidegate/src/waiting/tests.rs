use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::Wake;
use std::time::Duration;

use super::sync::Woken;
use super::*;
use crate::clock::{ManualClock, MonotonicClock};

const LINE: u64 = 7;

fn terms() -> WaitRequest {
    WaitRequest { queue: LINE, max_waiters: 10_000, rank: 0, deadline: None }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn until(secs: u64) -> WaitRequest {
    WaitRequest { deadline: Some(at(secs)), ..terms() }
}

/// A list on a clock that stands.
fn standing() -> (WaitQueues, ManualClock) {
    let clock = ManualClock::default();
    (WaitQueues::new(Arc::new(clock.clone())), clock)
}

/// Places to be taken, with everybody who took one, in order.
struct Places {
    free: AtomicUsize,
    served: Mutex<Vec<usize>>,
}

impl Places {
    fn new(free: usize) -> Self {
        Self { free: AtomicUsize::new(free), served: Mutex::new(Vec::new()) }
    }

    /// What the waiter with that name does at its turn.
    fn take(&self, name: usize) -> impl FnMut(Timestamp) -> Attempt<usize> + Send + '_ {
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

    fn give_back(&self, list: &WaitQueues) {
        self.free.fetch_add(1, Ordering::SeqCst);
        list.wake(LINE);
    }

    fn served(&self) -> Vec<usize> {
        lock(&self.served).clone()
    }
}

/// A waker that notes that it was called.
#[derive(Default)]
struct Flag {
    rung: AtomicBool,
}

impl Flag {
    fn take(&self) -> bool {
        self.rung.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
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
    fn poll_if_rung(&mut self) -> Poll<F::Output> {
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
fn a_thousand_tasks_on_three_places_are_served_in_arrival_order() {
    const TASKS: usize = 1_000;
    let (list, _) = standing();
    let max_waiters = Places::new(3);
    let mut tasks: Vec<_> = (0..TASKS)
        .map(|name| Some(Task::new(list.wait(terms(), max_waiters.take(name)))))
        .collect();
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
        max_waiters.give_back(&list);
        for slot in &mut tasks {
            let Some(task) = slot else { continue };
            if let Poll::Ready(outcome) = task.poll_if_rung() {
                holders.push_back(outcome.unwrap());
                *slot = None;
            }
        }
    }
    assert_eq!(max_waiters.served(), (0..TASKS).collect::<Vec<_>>());
    assert_eq!(max_waiters.free.load(Ordering::SeqCst), 3);
    assert_eq!(list.queue_count(), 0);
    assert!(list.is_empty(LINE));
}

#[test]
fn two_hundred_threads_on_three_places_are_served_in_arrival_order() {
    const THREADS: usize = 200;
    let (list, _) = standing();
    let max_waiters = Places::new(3);
    let arrivals = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for name in 0..THREADS {
            let (list, max_waiters, arrivals) = (&list, &max_waiters, &arrivals);
            scope.spawn(move || {
                let mut order = lock(arrivals);
                let wait = list.wait(terms(), max_waiters.take(name));
                order.push(name);
                drop(order);
                assert_eq!(wait.block(), Ok(name));
                std::thread::yield_now();
                max_waiters.give_back(list);
            });
        }
    });
    assert_eq!(max_waiters.served(), *lock(&arrivals));
    assert_eq!(max_waiters.free.load(Ordering::SeqCst), 3);
    assert_eq!(list.queue_count(), 0);
}

#[test]
fn who_comes_later_does_not_overtake() {
    let (list, _) = standing();
    let max_waiters = Places::new(0);
    let mut first = asleep(list.wait(terms(), max_waiters.take(1)));
    assert!(!list.is_empty(LINE));
    assert!(list.is_empty(LINE + 1));
    // A place is free, and the one who waits has been told but has not run yet.
    max_waiters.give_back(&list);
    let mut second = asleep(list.wait(terms(), max_waiters.take(2)));
    assert_eq!(first.poll_if_rung(), Poll::Ready(Ok(1)));
    assert!(second.poll_if_rung().is_pending(), "it looks, but there is nothing");
    max_waiters.give_back(&list);
    assert_eq!(second.poll_if_rung(), Poll::Ready(Ok(2)));
}

#[test]
fn one_wake_up_serves_as_many_as_there_are_places() {
    let (list, _) = standing();
    let max_waiters = Places::new(0);
    let mut tasks: Vec<_> =
        (0..5).map(|name| asleep(list.wait(terms(), max_waiters.take(name)))).collect();
    max_waiters.free.store(3, Ordering::SeqCst);
    list.wake(LINE);
    for (name, task) in tasks.iter_mut().enumerate() {
        let outcome = task.poll_if_rung();
        assert_eq!(outcome.is_ready(), name < 3, "{name}");
    }
    assert!(!tasks[4].flag.take());
}

#[test]
fn a_future_that_is_dropped_frees_its_place_and_passes_its_wake_up_on() {
    // Dropped before the first poll, asleep, and woken but not polled.
    for dropped_when in 0..3 {
        let (list, _) = standing();
        let max_waiters = Places::new(0);
        let mut first = Task::new(list.wait(terms(), max_waiters.take(1)));
        let mut second = asleep(list.wait(terms(), max_waiters.take(2)));
        if dropped_when > 0 {
            assert!(first.poll().is_pending());
        }
        if dropped_when == 1 {
            drop(first);
            max_waiters.give_back(&list);
        } else {
            max_waiters.give_back(&list);
            assert!(!second.flag.take());
            drop(first);
        }
        assert_eq!(second.poll_if_rung(), Poll::Ready(Ok(2)), "{dropped_when}");
        assert_eq!(list.queue_count(), 0);
    }
}

#[test]
fn a_success_that_nobody_asked_for_is_dropped_with_the_future() {
    struct Lease<'a>(&'a AtomicU64);
    impl Drop for Lease<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (list, _) = standing();
    let held = AtomicU64::new(0);
    let wait = list.wait(terms(), |_| {
        held.fetch_add(1, Ordering::SeqCst);
        Attempt::Done(Lease(&held))
    });
    assert_eq!(held.load(Ordering::SeqCst), 1);
    drop(wait);
    assert_eq!(held.load(Ordering::SeqCst), 0);
}

#[test]
fn an_attempt_that_panics_passes_its_turn_on() {
    let (list, _) = standing();
    let max_waiters = Places::new(0);
    let mut looks = 0;
    let mut first = asleep(list.wait(terms(), |_| {
        looks += 1;
        if looks > 1 {
            panic!("on purpose");
        }
        Attempt::<usize>::NotYet { retry_at: None }
    }));
    let mut second = asleep(list.wait(terms(), max_waiters.take(2)));
    max_waiters.give_back(&list);
    assert!(panic::catch_unwind(AssertUnwindSafe(|| first.poll())).is_err());
    // The future still exists, but waits no longer.
    assert_eq!(second.poll_if_rung(), Poll::Ready(Ok(2)));
    assert_eq!(list.queue_count(), 0);

    let newcomer = || list.wait(terms(), |_| -> Attempt<()> { panic!("on purpose") });
    assert!(panic::catch_unwind(AssertUnwindSafe(newcomer)).is_err());
    assert!(list.shared.is_unused());
}

#[test]
fn an_attempt_that_calls_the_list_panics_rather_than_hangs() {
    let (list, _) = standing();
    let calls: [fn(&WaitQueues); 4] = [
        |list| list.wake(LINE),
        |list| list.tick(at(1)),
        |list| list.close(),
        |list| drop(list.wait(terms(), |_| Attempt::Done(()))),
    ];
    for call in calls {
        let wait = || {
            list.wait(terms(), |_| {
                call(&list);
                Attempt::Done(())
            })
        };
        assert!(panic::catch_unwind(AssertUnwindSafe(wait)).is_err());
    }
    assert_eq!(list.wait(terms(), |_| Attempt::Done(1)).block(), Ok(1));
}

#[test]
fn a_future_may_move_to_another_thread() {
    fn is_send(_: &impl Send) {}
    let (list, _) = standing();
    is_send(&list.wait(terms(), |_| Attempt::Done(1)));
}

#[test]
fn a_waker_that_panics_costs_nobody_else_a_turn() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let (list, clock) = standing();
    let max_waiters = Places::new(0);
    let mut first = pin!(list.wait(until(5), max_waiters.take(1)));
    let broken = Waker::from(Arc::new(Broken));
    assert!(first.as_mut().poll(&mut Context::from_waker(&broken)).is_pending());
    let mut second = asleep(list.wait(until(5), max_waiters.take(2)));
    clock.set(at(5));
    list.tick(at(5));
    assert_eq!(second.poll_if_rung(), Poll::Ready(Err(QueueError::DeadlinePassed)));
}

#[test]
fn a_waker_may_be_another_one_at_each_poll() {
    let (list, _) = standing();
    let max_waiters = Places::new(0);
    let mut task = asleep(list.wait(terms(), max_waiters.take(1)));
    let old = std::mem::take(&mut task.flag);
    assert!(task.poll().is_pending());
    max_waiters.give_back(&list);
    assert!(!old.take());
    assert_eq!(task.poll_if_rung(), Poll::Ready(Ok(1)));
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
    let list: &'static WaitQueues = Box::leak(Box::new(standing().0));
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    let mut first = Box::pin(list.wait(terms(), never));
    let WaitStage::Waits(seat) = list.wait(terms(), never).stage else { panic!("it waits") };
    let owner = Waker::from(Arc::new(Owner { _owned: seat }));
    assert!(first.as_mut().poll(&mut Context::from_waker(&owner)).is_pending());
    drop(owner);
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(first);
    assert_eq!(list.queue_count(), 0);
}

#[test]
fn higher_ranks_are_served_first() {
    let (list, _) = standing();
    let max_waiters = Places::new(0);
    let mut tasks: Vec<_> = [0, 5, -1, 5, 0]
        .into_iter()
        .enumerate()
        .map(|(name, rank)| {
            asleep(list.wait(WaitRequest { rank, ..terms() }, max_waiters.take(name)))
        })
        .collect();
    for _ in 0..tasks.len() {
        max_waiters.give_back(&list);
        for task in &mut tasks {
            let _ = task.poll_if_rung();
        }
    }
    assert_eq!(max_waiters.served(), [1, 3, 0, 4, 2]);
}

#[test]
fn a_full_line_takes_nobody_but_who_need_not_wait() {
    let (list, _) = standing();
    let max_waiters = Places::new(1);
    let none = WaitRequest { max_waiters: 0, ..terms() };
    assert_eq!(list.wait(none, max_waiters.take(1)).block(), Ok(1));
    assert_eq!(list.wait(none, max_waiters.take(2)).block(), Err(QueueError::QueueFull));
    let one = WaitRequest { max_waiters: 1, ..terms() };
    let task = asleep(list.wait(one, max_waiters.take(3)));
    assert_eq!(list.wait(one, max_waiters.take(4)).block(), Err(QueueError::QueueFull));
    drop(task);
    let _task = asleep(list.wait(one, max_waiters.take(5)));
    assert_eq!(list.queue_count(), 1);
}

#[test]
fn a_deadline_fires_at_the_tick_of_its_time() {
    let (list, clock) = standing();
    let max_waiters = Places::new(0);
    let mut tasks: Vec<_> =
        [5, 3, 5].map(|secs| asleep(list.wait(until(secs), max_waiters.take(0)))).into();
    assert_eq!(list.next_due(), Some(at(3)));
    clock.set(at(2));
    list.tick(at(2));
    assert!(tasks.iter().all(|task| !task.flag.take()));
    clock.set(at(3));
    list.tick(at(3));
    assert_eq!(tasks.remove(1).poll_if_rung(), Poll::Ready(Err(QueueError::DeadlinePassed)));
    // At the deadline who is first still gets what is there; nobody else does.
    assert_eq!(list.next_due(), Some(at(5)));
    max_waiters.free.store(2, Ordering::SeqCst);
    list.tick(at(5));
    let second = tasks.remove(1).poll_if_rung();
    assert_eq!(second, Poll::Ready(Err(QueueError::DeadlinePassed)));
    assert_eq!(tasks.remove(0).poll_if_rung(), Poll::Ready(Ok(0)));
    assert_eq!(list.queue_count(), 0);
    list.close();
}

#[test]
fn a_deadline_that_has_come_means_do_not_wait() {
    let (list, clock) = standing();
    clock.set(at(5));
    let max_waiters = Places::new(1);
    assert_eq!(list.wait(until(5), max_waiters.take(1)).block(), Ok(1));
    assert_eq!(list.wait(until(5), max_waiters.take(2)).block(), Err(QueueError::DeadlinePassed));
    let _task = asleep(list.wait(terms(), max_waiters.take(3)));
    max_waiters.free.store(1, Ordering::SeqCst);
    assert_eq!(list.wait(until(5), max_waiters.take(4)).block(), Err(QueueError::DeadlinePassed));
}

#[test]
fn an_attempt_is_made_again_at_the_time_it_asked_for() {
    let (list, clock) = standing();
    let mut tokens_at = [2, 4].map(at).into_iter();
    let mut next = at(0);
    let mut task = asleep(list.wait(terms(), |now| {
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
        assert_eq!(list.next_due(), Some(at(secs)));
        clock.set(at(secs - 1));
        list.tick(clock.now());
        assert!(!task.flag.take());
        clock.set(at(secs));
        list.tick(clock.now());
        let outcome = task.poll_if_rung();
        assert_eq!(outcome, if secs == 4 { Poll::Ready(Ok(at(4))) } else { Poll::Pending });
    }
    drop(task);
    assert_eq!(list.next_due(), None);
    list.close();
}

#[test]
fn a_time_that_has_come_already_is_no_endless_loop() {
    let (list, _) = standing();
    let mut looks = 0;
    let attempt = |now| {
        looks += 1;
        if looks == 4 { Attempt::Done(()) } else { Attempt::NotYet { retry_at: Some(now) } }
    };
    let mut task = asleep(list.wait(terms(), attempt));
    for _ in 0..2 {
        list.tick(list.next_due().unwrap());
        assert!(task.poll_if_rung().is_pending());
    }
    list.tick(list.next_due().unwrap());
    assert_eq!(task.poll_if_rung(), Poll::Ready(Ok(())));
    drop(task);
    list.close();
}

#[test]
fn a_thread_gives_up_at_its_deadline_without_a_timer() {
    let list = WaitQueues::new(Arc::new(MonotonicClock));
    let soon = list.shared.clock.now().saturating_add(Duration::from_millis(20));
    let terms = WaitRequest { deadline: Some(soon), ..terms() };
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    assert_eq!(list.wait(terms, never).block(), Err(QueueError::DeadlinePassed));
    assert!(list.shared.clock.now() >= soon);
    let retrying = |now| {
        if now >= soon.saturating_add(Duration::from_millis(10)) {
            Attempt::Done(now)
        } else {
            Attempt::NotYet { retry_at: Some(soon.saturating_add(Duration::from_millis(10))) }
        }
    };
    assert!(list.wait(WaitRequest { deadline: None, ..terms }, retrying).block().is_ok());
    assert!(!list.shared.timer.is_running());
}

#[test]
fn a_thread_on_a_clock_that_stands_waits_for_the_tick() {
    let (list, clock) = standing();
    let looked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let wait = list.wait(until(1), |_| Attempt::<()>::NotYet { retry_at: None });
            looked.store(true, Ordering::SeqCst);
            wait.block()
        });
        while list.next_due().is_none() {
            std::thread::yield_now();
        }
        clock.set(at(1));
        list.tick(at(1));
        assert_eq!(thread.join().unwrap(), Err(QueueError::DeadlinePassed));
    });
}

/// Blocks on a future that somebody else has to wake.
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
    let list = WaitQueues::new(Arc::new(MonotonicClock));
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    let in_ms = |ms| list.shared.clock.now().saturating_add(Duration::from_millis(ms));
    assert!(!list.shared.timer.is_running());
    let far = asleep(list.wait(WaitRequest { deadline: Some(in_ms(60_000)), ..terms() }, never));
    assert!(list.shared.timer.is_running());
    // An earlier alarm than the one that the thread sleeps for.
    for _ in 0..20 {
        let deadline = in_ms(2);
        let soon = WaitRequest { deadline: Some(deadline), ..terms() };
        assert_eq!(block_on(list.wait(soon, never)), Err(QueueError::DeadlinePassed));
        assert!(list.shared.clock.now() >= deadline);
    }
    assert!(!far.flag.take());
    list.close();
    assert!(far.flag.take());
    assert!(!list.shared.timer.is_running());
    drop(far);
    list.close();
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
fn closing_sends_everybody_home() {
    let (list, _) = standing();
    let max_waiters = Places::new(0);
    let mut task = asleep(list.wait(until(5), max_waiters.take(1)));
    let mut untimed = asleep(list.wait(WaitRequest { queue: 1, ..terms() }, max_waiters.take(2)));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| list.wait(terms(), max_waiters.take(3)).block());
        while list.shared.waiting.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
        list.close();
        assert_eq!(thread.join().unwrap(), Err(QueueError::Closed));
    });
    assert_eq!(task.poll_if_rung(), Poll::Ready(Err(QueueError::Closed)));
    assert_eq!(untimed.poll_if_rung(), Poll::Ready(Err(QueueError::Closed)));
    max_waiters.give_back(&list);
    assert_eq!(list.wait(terms(), max_waiters.take(4)).block(), Err(QueueError::Closed));
    assert_eq!(list.queue_count(), 0);
    list.close();
}

#[test]
fn the_timer_does_not_outlive_its_list() {
    let (list, _) = standing();
    let weak = Arc::downgrade(&list.shared);
    let max_waiters = Places::new(0);
    // Waiters borrow the list, so only one that is never dropped can be there at its end.
    std::mem::forget(asleep(list.wait(until(3_600), max_waiters.take(1))));
    assert!(list.shared.timer.is_running());
    drop(list);
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
    let (list, clock) = standing();
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    for round in 1..=2 {
        let name = Arc::new(Name(Mutex::new(None)));
        let waker = Waker::from(Arc::clone(&name));
        let mut wait = pin!(list.wait(until(round), never));
        clock.set(at(round).saturating_sub(Duration::from_nanos(1)));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // The thread looks at the clock from time to time, as the alarm is almost due.
        clock.set(at(round));
        while lock(&name.0).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(lock(&name.0).as_deref(), Some("tidegate-timer"));
        while list.shared.timer.is_running() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn the_timer_may_drop_the_last_handle_of_its_list() {
    struct Last(Mutex<Option<Arc<WaitQueues>>>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            let list = lock(&self.0).take();
            if let Some(list) = list {
                list.close();
            }
        }
    }
    let list = Arc::new(WaitQueues::new(Arc::new(MonotonicClock)));
    let weak = Arc::downgrade(&list);
    let soon = list.shared.clock.now().saturating_add(Duration::from_millis(1));
    let waker = Waker::from(Arc::new(Last(Mutex::new(Some(Arc::clone(&list))))));
    let never = |_| Attempt::<()>::NotYet { retry_at: None };
    let deadline = WaitRequest { deadline: Some(soon), ..terms() };
    {
        let mut wait = pin!(list.wait(deadline, never));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        while list.shared.timer.is_running() {
            std::thread::yield_now();
        }
    }
    drop(list);
    while weak.strong_count() > 0 {
        std::thread::yield_now();
    }
}
