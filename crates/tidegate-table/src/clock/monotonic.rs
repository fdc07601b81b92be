//! The default clock: the system's monotonic clock, interpolated by the processor's counter.

#![allow(clippy::disallowed_methods, reason = "the one file that reads the system's clock")]

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::Timestamp;

use super::Clock;

/// The time since the first use of this clock in the process.
///
/// It follows the system's monotonic clock: changes of the date do not touch it, it never runs
/// backwards, and time that the machine spends asleep does not count (on Linux; elsewhere it is
/// what [`Instant`] does).
///
/// On x86-64 Linux, where the kernel itself trusts the processor's time stamp counter, the
/// system's clock is read about once per second and interpolated by the counter in between, which
/// is two to three times as fast. The first 10 ms of a process use the system's clock alone, so
/// nothing waits for calibration. The two differ by microseconds at most.
///
/// Its [`wall`](Clock::wall) is the system's time of day.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        match self.quick() {
            Some(now) => now,
            None => read_system(),
        }
    }

    #[inline(always)]
    fn quick(&self) -> Option<Timestamp> {
        #[cfg(target_arch = "x86_64")]
        return counter::interpolated();
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    fn wall(&self) -> Timestamp {
        wall()
    }
}

/// The system's time of day; 1970 if it is set to before that.
pub(super) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::ZERO.saturating_add(since)
}

/// The system's clock; sets a new anchor for the interpolation when one is due.
#[cold]
#[inline(never)]
fn read_system() -> Timestamp {
    #[cfg(target_arch = "x86_64")]
    if counter::is_trusted() {
        return counter::anchor(elapsed_ns);
    }
    Timestamp::from_nanos(elapsed_ns())
}

/// Nanoseconds since the first call.
fn elapsed_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let elapsed = ORIGIN.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(target_arch = "x86_64")]
mod counter;
