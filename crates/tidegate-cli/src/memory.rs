//! Returns memory to the system after a flood.
//!
//! The allocator of glibc keeps freed memory between blocks that are in use, without end.

use std::thread;
use std::time::Duration;

/// Starts a thread that returns memory once it is no longer used.
pub(crate) fn start() {
    let trimmed = || {
        let (mut before, mut kept) = (resident_pages(), resident_pages());
        loop {
            thread::park_timeout(PERIOD);
            let now = resident_pages();
            let is_growing = now > before.saturating_add(GROWTH_PAGES);
            if now > kept.saturating_add(WORTH_PAGES) && !is_growing {
                tidegate_table::return_memory();
                kept = resident_pages();
            }
            kept = kept.min(now);
            before = now;
        }
    };
    // Without the thread memory stays with the process, as it did before.
    let _ = thread::Builder::new().name("tidegate-memory".into()).spawn(trimmed);
}

/// The resident memory of the process; 0 if the system does not report it.
fn resident_pages() -> u64 {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    sizes.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

const PERIOD: Duration = Duration::from_secs(5);
/// Memory beyond that of the last time that is worth a call: 16 MiB.
const WORTH_PAGES: u64 = 4_096;
/// Memory that still grows by this much is in use: 1 MiB.
const GROWTH_PAGES: u64 = 256;
