//! The lines of one key: its home, and the lines that it may have overflowed to.

use std::ops::Range;

use super::directory::PROBE;
use super::line::{Line, Locked, find, glance, is_full, read_header};

/// The lines where a key can be: its home, which stays locked, and one further line at a time.
///
/// An insertion holds the lock of the key's home, so no key is inserted twice, and a move of keys
/// to another segment holds all locks, so no key moves away meanwhile. A further line is always
/// locked after the home before it, so there is no deadlock.
#[derive(Debug)]
pub struct ProbeChain<'a, L: Line> {
    lines: &'a [L; PROBE],
    home: Locked<'a, L>,
    further: Option<(usize, Locked<'a, L>)>,
}

/// A slot in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub slot: usize,
}

impl<'a, L: Line> ProbeChain<'a, L> {
    /// Locks the home line.
    pub(crate) fn lock(lines: &'a [L; PROBE]) -> Self {
        Self { lines, home: Locked::new(&lines[0]), further: None }
    }

    /// One of the lines, locked.
    pub fn line(&mut self, line: usize) -> &mut Locked<'a, L> {
        if line == 0 {
            return &mut self.home;
        }
        let held = self.further.take().filter(|(held, _)| *held == line);
        let held = held.unwrap_or_else(|| (line, Locked::new(&self.lines[line])));
        &mut self.further.insert(held).1
    }

    /// One of the lines, locked, with the others unlocked.
    pub fn take_line(mut self, line: usize) -> Locked<'a, L> {
        self.line(line);
        match self.further {
            Some((held, further)) if held == line => further,
            _ => self.home,
        }
    }

    /// The position of the key.
    ///
    /// Further lines are searched without their locks: with its home locked, a key may leave its
    /// slot, but it cannot come to another.
    pub fn find(&mut self, fingerprint: u64) -> Option<Position> {
        if let Some(slot) = self.home.find(fingerprint) {
            return Some(Position { line: 0, slot });
        }
        let mut is_overflowed = self.home.header.is_overflowed();
        for line in 1..PROBE {
            if !is_overflowed {
                return None;
            }
            if find(&self.lines[line], fingerprint).is_some() {
                if let Some(slot) = self.line(line).find(fingerprint) {
                    return Some(Position { line, slot });
                }
                // It has just left. Reading a header waits for its lock, so this line must not stay
                // locked.
                self.further = None;
            }
            is_overflowed = read_header(&self.lines[line]).is_overflowed();
        }
        None
    }

    /// The first slot that `slot_in` finds in one of these lines. The lines before it are marked as
    /// overflowed, for the key that will be inserted there.
    pub(crate) fn first_slot(
        &mut self,
        lines: Range<usize>,
        slot_in: impl Fn(&Locked<'_, L>) -> Option<usize>,
    ) -> Option<Position> {
        for line in lines {
            let locked = self.line(line);
            if let Some(slot) = slot_in(locked) {
                return Some(Position { line, slot });
            }
            locked.header.set_overflowed(true);
        }
        None
    }

    /// The first free slot beyond the home line, as [`first_slot`](Self::first_slot).
    ///
    /// Lines that are full and marked are passed without their locks: with the home locked, marks
    /// stay.
    pub(crate) fn first_free_slot(&mut self) -> Option<Position> {
        let has_room = |line: &L| !is_full(line) || !glance(line).is_overflowed();
        let first = (1..PROBE).find(|&line| has_room(&self.lines[line]))?;
        self.first_slot(first..PROBE, |line| line.free_slot())
    }
}
