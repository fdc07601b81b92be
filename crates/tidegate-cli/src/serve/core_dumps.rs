//! Core dumps: a copy of the daemon's memory would have secrets in it.

use nix::sys::resource::{Resource, setrlimit};

/// Turns core dumps off. On Linux other processes of the same user can no longer read the memory of
/// this one, either.
pub(super) fn disable() {
    // Counts for dumps into files.
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        tracing::warn!(%error, "core dumps cannot be turned off by their limit");
    }
    // Counts for those that are piped into another program, too, and for debuggers.
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!(%error, "core dumps cannot be turned off for this process");
    }
}
