//! Metrics of the process, under the names that Prometheus clients use.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use tidegate::Timestamp;

use super::exposition::Exposition;

/// Writes them; `started` is the wall clock's time of the start.
pub(super) fn write_process(started: Timestamp, text: &mut Exposition) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let gauges = [
        ("process_resident_memory_bytes", "Resident memory in bytes.", memory(&status, "VmRSS:")),
        ("process_virtual_memory_bytes", "Virtual memory in bytes.", memory(&status, "VmSize:")),
        ("process_open_fds", "Number of open file descriptors.", open_descriptors()),
        (
            "process_max_fds",
            "Maximum number of open file descriptors.",
            getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft),
        ),
    ];
    for (name, help, value) in gauges {
        // What the system does not report is left out.
        if let Some(value) = value {
            text.family(name, "gauge", help);
            text.sample(name, &[], value);
        }
    }
    let name = "process_start_time_seconds";
    text.family(name, "gauge", "Start time of the process in seconds since the epoch.");
    text.seconds(name, &[], Duration::from_nanos(started.as_nanos()));
}

/// The resident memory of the process, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    memory(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// A size of `/proc/self/status`, which has them in KiB.
fn memory(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The open descriptors, without the one that reads them.
fn open_descriptors() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(entries.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::memory;

    #[test]
    fn sizes_of_the_process_are_in_bytes() {
        let status = "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t     7 kB\n";
        assert_eq!(memory(status, "VmRSS:"), Some(7 << 10));
        assert_eq!(memory(status, "VmSize:"), Some(2 << 20));
        assert_eq!(memory(status, "VmSwap:"), None);
    }
}
