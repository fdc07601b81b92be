//! Who waits for a turn, in arrival order.
//!
//! The list knows neither slots nor buckets. It orders those who wait in *lines*; the first of a
//! line makes *attempts*, all others sleep. What an attempt does is the caller's affair.
//!
//! - **Arrival is the call of [`WaitList::wait`]**, not the first poll. The check whether somebody
//!   waits, the first attempt and the joining happen under one lock, so nobody is overtaken by
//!   somebody who called later, unless its rank is higher.
//! - **Who becomes first looks.** After a success, a cancellation, a time-out or a panic the next
//!   one attempts too, so a wake-up is passed on until an attempt says that there is no more.
//! - **The lock is held during an attempt.** A wake-up comes before it or after it, never between a
//!   refused attempt and the sleep. An attempt must therefore not call the list, nor drop anything
//!   that does; it panics if it tries.
//! - Who is first and is not polled holds up its line, until its future is dropped.

use std::fmt;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::Timestamp;

use crate::clock::Clock;

mod line;
mod park;
mod sync;
mod timer;

pub(crate) use line::Terms;
use line::{Lines, Place, Turn, next_attempt};
use park::Parker;
use sync::{AtomicUsize, Attempting, Mutex, MutexGuard, Ordering, fence, lock};
use timer::{Alarms, Armed, Patience, Timer};

/// What an attempt has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt<T> {
    /// It has what it wanted.
    Done(T),
    /// Not now. It is made again after a `wake` of the line, or at `retry_at`.
    NotYet { retry_at: Option<Timestamp> },
}

/// Why somebody waits no longer, without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// All places of the line were taken.
    QueueFull,
    /// The deadline has come.
    DeadlinePassed,
    /// The list has been closed.
    Closed,
}

/// All who wait.
pub(crate) struct WaitList {
    shared: Arc<Shared>,
}

impl WaitList {
    /// An empty list, whose deadlines and times to retry are times of `clock`.
    pub(crate) fn new(clock: Arc<dyn Clock + Send + Sync>) -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(Lines::new()));
        let waiting = AtomicUsize::new(0);
        Self { shared: Arc::new(Shared { shards, waiting, clock, timer: Timer::new() }) }
    }

    /// Whether nobody waits in a line. Costs one load when nobody waits anywhere.
    ///
    /// Who does not want to wait may attempt without the list when it is so; otherwise it would
    /// overtake. Who wants to wait calls [`wait`](Self::wait) and has made its first attempt there.
    #[cfg(test)]
    pub(crate) fn is_empty(&self, line: u64) -> bool {
        self.shared.is_unused() || self.shared.lines(line).is_empty(line)
    }

    /// Waits until an attempt succeeds. To be awaited, or [blocked](Wait::block) on.
    ///
    /// If nobody is ahead, the first attempt is made now, and who succeeds never takes a place. A
    /// deadline that has come, then, means: do not wait. Dropping the future gives the place back.
    pub(crate) fn wait<T, F>(&self, terms: Terms, mut attempt: F) -> Wait<'_, T, F>
    where
        F: FnMut(Timestamp) -> Attempt<T>,
    {
        let stage = self.enter(&terms, &mut attempt);
        Wait { list: self, stage, attempt }
    }

    /// Tells a line that an attempt may succeed now: something was given back.
    ///
    /// Comes after the giving back. One call is enough for any number of places. Costs one load
    /// when nobody waits anywhere.
    pub(crate) fn wake(&self, line: u64) {
        if self.shared.is_unused() {
            return;
        }
        let bell = self.shared.lines(line).wake(line);
        ring(bell);
    }

    /// Tells every line that an attempt may succeed now: more than one key may have got something.
    pub(crate) fn wake_all(&self) {
        if self.shared.is_unused() {
            return;
        }
        for shard in &self.shared.shards {
            let bells = lock(shard).wake_all();
            ring(bells);
        }
    }

    /// Tells those who have to hear of something that was given back.
    pub(crate) fn tell(&self, lines: crate::store::Lines) {
        match lines {
            crate::store::Lines::One(line) => self.wake(line),
            crate::store::Lines::All => self.wake_all(),
        }
    }

    /// Wakes all whose deadline or time to retry has come at `now`.
    ///
    /// For clocks that do not move by themselves: with any other the timer does it.
    pub(crate) fn tick(&self, now: Timestamp) {
        self.shared.tick(now);
    }

    /// When `tick` will have something to do.
    #[cfg(test)]
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.shared.next_due()
    }

    /// How many lines there are: those in which somebody waits.
    pub(crate) fn lines(&self) -> usize {
        self.shared.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Sends all home who wait or come later, ends the timer and waits for its end. The second call
    /// does nothing.
    pub(crate) fn close(&self) {
        Attempting::assert_not();
        for shard in &self.shared.shards {
            let bells = lock(shard).close();
            ring(bells);
        }
        self.shared.timer.close();
    }

    fn enter<T>(
        &self,
        terms: &Terms,
        attempt: &mut impl FnMut(Timestamp) -> Attempt<T>,
    ) -> Stage<'_, T> {
        let counted = Counted::new(&self.shared.waiting);
        let mut lines = self.shared.lines(terms.line);
        let now = self.shared.clock.now();
        if lines.is_closed() {
            return Stage::Settled(Err(GaveUp::Closed));
        }
        let mut told = None;
        if lines.would_be_first(terms) {
            match try_once(attempt, now) {
                Attempt::Done(value) => return Stage::Settled(Ok(value)),
                Attempt::NotYet { retry_at } => told = next_attempt(retry_at, now),
            }
        }
        if terms.deadline.is_some_and(|deadline| deadline <= now) {
            return Stage::Settled(Err(GaveUp::DeadlinePassed));
        }
        match lines.join(terms, told) {
            Some(place) => Stage::Waits(Seat { shared: &self.shared, place, _counted: counted }),
            None => Stage::Settled(Err(GaveUp::QueueFull)),
        }
    }
}

impl Drop for WaitList {
    fn drop(&mut self) {
        self.shared.timer.stop();
    }
}

impl fmt::Debug for WaitList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitList").field("lines", &self.lines()).finish_non_exhaustive()
    }
}

/// Somebody who waits: a future, or a call that blocks.
#[must_use = "it holds up its line and does not attempt unless it is awaited or blocked on"]
pub(crate) struct Wait<'a, T, F> {
    list: &'a WaitList,
    stage: Stage<'a, T>,
    attempt: F,
}

impl<T, F: FnMut(Timestamp) -> Attempt<T>> Wait<'_, T, F> {
    /// Blocks the thread until it is settled. Needs no timer.
    pub(crate) fn block(mut self) -> Result<T, GaveUp> {
        let parker = Arc::new(Parker::new());
        let bell = Waker::from(Arc::clone(&parker));
        let mut patience = Patience::new();
        loop {
            match self.step(&bell) {
                Step::Settled(outcome) => return outcome,
                Step::Sleeps { until: None } => {
                    parker.park(None);
                }
                Step::Sleeps { until: Some(until) } => {
                    let timeout = patience.timeout(until, self.list.shared.clock.now());
                    patience.note(until, parker.park(Some(timeout)));
                }
            }
        }
    }

    fn step(&mut self, bell: &Waker) -> Step<T> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Settled(outcome) => Step::Settled(outcome),
            // If the attempt panics, the seat goes with it.
            Stage::Waits(seat) => match seat.look(&mut self.attempt, bell) {
                Step::Settled(outcome) => Step::Settled(outcome),
                Step::Sleeps { until } => {
                    self.stage = Stage::Waits(seat);
                    Step::Sleeps { until }
                }
            },
            Stage::Over => panic!("polled after it was settled"),
        }
    }
}

impl<T, F: FnMut(Timestamp) -> Attempt<T>> Future for Wait<'_, T, F> {
    type Output = Result<T, GaveUp>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.step(context.waker()) {
            Step::Settled(outcome) => Poll::Ready(outcome),
            Step::Sleeps { until } => {
                if let Some(until) = until
                    && Timer::arm(&this.list.shared, until) == Armed::No
                {
                    // Better awake all the time than never again.
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

/// Nothing in it is ever pinned.
impl<T, F> Unpin for Wait<'_, T, F> {}

impl<T, F> fmt::Debug for Wait<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}

enum Stage<'a, T> {
    Waits(Seat<'a>),
    /// Known, but not yet asked for.
    Settled(Result<T, GaveUp>),
    Over,
}

enum Step<T> {
    Settled(Result<T, GaveUp>),
    Sleeps { until: Option<Timestamp> },
}

/// A place, given back on drop.
struct Seat<'a> {
    shared: &'a Shared,
    place: Place,
    _counted: Counted<'a>,
}

impl Seat<'_> {
    /// Makes an attempt if it is the time for one; otherwise hangs up the bell, under the same lock.
    fn look<T>(&self, attempt: &mut impl FnMut(Timestamp) -> Attempt<T>, bell: &Waker) -> Step<T> {
        // Cloned before and dropped after the lock is held: both may run foreign code.
        let bell = bell.clone();
        let _old;
        let mut lines = self.shared.lines(self.place.line());
        loop {
            let now = self.shared.clock.now();
            let turn = lines.turn(self.place, now);
            match turn {
                Turn::Attempt | Turn::LastAttempt => match try_once(attempt, now) {
                    Attempt::Done(value) => return Step::Settled(Ok(value)),
                    Attempt::NotYet { .. } if turn == Turn::LastAttempt => {
                        return Step::Settled(Err(GaveUp::DeadlinePassed));
                    }
                    Attempt::NotYet { retry_at } => {
                        lines.put_off(self.place, next_attempt(retry_at, now));
                    }
                },
                Turn::Sleep { until } => {
                    _old = lines.listen(self.place, bell);
                    return Step::Sleeps { until };
                }
                Turn::TooLate => return Step::Settled(Err(GaveUp::DeadlinePassed)),
                Turn::Closed => return Step::Settled(Err(GaveUp::Closed)),
            }
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let left = self.shared.lines(self.place.line()).leave(self.place);
        ring(left.next);
        drop(left.own);
    }
}

/// One in the count of all who wait or are about to.
///
/// Who looks for something is counted before, and who gives something back asks for the count
/// after, with a fence on both sides: at least one of them sees the other.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(waiting)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the list and its timer have in common.
struct Shared {
    /// Lines that have nothing to do with each other seldom share a lock.
    shards: [Mutex<Lines<Waker>>; SHARDS],
    waiting: AtomicUsize,
    clock: Arc<dyn Clock + Send + Sync>,
    timer: Timer,
}

impl Shared {
    fn lines(&self, line: u64) -> MutexGuard<'_, Lines<Waker>> {
        Attempting::assert_not();
        // The remainder is less than SHARDS, so it fits whatever the width of usize.
        lock(&self.shards[usize::try_from(line % SHARDS as u64).unwrap_or(0)])
    }

    fn is_unused(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::SeqCst) == 0
    }

    fn tick(&self, now: Timestamp) {
        Attempting::assert_not();
        for shard in &self.shards {
            let bells = lock(shard).tick(now);
            ring(bells);
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.shards.iter().filter_map(|shard| lock(shard).next_due()).min()
    }
}

impl Alarms for Shared {
    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn fire(&self, now: Timestamp) -> Option<Timestamp> {
        self.tick(now);
        self.next_due()
    }
}

fn try_once<T>(attempt: &mut impl FnMut(Timestamp) -> Attempt<T>, now: Timestamp) -> Attempt<T> {
    let _mark = Attempting::begin();
    attempt(now)
}

/// Rings bells, under no lock. One that panics must not cost the others their turn, nor the timer
/// its thread; the panic has been reported where it happened.
fn ring(bells: impl IntoIterator<Item = Waker>) {
    for bell in bells {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| bell.wake()));
    }
}

/// One in the model: it is about the threads on one lock.
const SHARDS: usize = if cfg!(shuttle) { 1 } else { 16 };

#[cfg(all(test, shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(shuttle)))]
mod tests;
