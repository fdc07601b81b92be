//! Memory for lines: allocated in pieces, zeroed by the system, freed all at once.

#![allow(unsafe_code, reason = "owns raw memory")]

use super::line::Line;
#[cfg(not(loom))]
use super::pages;
use super::sync::{Mutex, lock};

/// Owns lines. They never move and live as long as the arena.
///
/// Pieces grow with the arena, so that a small table is small and a large one consists of few
/// pieces. The first piece is the whole of a presized table: it is made of huge pages, if the
/// system has them, because much of the time of a decision about one of many keys goes into finding
/// its page. Later pieces are not: the first access to a huge page may take milliseconds.
///
/// The first access to any page takes time, and a new segment has dozens of them. In a large arena
/// they are touched before they are needed, one at a time ([`touch_page`](Self::touch_page)).
#[derive(Debug)]
pub(crate) struct Arena<L: Line> {
    pieces: Mutex<Pieces<L>>,
}

#[derive(Debug)]
struct Pieces<L: Line> {
    /// The piece that lines are taken from, and the one after it, if there is one yet.
    current: PieceInUse<L>,
    next: Option<PieceInUse<L>>,
    /// The ones before.
    full: Vec<Piece<L>>,
    /// Lines in all pieces but the next.
    total: usize,
}

/// A piece, lines of which have been handed out.
#[derive(Debug)]
struct PieceInUse<L: Line> {
    piece: Piece<L>,
    used: usize,
    /// How many lines, used or not, are in pages that have been touched.
    touched: usize,
}

impl<L: Line> PieceInUse<L> {
    fn new(lines: usize) -> Option<Self> {
        Some(Self { piece: Piece::new(lines)?, used: 0, touched: 0 })
    }

    fn free(&self) -> usize {
        self.piece.len - self.used
    }

    /// Touches one page of the next `ahead` lines; false if all of them have been touched.
    #[cfg(not(loom))]
    fn touch_page(&mut self, ahead: usize) -> bool {
        let end = self.piece.len.min(self.used + ahead);
        if self.touched >= end {
            return false;
        }
        self.piece.touch(self.touched);
        self.touched += PAGE / size_of::<L>();
        true
    }
}

impl<L: Line> Arena<L> {
    /// An arena whose first piece has room for this many lines; `None` if there is no memory.
    pub(crate) fn new(lines: usize) -> Option<Self> {
        let current = PieceInUse::new(lines)?;
        #[cfg(not(loom))]
        current.piece.make_huge();
        let pieces = Pieces { current, next: None, full: Vec::new(), total: lines };
        Some(Self { pieces: Mutex::new(pieces) })
    }

    /// Empty lines; `None` if there is no memory.
    pub(crate) fn allocate(&self, len: usize) -> Option<&[L]> {
        let mut pieces = lock(&self.pieces);
        if len > pieces.current.free() {
            pieces.begin_next(len)?;
        }
        let current = &mut pieces.current;
        let first = current.used;
        current.used += len;
        current.touched = current.touched.max(current.used);
        // SAFETY: the piece has that many lines; all-zero memory is a valid line; a line is made of
        // atomics only, so shared access is enough for every use; and a piece is neither moved nor
        // freed before the arena is dropped, which the borrow of `self` outlasts.
        Some(unsafe { std::slice::from_raw_parts(current.piece.first.as_ptr().add(first), len) })
    }

    /// Touches a page of the lines that will be allocated next, unless enough of them have been.
    ///
    /// Does nothing while the arena is small, or another thread is using it.
    #[cfg(not(loom))]
    #[cold]
    pub(crate) fn touch_page(&self) {
        let Ok(mut pieces) = self.pieces.try_lock() else { return };
        if pieces.total * size_of::<L>() < MIN_TOUCHED_BYTES {
            return;
        }
        let ahead = AHEAD_BYTES / size_of::<L>();
        if pieces.current.touch_page(ahead) || pieces.current.free() >= ahead {
            return;
        }
        let lines = pieces.next_piece_lines();
        match &mut pieces.next {
            Some(next) => {
                next.touch_page(ahead);
            }
            none => *none = PieceInUse::new(lines),
        }
    }
}

#[cfg(all(test, not(loom)))]
impl<L: Line> Arena<L> {
    /// How many lines that have not been allocated are in pages that have been touched.
    pub(super) fn touched_ahead(&self) -> usize {
        let pieces = lock(&self.pieces);
        [Some(&pieces.current), pieces.next.as_ref()]
            .into_iter()
            .flatten()
            .map(|it| it.touched - it.used)
            .sum()
    }
}

impl<L: Line> Pieces<L> {
    /// Makes a piece with at least `len` lines the current one; `None` if there is no memory.
    fn begin_next(&mut self, len: usize) -> Option<()> {
        let next = match self.next.take() {
            Some(next) if next.free() >= len => next,
            _ => PieceInUse::new(len.max(self.next_piece_lines()))?,
        };
        self.total += next.piece.len;
        let before = std::mem::replace(&mut self.current, next);
        self.full.push(before.piece);
        Some(())
    }

    fn next_piece_lines(&self) -> usize {
        next_piece_bytes(self.total * size_of::<L>()) / size_of::<L>()
    }
}

/// Doubles while that is little, then adds an eighth, in whole huge pages.
fn next_piece_bytes(total_bytes: usize) -> usize {
    if total_bytes < HUGE_PAGE {
        return total_bytes;
    }
    (total_bytes / 8).next_multiple_of(HUGE_PAGE).min(MAX_PIECE_BYTES)
}

const HUGE_PAGE: usize = 2 << 20;
const MAX_PIECE_BYTES: usize = 32 << 20;

/// How much memory is touched before it is needed: a segment of the widest lines, and more.
#[cfg(not(loom))]
const AHEAD_BYTES: usize = 512 << 10;

/// The size of an arena from which on that is little.
#[cfg(not(loom))]
const MIN_TOUCHED_BYTES: usize = 8 << 20;

/// One allocation.
#[derive(Debug)]
struct Piece<L: Line> {
    first: std::ptr::NonNull<L>,
    len: usize,
    #[cfg(not(loom))]
    allocation: (std::ptr::NonNull<u8>, std::alloc::Layout),
}

// SAFETY: a piece owns its lines, and lines are `Send` and `Sync`.
unsafe impl<L: Line> Send for Piece<L> {}

#[cfg(not(loom))]
impl<L: Line> Piece<L> {
    fn new(len: usize) -> Option<Self> {
        use std::alloc::{Layout, alloc_zeroed};

        assert!(len > 0, "a piece has at least one line");
        let bytes = len.checked_mul(size_of::<L>())?;
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { align_of::<L>() };
        // Asking for the alignment of malloc and aligning by hand keeps the zero pages lazy: an
        // over-aligned zeroed allocation is written to.
        let layout = Layout::from_size_align(bytes.checked_add(align)?, MALLOC_ALIGN).ok()?;
        let start = if pages::is_mapped(layout.size()) {
            pages::map(layout.size())?.as_ptr()
        } else {
            // SAFETY: the layout has a size above zero.
            unsafe { alloc_zeroed(layout) }
        };
        let allocation = std::ptr::NonNull::new(start)?;
        let offset = start.align_offset(align);
        // SAFETY: the offset is below `align`, and `align` bytes more than needed were allocated.
        let first = unsafe { allocation.add(offset) };
        Some(Self { first: first.cast(), len, allocation: (allocation, layout) })
    }

    /// Asks for huge pages, and touches them all, so that no decision waits for one.
    fn make_huge(&self) {
        let bytes = self.len * size_of::<L>();
        if bytes < HUGE_PAGE {
            return;
        }
        pages::ask_for_huge_pages(self.first.as_ptr().cast(), bytes / HUGE_PAGE * HUGE_PAGE);
        (0..self.len).step_by(PAGE / size_of::<L>()).for_each(|line| self.touch(line));
    }

    /// Touches the page of a line that no other code has yet.
    fn touch(&self, line: usize) {
        assert!(line < self.len, "the piece has that line");
        // SAFETY: by the assertion it is in the piece, and all-zero memory is a valid line.
        let line = unsafe { self.first.add(line).as_ref() };
        line.header().store(0, super::sync::Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
impl<L: Line> Drop for Piece<L> {
    fn drop(&mut self) {
        let (allocation, layout) = self.allocation;
        if pages::is_mapped(layout.size()) {
            // SAFETY: mapped in `new` with this size; the lines are not used any more.
            unsafe { pages::unmap(allocation, layout.size()) };
            return;
        }
        // SAFETY: allocated in `new` with this layout. Lines of atomics need no drop.
        unsafe { std::alloc::dealloc(allocation.as_ptr(), layout) };
    }
}

/// Loom's atomics cannot be made of zero bytes.
#[cfg(loom)]
impl<L: Line> Piece<L> {
    fn new(len: usize) -> Option<Self> {
        let lines: Box<[L]> = (0..len).map(|_| L::empty()).collect();
        Some(Self { first: std::ptr::NonNull::from(Box::leak(lines)).cast(), len })
    }
}

#[cfg(loom)]
impl<L: Line> Drop for Piece<L> {
    fn drop(&mut self) {
        let lines = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len);
        // SAFETY: leaked in `new` as a box of this length.
        drop(unsafe { Box::from_raw(lines) });
    }
}

#[cfg(not(loom))]
const MALLOC_ALIGN: usize = 16;
pub(super) const PAGE: usize = 4_096;

/// Asks the processor to fetch a line into its cache.
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
