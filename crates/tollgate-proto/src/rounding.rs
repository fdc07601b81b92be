//! Times on the wire: whole units, rounded up, so that nobody comes back too early.

use std::time::Duration;

/// Whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// Whole milliseconds, rounded up.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
