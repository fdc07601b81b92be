//! The one thread of the library: it wakes the tasks whose time has come.
//!
//! A future cannot wake itself, and no runtime with a timer is assumed. The thread starts when the
//! first future sleeps until a time, and ends when there has been none for a while.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;

use super::queue::PAUSE;
use super::sync::{Condvar, Mutex, MutexGuard, Woken, lock, sleep_on, thread};

/// What the timer wakes. Its methods do not panic.
pub(super) trait Alarms: Send + Sync + 'static {
    /// Their timer.
    fn timer(&self) -> &Timer;

    /// The time now.
    fn now(&self) -> Timestamp;

    /// Fires all that is due, and returns when the next one is.
    fn fire(&self, now: Timestamp) -> Option<Timestamp>;
}

/// Whether an alarm is going to fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    Yes,
    /// The timer is closed, or the system has no thread for it.
    No,
}

/// The handle of the thread, which may not run.
pub(super) struct Timer {
    state: Mutex<TimerState>,
    waker: Condvar,
}

impl Timer {
    pub(super) fn new() -> Self {
        let state = TimerState {
            phase: TimerPhase::Idle,
            added: AlarmAdded::No,
            sleeps_until: None,
            thread: None,
        };
        Self { state: Mutex::new(state), waker: Condvar::new() }
    }

    /// Makes sure that an alarm at `at`, which has been added, fires. Starts the thread if it does
    /// not run.
    pub(super) fn arm<A: Alarms>(alarms: &Arc<A>, at: Timestamp) -> Armed {
        let timer = alarms.timer();
        let mut state = lock(&timer.state);
        match state.phase {
            TimerPhase::Closed => Armed::No,
            TimerPhase::Running => {
                if state.sleeps_until.is_none_or(|until| until > at) {
                    state.added = AlarmAdded::Yes;
                    drop(state);
                    timer.waker.notify_one();
                }
                Armed::Yes
            }
            TimerPhase::Idle => {
                let alarms = Arc::clone(alarms);
                let builder = thread::Builder::new().name(THREAD_NAME.to_owned());
                let Ok(thread) = builder.spawn(move || alarms.timer().run(&*alarms)) else {
                    return Armed::No;
                };
                state.phase = TimerPhase::Running;
                state.thread = Some(thread);
                Armed::Yes
            }
        }
    }

    /// Ends the thread for good, without waiting for it.
    pub(super) fn stop(&self) {
        lock(&self.state).phase = TimerPhase::Closed;
        self.waker.notify_one();
    }

    /// Ends the thread for good, and waits until it has ended, unless it is the caller.
    pub(super) fn close(&self) {
        self.stop();
        let thread = lock(&self.state).thread.take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // An alarm does not panic, so there is nothing to report.
            let _ = thread.join();
        }
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn is_running(&self) -> bool {
        lock(&self.state).phase == TimerPhase::Running
    }

    fn run(&self, alarms: &impl Alarms) {
        let mut budget = SleepBudget::new();
        loop {
            {
                let mut state = lock(&self.state);
                state.added = AlarmAdded::No;
                state.sleeps_until = None;
            }
            let next = alarms.fire(alarms.now());
            let timeout = next.map(|next| budget.timeout(next, alarms.now()));
            let mut state = lock(&self.state);
            if state.phase == TimerPhase::Closed {
                return;
            }
            if state.added == AlarmAdded::Yes {
                continue;
            }
            state.sleeps_until = next;
            let woken = self.sleep(state, timeout.unwrap_or(LINGER));
            match next {
                Some(next) => budget.note(next, woken),
                None if woken == Woken::TimedOut && self.retire() => return,
                None => {}
            }
        }
    }

    fn sleep(&self, state: MutexGuard<'_, TimerState>, timeout: Duration) -> Woken {
        sleep_on(&self.waker, state, Some(timeout)).woken
    }

    /// Whether the thread may end: no alarm was added meanwhile.
    fn retire(&self) -> bool {
        let mut state = lock(&self.state);
        if state.added == AlarmAdded::No && state.phase == TimerPhase::Running {
            state.phase = TimerPhase::Idle;
        }
        state.phase != TimerPhase::Running
    }
}

/// How long to sleep until a time on a clock that may stand or lag.
///
/// A sleeper that has slept long enough, but whose time has not come, must not spin.
pub(super) struct SleepBudget {
    overslept: Option<Timestamp>,
}

impl SleepBudget {
    pub(super) fn new() -> Self {
        Self { overslept: None }
    }

    /// How long to sleep until a time.
    pub(super) fn timeout(&self, until: Timestamp, now: Timestamp) -> Duration {
        let left = Duration::from_nanos(until.as_nanos().saturating_sub(now.as_nanos()));
        if self.overslept == Some(until) { left.max(PAUSE) } else { left }
    }

    /// Records how the sleep until that time ended.
    pub(super) fn note(&mut self, until: Timestamp, woken: Woken) {
        self.overslept = (woken == Woken::TimedOut).then_some(until);
    }
}

struct TimerState {
    phase: TimerPhase,
    added: AlarmAdded,
    /// The alarm for which the thread sleeps. Absent while it is awake or has none.
    sleeps_until: Option<Timestamp>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimerPhase {
    Idle,
    Running,
    Closed,
}

/// Whether an alarm has been added since the thread last fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlarmAdded {
    No,
    Yes,
}

const THREAD_NAME: &str = "tidegate-timer";

/// How long the thread stays without an alarm.
const LINGER: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 10_000 });
