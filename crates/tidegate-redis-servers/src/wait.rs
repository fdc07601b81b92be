//! Waiting for other processes.

use std::thread;
use std::time::Duration;

/// Repeats a check until it holds, and pauses between two rounds.
///
/// # Panics
///
/// If it does not hold after 2000 rounds, which are at least 20 seconds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(holds_within(ROUNDS, &mut holds), "never: {what}");
}

/// Whether the check holds within this number of rounds.
pub(crate) fn holds_within(rounds: u32, holds: &mut dyn FnMut() -> bool) -> bool {
    (0..rounds).any(|_| {
        let is_so = holds();
        if !is_so {
            // May return early; then this is one more round without a pause.
            thread::park_timeout(PAUSE);
        }
        is_so
    })
}

/// Rounds of [`until`].
pub(crate) const ROUNDS: u32 = 2_000;

const PAUSE: Duration = Duration::from_millis(10);
