//! Memory for lines: allocated once, zeroed lazily by the system, freed with its owner.

#![allow(unsafe_code, reason = "owns raw memory")]

use std::ops::Deref;

use super::line::Line;

/// A run of empty lines that never moves.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Lines<L: Line> {
    allocation: std::ptr::NonNull<u8>,
    layout: std::alloc::Layout,
    first: std::ptr::NonNull<L>,
    len: usize,
}

#[cfg(not(loom))]
impl<L: Line> Lines<L> {
    pub(crate) fn new(len: usize) -> Self {
        use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

        assert!(len > 0, "a run of lines has at least one");
        // Asking for the alignment of malloc and aligning by hand keeps the zero pages lazy: an
        // over-aligned zeroed allocation is written to.
        let align = align_of::<L>();
        let bytes = len.checked_mul(size_of::<L>()).and_then(|bytes| bytes.checked_add(align));
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, MALLOC_ALIGN).ok());
        let layout = layout.expect("the builder bounds the number of lines");
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(allocation) = std::ptr::NonNull::new(start) else { handle_alloc_error(layout) };
        let offset = start.align_offset(align);
        // SAFETY: the offset is below `align`, and `align` bytes more than needed were allocated.
        let first = unsafe { allocation.add(offset) }.cast::<L>();
        Self { allocation, layout, first, len }
    }
}

#[cfg(not(loom))]
impl<L: Line> Deref for Lines<L> {
    type Target = [L];

    fn deref(&self) -> &[L] {
        // SAFETY: `len` aligned lines were allocated, all-zero memory is a valid line, lines are
        // made of atomics only, and the memory lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

#[cfg(not(loom))]
impl<L: Line> Drop for Lines<L> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. Lines of atomics need no drop.
        unsafe { std::alloc::dealloc(self.allocation.as_ptr(), self.layout) };
    }
}

// SAFETY: this owns its lines, and lines are `Send` and `Sync`.
#[cfg(not(loom))]
unsafe impl<L: Line> Send for Lines<L> {}

// SAFETY: as above; shared access goes to lines of atomics.
#[cfg(not(loom))]
unsafe impl<L: Line> Sync for Lines<L> {}

#[cfg(not(loom))]
const MALLOC_ALIGN: usize = 16;

/// Loom's atomics cannot be made of zero bytes.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Lines<L: Line>(Box<[L]>);

#[cfg(loom)]
impl<L: Line> Lines<L> {
    pub(crate) fn new(len: usize) -> Self {
        Self((0..len).map(|_| L::empty()).collect())
    }
}

#[cfg(loom)]
impl<L: Line> Deref for Lines<L> {
    type Target = [L];

    fn deref(&self) -> &[L] {
        &self.0
    }
}

/// Asks the processor to bring a line near.
#[inline(always)]
pub(super) fn prefetch<L>(line: &L) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on the program, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
