use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{Cooldown, Limiter};

/// Limits one kind of log line to one per second, and counts those that are left out.
///
/// ```
/// let warnings = tidegate_listen::Warnings::new();
/// if let Some(left_out) = warnings.next() {
///     tracing::warn!(left_out, "something happens often");
/// }
/// assert!(warnings.next().is_none(), "left out and counted");
/// ```
#[derive(Debug)]
pub struct Warnings {
    cooldown: Limiter<str, Cooldown>,
    left_out: AtomicU64,
}

impl Default for Warnings {
    fn default() -> Self {
        Self::new()
    }
}

impl Warnings {
    /// One kind of line. Shared by all that log it: one per connection would bound nothing.
    #[must_use]
    pub fn new() -> Self {
        let cooldown = Cooldown::new(Duration::from_secs(1));
        Self { cooldown: Limiter::new(cooldown), left_out: AtomicU64::new(0) }
    }

    /// Whether the next line may be logged: the number of lines left out since the last one.
    /// `None`: this one is left out.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        if self.cooldown.check("").is_allowed() {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}
