//! The log: accepts records, and reports when they are durable.
//!
//! One thread writes. While it waits for the disk, records queue; the next write takes all of them,
//! and those of callers that come back at once.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_table::clock::{Clock, MonotonicClock};
use tidegate_table::locks::lock;

use crate::disk::{Disk, NamedFile};
use crate::error::LogError;
use crate::segments::LogEnd;
use crate::writer::{Level, SegmentSizes, SegmentWriter};
use gathering::{Gathered, Gathering, LONGEST};
use wait::{DurabilityGoal, Progress, Waiter};

pub use wait::{NotDurable, WaitDurable};

mod gathering;
mod wait;

/// A log that accepts records from any thread.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    shared: Arc<LogInner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct LogInner {
    state: Mutex<LogState>,
    progress: Progress,
    /// The writer thread waits here for work.
    work: Condvar,
    /// Callers that rotate, or wait for the end of an outage, wait here.
    done: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    records: Vec<u8>,
    /// How many records were accepted, were taken to be written, and to be synced.
    accepted: u64,
    taken: u64,
    syncing: u64,
    /// The level that the waiting records need.
    wanted: Option<Level>,
    /// In the order of their numbers, which is about that of their records.
    waiting: Vec<Waiter>,
    /// The number of the newest waiter; the next one gets a larger one.
    last_waiter: u64,
    /// The last error of the disk, during an outage.
    failure: Option<Arc<io::Error>>,
    /// The last error of the disk, also after the outage.
    last_failure: Option<Arc<io::Error>>,
    /// How many outages there were.
    outages: u64,
    is_idle: bool,
    /// How many records there are when every caller that was just woken is back, and whether the
    /// writer waits for them.
    expected: u64,
    is_gathering: bool,
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

/// What the writer does next.
#[derive(Debug)]
struct Work {
    records: Vec<u8>,
    /// The last record among those, or before.
    upto: u64,
    level: Level,
    rotates: bool,
    is_last: bool,
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

impl Log {
    /// A log that continues where another one ended. After each write `on_growth` is called with the
    /// number of bytes written since.
    pub fn open(
        disk: Arc<dyn Disk>,
        sizes: SegmentSizes,
        end: LogEnd,
        on_growth: impl Fn(u64) + Send + 'static,
    ) -> Result<Self, LogError> {
        let writer = SegmentWriter::new(disk, sizes, end.from, end.unproven);
        Self::gathering(writer, on_growth, Gathering::new(Duration::ZERO, LONGEST))
            .map_err(|error| LogError::disk("start a thread", error))
    }

    fn gathering(
        writer: SegmentWriter,
        on_growth: impl Fn(u64) + Send + 'static,
        gathering: Gathering,
    ) -> io::Result<Self> {
        // Records that the last process left unsynced count as just written.
        let left = u64::from(!writer.is_all_synced());
        let wanted = (left > 0).then_some(Level::Synced);
        let state = LogState { accepted: left, taken: left, wanted, ..LogState::default() };
        let progress = Progress::default();
        progress.note_written(left);
        let shared = Arc::new(LogInner {
            state: Mutex::new(state),
            progress,
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let (of_thread, disk) = (Arc::clone(&shared), Arc::clone(&writer.disk));
        let thread = thread::Builder::new()
            .name("tidegate-log".into())
            .spawn(move || of_thread.run(writer, on_growth, gathering))?;
        Ok(Self { disk, shared, thread: Some(thread) })
    }

    /// Accepts a record, which is written as soon as the disk is free; returns its number.
    pub fn append(&self, record: &[u8], level: Level) -> u64 {
        let mut state = lock(&self.shared.state);
        state.records.extend_from_slice(record);
        self.shared.progress.queued_len.store(state.records.len(), Ordering::Relaxed);
        state.accepted += 1;
        let number = state.accepted;
        state.wanted = state.wanted.max(Some(level));
        self.shared.wake(state);
        number
    }

    /// Resolves when everything accepted so far has reached a level.
    pub fn wait_durable(&self, level: Level) -> WaitDurable {
        let accepted = lock(&self.shared.state).accepted;
        self.wait_record(accepted, level)
    }

    /// Resolves when a record and all before it have reached a level.
    pub fn wait_record(&self, record: u64, level: Level) -> WaitDurable {
        WaitDurable::new(&self.shared, record, level)
    }

    /// Whether a record of about this many bytes should not be accepted: in an outage, or when too
    /// much waits for the disk.
    ///
    /// A record may take a small part of the room that is left. So large ones are refused long
    /// before small ones are, and cannot use up the room of all.
    pub fn is_refusing(&self, len: usize) -> bool {
        let progress = &self.shared.progress;
        let left = MOST_BEHIND.saturating_sub(progress.queued_len.load(Ordering::Relaxed));
        progress.is_failing.load(Ordering::Acquire) || len > left / SHARE
    }

    /// The error of the disk, during an outage; or what was done to the folder, which is an outage
    /// as soon as something has to be written.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<io::Error>> {
        let state = lock(&self.shared.state);
        let (failure, file) = (state.failure.clone(), state.file.clone());
        drop(state);
        // It may be growing, or be done: only the writer knows how long it is.
        let file = file.map(|file| NamedFile { least_len: 0, ..file });
        failure.or_else(|| self.disk.verify(file.as_ref()).err().map(Arc::new))
    }

    /// The last error of the disk, also after the outage.
    pub fn last_failure(&self) -> Option<Arc<io::Error>> {
        lock(&self.shared.state).last_failure.clone()
    }

    /// Blocks until the disk works again, or the log is closed.
    pub fn wait_until_it_works(&self) {
        let mut state = lock(&self.shared.state);
        while state.failure.is_some() && !state.is_closing && !state.is_dead {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Begins another segment, with everything accepted so far synced before it; returns its
    /// number.
    pub fn rotate(&self) -> io::Result<u64> {
        let mut state = lock(&self.shared.state);
        state.wants_rotation = true;
        self.shared.wake(state);
        state = lock(&self.shared.state);
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

    /// The counts of the log.
    #[must_use]
    pub fn counts(&self) -> LogCounts {
        let state = lock(&self.shared.state);
        LogCounts { records: state.accepted, outages: state.outages, ..state.counts }
    }

    /// Ends the log: accepted records are written and synced, if the disk works.
    pub fn close(&mut self) {
        let mut state = lock(&self.shared.state);
        state.is_closing = true;
        self.shared.wake(state);
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
    /// Unlocks, and wakes the writer if it waits for work, or for callers that are back.
    fn wake(&self, mut state: MutexGuard<'_, LogState>) {
        let is_idle = std::mem::take(&mut state.is_idle);
        let is_complete = state.is_gathering && !state.is_incomplete();
        state.is_gathering &= !is_complete;
        drop(state);
        if is_idle || is_complete {
            self.work.notify_one();
        }
    }

    fn run(&self, mut writer: SegmentWriter, on_growth: impl Fn(u64), mut gathering: Gathering) {
        let _guard = PanicGuard(self);
        let mut buffer = Vec::new();
        loop {
            let work = self.next_work(buffer, &mut gathering);
            let began = MonotonicClock.now();
            let written = writer.write(&work.records, work.level);
            if work.level == Level::Synced && written.is_ok() {
                gathering.note_sync(began, MonotonicClock.now());
            }
            let rotated = match (&written, work.rotates) {
                (Ok(()), true) => Some(writer.rotate()),
                (Err(error), true) => Some(Err(copy(error))),
                (_, false) => None,
            };
            // In the order in which they came: those that have waited longest go first.
            self.note(&writer, &work, written, rotated).into_iter().for_each(Waker::wake);
            on_growth(writer.written_len);
            if work.is_last {
                return;
            }
            buffer = work.records;
        }
    }

    /// Waits for work; in an outage, for a bounded time. The buffer is for the next records.
    fn next_work(&self, mut buffer: Vec<u8>, gathering: &mut Gathering) -> Work {
        let mut state = lock(&self.state);
        let began = MonotonicClock.now();
        while !state.has_work() {
            state.is_idle = true;
            state = match state.failure {
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(_) => {
                    let waited_ns = MonotonicClock.now().as_nanos() - began.as_nanos();
                    let left = RETRY_AFTER.saturating_sub(Duration::from_nanos(waited_ns));
                    if left.is_zero() {
                        // The failed write has to be retried.
                        state.is_idle = false;
                        break;
                    }
                    let woken = self.work.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state = self.gather(state, gathering);
        buffer.clear();
        if buffer.capacity() > MOST_BUFFERED {
            buffer = Vec::new();
        }
        let records = std::mem::replace(&mut state.records, buffer);
        self.progress.queued_len.store(0, Ordering::Relaxed);
        let (wanted, rotates, is_last) =
            (state.wanted.take(), state.wants_rotation, state.is_closing);
        let is_synced = wanted == Some(Level::Synced) || rotates || is_last;
        let level = if is_synced { Level::Synced } else { Level::Written };
        state.taken = state.accepted;
        if is_synced {
            state.syncing = state.accepted;
        }
        Work { records, upto: state.accepted, level, rotates, is_last }
    }

    /// Waits a little for callers that were just woken, if they usually come back at once.
    fn gather<'a>(
        &self,
        mut state: MutexGuard<'a, LogState>,
        gathering: &mut Gathering,
    ) -> MutexGuard<'a, LogState> {
        let (before, began) = (state.accepted, MonotonicClock.now());
        let left = |until: Timestamp| {
            let left_ns = until.as_nanos().saturating_sub(MonotonicClock.now().as_nanos());
            Some(Duration::from_nanos(left_ns)).filter(|left| !left.is_zero())
        };
        let until = state.is_incomplete().then(|| gathering.until()).flatten();
        let Some(until) = until.filter(|until| left(*until).is_some()) else { return state };
        while let Some(left) = left(until).filter(|_| state.is_incomplete()) {
            state.is_gathering = true;
            let woken = self.work.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_gathering = false;
        let waited_ns = MonotonicClock.now().as_nanos().saturating_sub(began.as_nanos());
        gathering.note(Gathered {
            early: before - state.taken,
            late: state.accepted - before,
            waited: Duration::from_nanos(waited_ns),
        });
        state
    }

    /// Records the outcome of a write, and returns the wakers of those whose wait is over.
    fn note(
        &self,
        writer: &SegmentWriter,
        work: &Work,
        written: io::Result<()>,
        rotated: Option<io::Result<u64>>,
    ) -> Vec<Waker> {
        let file = writer.log_file();
        let mut state = lock(&self.state);
        let had_failed = state.failure.is_some();
        let (bytes, syncs) = (writer.written_len, writer.syncs);
        state.counts = LogCounts { bytes, syncs, ..LogCounts::default() };
        state.file = file;
        match written {
            Ok(()) => {
                self.progress.note_written(work.upto);
                if work.level == Level::Synced || writer.is_all_synced() {
                    self.progress.note_synced(work.upto);
                }
                state.failure = None;
            }
            Err(error) => {
                state.outages += u64::from(state.failure.is_none());
                let error = Arc::new(error);
                (state.failure, state.last_failure) = (Some(Arc::clone(&error)), Some(error));
            }
        }
        let has_failed = state.failure.is_some();
        self.progress.is_failing.store(has_failed, Ordering::Release);
        if has_failed != had_failed || rotated.is_some() || work.is_last {
            self.done.notify_all();
        }
        if rotated.is_some() {
            state.wants_rotation = false;
            state.rotated = rotated;
        }
        let (waiting, mut durable) = (std::mem::take(&mut state.waiting), Vec::new());
        for waiter in waiting {
            match self.outcome(&state, &waiter.goal) {
                Some(_) => durable.push(waiter.waker),
                None => state.waiting.push(waiter),
            }
        }
        state.expected = state.accepted + durable.len() as u64;
        durable
    }

    /// Whether a record is as durable as it has to be, or an outage came first; `None`: not yet.
    fn outcome(&self, state: &LogState, goal: &DurabilityGoal) -> Option<Result<(), NotDurable>> {
        if self.progress.reached(goal.level) >= goal.record {
            Some(Ok(()))
        } else if state.failure.is_some() || state.outages != goal.outages {
            Some(Err(NotDurable))
        } else {
            None
        }
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
        self.0.progress.is_failing.store(true, Ordering::Release);
        state.outages += 1;
        state.is_dead = true;
        state.rotated = state.wants_rotation.then(|| Err(error()));
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.0.done.notify_all();
        waiting.into_iter().for_each(|waiter| waiter.waker.wake());
    }
}

impl LogState {
    /// Whether the writer has something to do at once. In an outage a failed write is retried after
    /// a while.
    fn has_work(&self) -> bool {
        match self.failure {
            None => self.wanted.is_some() || self.wants_rotation || self.is_closing,
            Some(_) => self.is_closing || self.wants_rotation,
        }
    }

    /// Whether the next batch is to be synced, and callers that were just woken are not back. An
    /// outage, a new segment and the end do not wait for them.
    fn is_incomplete(&self) -> bool {
        self.accepted < self.expected
            && self.wanted == Some(Level::Synced)
            && self.failure.is_none()
            && !self.wants_rotation
            && !self.is_closing
    }

    /// Requests the level that a record needs, unless the writer is at it.
    fn request(&mut self, goal: &DurabilityGoal) {
        let underway = match goal.level {
            Level::Accepted => u64::MAX,
            Level::Written => self.taken,
            Level::Synced => self.syncing,
        };
        if goal.record > underway {
            self.wanted = self.wanted.max(Some(goal.level));
        }
    }

    /// Adds a waiter, and returns its number.
    fn add_waiter(&mut self, goal: DurabilityGoal, waker: Waker) -> u64 {
        self.last_waiter += 1;
        let number = self.last_waiter;
        self.waiting.push(Waiter { number, goal, waker });
        number
    }

    fn waiter(&mut self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |waiter| waiter.number).ok()
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

/// How long a buffer for records may be to be used again, in bytes.
const MOST_BUFFERED: usize = 1 << 20;

#[cfg(test)]
mod tests;
