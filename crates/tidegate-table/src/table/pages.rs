//! Memory of the system, without an allocator between.
//!
//! An allocator may return memory that was used before, and has to write zeros to all of it first: for
//! milliseconds, in the middle of a decision. The system's pages are zeroed one at a time, when they
//! are first used.

#![allow(unsafe_code, reason = "owns raw memory")]

use std::ptr::NonNull;

/// Whether memory of this size comes from the system.
pub(super) fn is_mapped(bytes: usize) -> bool {
    system::CAN_MAP && bytes >= MIN_MAPPED_BYTES
}

/// Pages of zeros, for this many bytes; `None` if there is no memory.
pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
    system::map(bytes)
}

/// Returns pages to the system.
///
/// # Safety
///
/// They were mapped by [`map`] with this size, and nothing refers to them any more.
pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the contract of this function.
    unsafe { system::unmap(start, bytes) };
}

/// A hint; the system may ignore it, and it changes nothing but speed.
pub(super) fn ask_for_huge_pages(start: *mut u8, bytes: usize) {
    system::ask_for_huge_pages(start, bytes);
}

/// Less comes from the allocator.
const MIN_MAPPED_BYTES: usize = 256 << 10;

/// The calls are declared here, because no dependency has them; the numbers are those of these
/// processors.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod system {
    use std::ffi::{c_int, c_long};
    use std::ptr::{NonNull, null_mut};

    // SAFETY: these are the declarations in mman.h.
    unsafe extern "C" {
        fn mmap(
            at: *mut u8,
            bytes: usize,
            access: c_int,
            flags: c_int,
            file: c_int,
            offset: c_long,
        ) -> *mut u8;
        fn munmap(start: *mut u8, bytes: usize) -> c_int;
        fn madvise(start: *mut u8, bytes: usize, advice: c_int) -> c_int;
    }

    pub(super) const CAN_MAP: bool = true;
    const PROT_READ_WRITE: c_int = 1 | 2;
    const MAP_PRIVATE_ANONYMOUS: c_int = 0x2 | 0x20;
    const MADV_HUGEPAGE: c_int = 14;

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: a new private mapping, at an address of the system's choice, touches no memory
        // that is in use.
        let start =
            unsafe { mmap(null_mut(), bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0) };
        // A mapping that failed is at the last address.
        NonNull::new(start).filter(|start| start.addr().get() != usize::MAX)
    }

    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: by the contract of the caller.
        let _ = unsafe { munmap(start.as_ptr(), bytes) };
    }

    pub(super) fn ask_for_huge_pages(start: *mut u8, bytes: usize) {
        // SAFETY: the range lies in one allocation of the caller, and this advice changes no
        // contents.
        let _ = unsafe { madvise(start, bytes, MADV_HUGEPAGE) };
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod system {
    use std::ptr::NonNull;

    pub(super) const CAN_MAP: bool = false;

    pub(super) fn map(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) unsafe fn unmap(_start: NonNull<u8>, _bytes: usize) {}

    pub(super) fn ask_for_huge_pages(_start: *mut u8, _bytes: usize) {}
}
