use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The most descriptors that the process may have. Raises the soft limit to the hard one.
///
/// A listener needs fewer [permits](crate::PermitLimits::new) than that: without a free descriptor
/// it cannot accept at all.
#[must_use]
pub fn descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return hard;
    }
    soft
}
