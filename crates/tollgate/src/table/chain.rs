//! The locked lines of one key: its home, and the lines that it may have overflowed to.

use super::directory::PROBE;
use super::line::{Line, Locked, SLOTS};

/// The lines where a key can be, locked in ascending order as far as they were needed.
///
/// The home line is always locked: whoever inserts a key holds its home, so nobody can insert it
/// twice. Lines of other chains that overlap are locked in the same order, so nobody waits for
/// ever.
pub(crate) struct Chain<'a, L: Line> {
    lines: &'a [L; PROBE],
    locked: [Option<Locked<'a, L>>; PROBE],
    len: usize,
}

/// A slot in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) slot: usize,
}

impl<'a, L: Line> Chain<'a, L> {
    /// Locks the home line.
    pub(crate) fn lock(lines: &'a [L; PROBE]) -> Self {
        let mut locked = [const { None }; PROBE];
        locked[0] = Some(Locked::new(&lines[0]));
        Self { lines, locked, len: 1 }
    }

    /// Locks one more line; false when there is none.
    pub(crate) fn lock_next(&mut self) -> bool {
        if self.len == PROBE {
            return false;
        }
        self.locked[self.len] = Some(Locked::new(&self.lines[self.len]));
        self.len += 1;
        true
    }

    /// Where the key is, locking lines as long as they say that it may be further on.
    pub(crate) fn find(&mut self, fingerprint: u64) -> Option<Position> {
        for line in 0..PROBE {
            if line == self.len {
                self.lock_next();
            }
            if let Some(slot) = self.line(line).find(fingerprint) {
                return Some(Position { line, slot });
            }
            if !self.line(line).header.is_overflowed() {
                return None;
            }
        }
        None
    }

    /// The first slot that `accepts` takes, locking further lines until one is found.
    pub(crate) fn first_slot(
        &mut self,
        accepts: impl Fn(&Locked<'_, L>, usize) -> bool,
    ) -> Option<Position> {
        for line in 0..PROBE {
            if line == self.len {
                self.lock_next();
            }
            if let Some(slot) = (0..SLOTS).find(|&slot| accepts(self.line(line), slot)) {
                return Some(Position { line, slot });
            }
        }
        None
    }

    /// Puts a key into a free slot, and marks the lines before it as overflowed.
    pub(crate) fn place(&mut self, at: Position, fingerprint: u64) {
        for line in 0..at.line {
            self.line(line).header.set_overflowed(true);
        }
        self.line(at.line).set_fingerprint(at.slot, fingerprint);
    }

    /// One of the locked lines.
    pub(crate) fn line(&mut self, line: usize) -> &mut Locked<'a, L> {
        self.locked[line].as_mut().expect("lines below `len` are locked")
    }
}
