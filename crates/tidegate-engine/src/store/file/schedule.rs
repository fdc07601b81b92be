//! When snapshots are taken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use tidegate_table::locks::lock;

/// Decides when a snapshot is due.
#[derive(Debug, Default)]
pub(super) struct SnapshotSchedule {
    /// Bytes of log now.
    written_len: AtomicU64,
    state: Mutex<ScheduleState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ScheduleState {
    at_snapshot_len: u64,
    is_closing: bool,
    is_due: bool,
}

impl SnapshotSchedule {
    /// The schedule of a store that was opened, with a snapshot due at once or not.
    pub(super) fn new(is_due: bool) -> Self {
        let state = ScheduleState { is_due, ..ScheduleState::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// Notes the length of the log, with a snapshot after so many bytes.
    pub(super) fn note(&self, written_len: u64, after_len: u64) {
        self.written_len.store(written_len, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if written_len.saturating_sub(state.at_snapshot_len) > after_len && !state.is_due {
            state.is_due = true;
            self.changed.notify_all();
        }
    }

    /// Notes that a snapshot was taken, or failed.
    pub(super) fn note_snapshot(&self) {
        let mut state = lock(&self.state);
        state.at_snapshot_len = self.written_len.load(Ordering::Relaxed);
        state.is_due = false;
    }

    /// Waits until a snapshot is due; `false` at the end.
    pub(super) fn wait_until_due(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.is_due && !state.is_closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_closing
    }

    /// Ends the wait for the next snapshot.
    pub(super) fn close(&self) {
        lock(&self.state).is_closing = true;
        self.changed.notify_all();
    }
}
