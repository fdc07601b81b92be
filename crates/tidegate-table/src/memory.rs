//! Memory that the allocator keeps.

/// Returns memory that is no longer used to the system.
///
/// The allocator of glibc keeps freed memory between blocks that are in use, without end. The call takes time
/// in proportion to the heap, and locks it: it is for a background thread, after a peak of use. With
/// other allocators it does nothing.
pub fn return_memory() {
    trim();
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "the one call that returns memory has no safe wrapper")]
fn trim() {
    use std::ffi::c_int;

    // SAFETY: this is the declaration in malloc.h of glibc.
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> c_int;
    }

    // SAFETY: it takes no pointer, may be called at any time from any thread, and changes no block
    // that is in use.
    let _ = unsafe { malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}
