//! The log as decisions see it: records go in, and somebody is told when they are safe.
//!
//! One thread writes. While it waits for the disk, records collect; the next write takes all of them.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::writer::{SegmentWriter, SyncMode};
use crate::clock::{Clock, MonotonicClock};
use crate::locks::lock;
use crate::policy::Durability;
use crate::store::Outage;

/// A log that takes records from any thread.
#[derive(Debug)]
pub(super) struct Log {
    shared: Arc<LogInner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct LogInner {
    state: Mutex<LogState>,
    /// The thread that writes waits here for something to do.
    work: Condvar,
    /// Who rotates, or waits for the disk to work again, waits here.
    done: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    records: Vec<u8>,
    /// How many records were ever taken, written, and made safe.
    taken: u64,
    written: u64,
    synced: u64,
    /// How safe those who wait want their records.
    wanted: Option<Durability>,
    waiting: HashMap<u64, (DurabilityGoal, Waker)>,
    /// The number of the next one who waits.
    next_waiter: u64,
    /// What the disk said when it last refused to take anything.
    failure: Option<Arc<io::Error>>,
    /// How often it has begun to refuse.
    outages: u64,
    is_idle: bool,
    /// Somebody wants a new segment.
    wants_rotation: bool,
    rotated: Option<io::Result<u64>>,
    is_closing: bool,
    /// Whether nobody writes any more.
    is_dead: bool,
    counts: LogCounts,
}

/// What the log has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogCounts {
    /// Records of decisions and changes.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// How often the disk was told to make them safe.
    pub syncs: u64,
}

/// A record, and how safe it has to be.
#[derive(Clone, Copy, Debug)]
struct DurabilityGoal {
    record: u64,
    durability: Durability,
    outages: u64,
}

impl Log {
    /// A log that goes on where `tail` ends.
    pub(super) fn new(
        tail: SegmentWriter,
        on_growth: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        // What an earlier life has left unsafe is as if it had just been written.
        let left = u64::from(!tail.is_all_synced());
        let wanted = (left > 0).then_some(Durability::Fsync);
        let state = LogState { taken: left, written: left, wanted, ..LogState::default() };
        let shared = Arc::new(LogInner {
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tidegate-log".into())
            .spawn(move || of_thread.run(tail, on_growth))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Takes a record, which is written as soon as the disk is free.
    pub(super) fn take(&self, record: &[u8], durability: Durability) {
        let mut state = lock(&self.shared.state);
        state.records.extend_from_slice(record);
        state.taken += 1;
        state.wanted = state.wanted.max(Some(durability));
        self.shared.wake(&mut state);
    }

    /// When everything that was taken so far is as safe as that.
    pub(super) fn wait_durable(&self, durability: Durability) -> WaitDurable {
        let mut state = lock(&self.shared.state);
        let goal = DurabilityGoal { record: state.taken, durability, outages: state.outages };
        if state.reached(&goal).is_none() {
            // What was taken for somebody who wanted less has to become as safe.
            state.wanted = state.wanted.max(Some(durability));
            self.shared.wake(&mut state);
        }
        state.next_waiter += 1;
        WaitDurable { shared: Arc::clone(&self.shared), goal, number: state.next_waiter }
    }

    /// Whether nothing more should be taken: the disk refuses, or is far behind.
    pub(super) fn is_refusing(&self) -> bool {
        let state = lock(&self.shared.state);
        state.failure.is_some() || state.records.len() > MOST_BEHIND
    }

    /// What the disk said, if it takes nothing.
    pub(super) fn failure(&self) -> Option<Arc<io::Error>> {
        lock(&self.shared.state).failure.clone()
    }

    /// Blocks until the disk takes what has to be written, or the log is closed.
    pub(super) fn wait_until_it_works(&self) {
        let mut state = lock(&self.shared.state);
        while state.failure.is_some() && !state.is_closing && !state.is_dead {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Begins another segment, with everything taken so far before it and safe; reports its number.
    pub(super) fn rotate(&self) -> io::Result<u64> {
        let mut state = lock(&self.shared.state);
        state.wants_rotation = true;
        self.shared.wake(&mut state);
        loop {
            if state.is_dead {
                return Err(io::Error::other("the thread that writes has panicked"));
            }
            if let Some(rotated) = state.rotated.take() {
                return rotated;
            }
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn counts(&self) -> LogCounts {
        let state = lock(&self.shared.state);
        LogCounts { records: state.taken, ..state.counts }
    }

    /// Ends the log: what was taken is written and made safe, if the disk lets it.
    pub(super) fn close(&mut self) {
        let mut state = lock(&self.shared.state);
        state.is_closing = true;
        self.shared.wake(&mut state);
        drop(state);
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic there has been told.
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

impl LogInner {
    fn wake(&self, state: &mut LogState) {
        if state.is_idle {
            state.is_idle = false;
            self.work.notify_one();
        }
    }

    fn run(&self, mut tail: SegmentWriter, on_growth: impl Fn(u64)) {
        let _told = PanicGuard(self);
        let mut is_last = false;
        while !is_last {
            let mut state = self.next_work();
            let (records, upto) = (std::mem::take(&mut state.records), state.taken);
            let (wanted, rotates) = (state.wanted.take(), state.wants_rotation);
            is_last = state.is_closing;
            drop(state);
            let is_safe = match wanted {
                Some(Durability::Fsync) => SyncMode::Now,
                _ if rotates || is_last => SyncMode::Now,
                _ => SyncMode::Later,
            };
            let written = tail.write(&records, is_safe);
            let rotated = match (&written, rotates) {
                (Ok(()), true) => Some(tail.rotate()),
                (Err(error), true) => Some(Err(copy(error))),
                (_, false) => None,
            };
            on_growth(self.note(&tail, (upto, is_safe), written, rotated));
        }
    }

    /// Waits until there is something to write; while the disk refuses, for a while at most.
    fn next_work(&self) -> std::sync::MutexGuard<'_, LogState> {
        let mut state = lock(&self.state);
        let began = MonotonicClock.now();
        loop {
            let has_work = state.wanted.is_some() || state.wants_rotation || state.is_closing;
            if has_work && (state.failure.is_none() || state.is_closing || state.wants_rotation) {
                return state;
            }
            state.is_idle = true;
            let woken = match state.failure {
                None => self.work.wait(state).map_err(PoisonError::into_inner),
                Some(_) => {
                    let waited_ns = MonotonicClock.now().as_nanos() - began.as_nanos();
                    let left = RETRY_AFTER.saturating_sub(Duration::from_nanos(waited_ns));
                    if left.is_zero() {
                        // Whatever could not be written has to be tried again.
                        state.is_idle = false;
                        return state;
                    }
                    let woken = self.work.wait_timeout(state, left);
                    Ok(woken.unwrap_or_else(PoisonError::into_inner).0)
                }
            };
            state = woken.unwrap_or_else(|state| state);
        }
    }

    /// Tells everybody what became of the records up to one.
    fn note(
        &self,
        tail: &SegmentWriter,
        (upto, is_safe): (u64, SyncMode),
        written: io::Result<()>,
        rotated: Option<io::Result<u64>>,
    ) -> u64 {
        let mut state = lock(&self.state);
        state.counts = LogCounts { records: 0, bytes: tail.written_len, syncs: tail.syncs };
        match written {
            Ok(()) => {
                state.written = upto;
                if is_safe == SyncMode::Now || tail.is_all_synced() {
                    state.synced = upto;
                }
                state.failure = None;
            }
            Err(error) => {
                if state.failure.is_none() {
                    state.outages += 1;
                }
                state.failure = Some(Arc::new(error));
            }
        }
        if rotated.is_some() {
            state.wants_rotation = false;
            state.rotated = rotated;
        }
        let waiting = std::mem::take(&mut state.waiting);
        let mut over = Vec::new();
        for (number, (goal, waker)) in waiting {
            match state.reached(&goal) {
                Some(_) => over.push(waker),
                None => {
                    state.waiting.insert(number, (goal, waker));
                }
            }
        }
        drop(state);
        self.done.notify_all();
        over.into_iter().for_each(Waker::wake);
        tail.written_len
    }
}

/// Tells everybody, should the thread that writes end in a panic: nothing is written any more.
struct PanicGuard<'a>(&'a LogInner);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let mut state = lock(&self.0.state);
        let error = || io::Error::other("the thread that writes has panicked");
        state.failure = Some(Arc::new(error()));
        state.outages += 1;
        state.is_dead = true;
        state.rotated = state.wants_rotation.then(|| Err(error()));
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.0.done.notify_all();
        waiting.into_values().for_each(|(_, waker)| waker.wake());
    }
}

impl LogState {
    /// Whether a record is as safe as it has to be, or nobody can know any more; `None`: not yet.
    fn reached(&self, goal: &DurabilityGoal) -> Option<Result<(), Outage>> {
        let reached = match goal.durability {
            Durability::Memory => u64::MAX,
            Durability::Flush => self.written,
            Durability::Fsync => self.synced,
        };
        if reached >= goal.record {
            Some(Ok(()))
        } else if self.failure.is_some() || self.outages != goal.outages {
            Some(Err(Outage))
        } else {
            None
        }
    }
}

/// Waits until records are safe.
#[derive(Debug)]
pub(crate) struct WaitDurable {
    shared: Arc<LogInner>,
    goal: DurabilityGoal,
    number: u64,
}

impl Drop for WaitDurable {
    fn drop(&mut self) {
        lock(&self.shared.state).waiting.remove(&self.number);
    }
}

impl Future for WaitDurable {
    type Output = Result<(), Outage>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.shared.state);
        match state.reached(&self.goal) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waiting.insert(self.number, (self.goal, context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// How long to wait before a disk that refused is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How many bytes of records may wait for the disk before no more are taken.
const MOST_BEHIND: usize = 64 << 20;
