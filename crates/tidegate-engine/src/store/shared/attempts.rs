//! The times at which an operation of a shared store is decided.

use std::fmt;
use std::sync::Arc;

use crate::periods::Times;

/// Reads the clocks of an engine.
pub(crate) type ReadTimes = Arc<dyn Fn() -> Times + Send + Sync>;

/// The time of each attempt at an operation: first that of its call, then what the clocks show.
///
/// Other engines go on while an operation is on its way. Decided again for the time of its call, it would
/// wait too long, and hold units from a time that is over.
#[derive(Clone)]
pub(crate) struct Attempts {
    times: Times,
    /// `None` where the caller gave the time: it counts however long the operation takes.
    clock: Option<ReadTimes>,
    is_first: bool,
}

impl Attempts {
    pub(super) const fn new(times: Times, clock: Option<ReadTimes>) -> Self {
        Self { times, clock, is_first: true }
    }

    /// The time of the next attempt.
    pub(crate) fn next(&mut self) -> Times {
        if let Some(read) = self.clock.as_ref().filter(|_| !self.is_first) {
            self.times = read();
        }
        self.is_first = false;
        self.times
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts").field("times", &self.times).finish_non_exhaustive()
    }
}
