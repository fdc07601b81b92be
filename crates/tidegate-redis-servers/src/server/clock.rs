//! A clock of a server that tests can step: the library `libfaketime` in the process adds the offset that a
//! file holds to the time of day.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Server;
use crate::program::faketime_library;
use crate::resp::Reply;

/// Makes a command read its clock through the library.
pub(super) fn fake(command: &mut Command, offset_file: &Path) {
    // The system's Redis allocates with jemalloc, which reads the clock when it is first used; the library
    // allocates when the clock is first read. The allocator of libc, earlier in the order of symbols, breaks
    // the circle.
    let preload = format!("{}:libc.so.6", faketime_library().display());
    command
        .env("LD_PRELOAD", preload)
        .env("FAKETIME_TIMESTAMP_FILE", offset_file)
        .env("FAKETIME_NO_CACHE", "1")
        // Timers and time-outs of the server go on.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        // Both would come before the file.
        .env_remove("FAKETIME")
        .env_remove("FAKETIME_SHARED");
}

/// Removes what the library leaves in shared memory when its process is killed.
pub(super) fn remove_shared_memory(pid: u32) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        let _ = fs::remove_file(Path::new("/dev/shm").join(name));
    }
}

/// Whether the server's time is that of this machine and this offset.
///
/// Between two readings of the clock Valkey counts ticks of the processor, for some milliseconds; and
/// commands that expire keys use the time that `INFO` has.
pub(super) fn is_stepped(server: &Server, offset_secs: i64) -> bool {
    let Ok(Reply::Array(parts)) = server.try_command(&["TIME"]) else { return false };
    let [secs, micros] = parts.as_slice() else { return false };
    let time_us = secs.integer().saturating_mul(1_000_000).saturating_add(micros.integer());
    let cached_us = server.info("server_time_usec").and_then(|text| text.parse().ok());
    let expected_us = machine_us().saturating_add(offset_secs.saturating_mul(1_000_000));
    let is_close = |time_us: i64| time_us.abs_diff(expected_us) < TOLERANCE_US;
    is_close(time_us) && cached_us.is_some_and(is_close)
}

#[expect(clippy::disallowed_methods, reason = "what the clock of another process is compared with")]
fn machine_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Less than the smallest step, and more than two round trips take.
const TOLERANCE_US: u64 = 500_000;
