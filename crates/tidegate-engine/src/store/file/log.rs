//! The log: accepts records, and reports when they are durable.
//!
//! One thread writes. While it waits for the disk, records queue; the next write takes all of them.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_policy::policy::Durability;
use tidegate_table::clock::{Clock, MonotonicClock};
use tidegate_table::locks::lock;

use super::disk::NamedFile;
use super::writer::{SegmentWriter, SyncMode};
use crate::store::Outage;

/// A log that accepts records from any thread.
#[derive(Debug)]
pub(super) struct Log {
    shared: Arc<LogInner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct LogInner {
    state: Mutex<LogState>,
    /// The writer thread waits here for work.
    work: Condvar,
    /// Callers that rotate, or wait for the end of an outage, wait here.
    done: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    records: Vec<u8>,
    /// How many records were accepted, written, and synced.
    accepted: u64,
    written: u64,
    synced: u64,
    /// The durability that the waiting records need.
    wanted: Option<Durability>,
    waiting: HashMap<u64, (DurabilityGoal, Waker)>,
    /// The number of the newest waiter; the next one gets a larger one.
    next_waiter: u64,
    /// The last error of the disk, during an outage.
    failure: Option<Arc<io::Error>>,
    /// The last error of the disk, also after the outage.
    last_failure: Option<Arc<io::Error>>,
    /// How many outages there were.
    outages: u64,
    is_idle: bool,
    /// Whether a new segment is requested.
    wants_rotation: bool,
    rotated: Option<io::Result<u64>>,
    is_closing: bool,
    /// Whether the writer thread has panicked.
    is_dead: bool,
    counts: LogCounts,
    /// The segment that is being written.
    file: Option<NamedFile>,
}

/// The counts of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogCounts {
    /// Records of decisions and changes.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// How often the disk was synced.
    pub syncs: u64,
    /// How many outages there were, however short.
    pub outages: u64,
}

/// A record, and how durable it has to be.
#[derive(Clone, Copy, Debug)]
struct DurabilityGoal {
    record: u64,
    durability: Durability,
    outages: u64,
}

impl Log {
    /// A log that continues where `writer` ends.
    pub(super) fn new(
        writer: SegmentWriter,
        on_growth: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        // Records that the last process left unsynced count as just written.
        let left = u64::from(!writer.is_all_synced());
        let wanted = (left > 0).then_some(Durability::Fsync);
        let state = LogState { accepted: left, written: left, wanted, ..LogState::default() };
        let shared = Arc::new(LogInner {
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tidegate-log".into())
            .spawn(move || of_thread.run(writer, on_growth))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Accepts a record, which is written as soon as the disk is free.
    pub(super) fn append(&self, record: &[u8], durability: Durability) {
        let mut state = lock(&self.shared.state);
        state.records.extend_from_slice(record);
        state.accepted += 1;
        state.wanted = state.wanted.max(Some(durability));
        self.shared.wake(&mut state);
    }

    /// Resolves when everything accepted so far is durable.
    pub(super) fn wait_durable(&self, durability: Durability) -> WaitDurable {
        let mut state = lock(&self.shared.state);
        let goal = DurabilityGoal { record: state.accepted, durability, outages: state.outages };
        if state.reached(&goal).is_none() {
            // Records that were accepted with less durability have to become durable, too.
            state.wanted = state.wanted.max(Some(durability));
            self.shared.wake(&mut state);
        }
        state.next_waiter += 1;
        WaitDurable { shared: Arc::clone(&self.shared), goal, number: state.next_waiter }
    }

    /// Whether a record of about this many bytes should not be accepted: in an outage, or when too
    /// much waits for the disk.
    ///
    /// A record may take a small part of the room that is left. So large ones are refused long
    /// before small ones are, and cannot use up the room of all.
    pub(super) fn is_refusing(&self, len: usize) -> bool {
        let state = lock(&self.shared.state);
        let left = MOST_BEHIND.saturating_sub(state.records.len());
        state.failure.is_some() || len > left / SHARE
    }

    /// The error of the disk, during an outage.
    pub(super) fn failure(&self) -> Option<Arc<io::Error>> {
        lock(&self.shared.state).failure.clone()
    }

    /// The last error of the disk, also after the outage.
    pub(super) fn last_failure(&self) -> Option<Arc<io::Error>> {
        lock(&self.shared.state).last_failure.clone()
    }

    /// The segment that is being written.
    pub(super) fn file(&self) -> Option<NamedFile> {
        lock(&self.shared.state).file.clone()
    }

    /// Blocks until the disk works again, or the log is closed.
    pub(super) fn wait_until_it_works(&self) {
        let mut state = lock(&self.shared.state);
        while state.failure.is_some() && !state.is_closing && !state.is_dead {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Begins another segment, with everything accepted so far synced before it; returns its
    /// number.
    pub(super) fn rotate(&self) -> io::Result<u64> {
        let mut state = lock(&self.shared.state);
        state.wants_rotation = true;
        self.shared.wake(&mut state);
        loop {
            if state.is_dead {
                return Err(io::Error::other("the writer thread panicked"));
            }
            if let Some(rotated) = state.rotated.take() {
                return rotated;
            }
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn counts(&self) -> LogCounts {
        let state = lock(&self.shared.state);
        LogCounts { records: state.accepted, outages: state.outages, ..state.counts }
    }

    /// Ends the log: accepted records are written and synced, if the disk works.
    pub(super) fn close(&mut self) {
        let mut state = lock(&self.shared.state);
        state.is_closing = true;
        self.shared.wake(&mut state);
        drop(state);
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic there has been reported.
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

    fn run(&self, mut writer: SegmentWriter, on_growth: impl Fn(u64)) {
        let _guard = PanicGuard(self);
        let mut is_last = false;
        while !is_last {
            let mut state = self.next_work();
            let (records, upto) = (std::mem::take(&mut state.records), state.accepted);
            let (wanted, rotates) = (state.wanted.take(), state.wants_rotation);
            is_last = state.is_closing;
            drop(state);
            let sync = match wanted {
                Some(Durability::Fsync) => SyncMode::Now,
                _ if rotates || is_last => SyncMode::Now,
                _ => SyncMode::Later,
            };
            let written = writer.write(&records, sync);
            let rotated = match (&written, rotates) {
                (Ok(()), true) => Some(writer.rotate()),
                (Err(error), true) => Some(Err(copy(error))),
                (_, false) => None,
            };
            on_growth(self.note(&writer, (upto, sync), written, rotated));
        }
    }

    /// Waits for work; in an outage, for a bounded time.
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
                        // The failed write has to be retried.
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

    /// Records the outcome of a write up to a record, and wakes the waiters.
    fn note(
        &self,
        writer: &SegmentWriter,
        (upto, sync): (u64, SyncMode),
        written: io::Result<()>,
        rotated: Option<io::Result<u64>>,
    ) -> u64 {
        let mut state = lock(&self.state);
        let (bytes, syncs) = (writer.written_len, writer.syncs);
        state.counts = LogCounts { bytes, syncs, ..LogCounts::default() };
        state.file = writer.log_file();
        match written {
            Ok(()) => {
                state.written = upto;
                if sync == SyncMode::Now || writer.is_all_synced() {
                    state.synced = upto;
                }
                state.failure = None;
            }
            Err(error) => {
                if state.failure.is_none() {
                    state.outages += 1;
                }
                let error = Arc::new(error);
                (state.failure, state.last_failure) = (Some(Arc::clone(&error)), Some(error));
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
        writer.written_len
    }
}

/// Wakes all waiters, should the writer thread panic: nothing is written any more.
struct PanicGuard<'a>(&'a LogInner);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let mut state = lock(&self.0.state);
        let error = || io::Error::other("the writer thread panicked");
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
    /// Whether a record is as durable as it has to be, or an outage came first; `None`: not yet.
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

/// Waits until records are durable.
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

/// How long to wait before a failed write is retried.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How many bytes of records may wait for the disk before no more are accepted.
const MOST_BEHIND: usize = 64 << 20;

/// A record may take one part of so many of what is left.
const SHARE: usize = 64;
