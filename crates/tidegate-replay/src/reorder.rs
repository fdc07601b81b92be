//! Puts lines that are a little out of order into order.
//!
//! The rule: let *newest* be the largest time of the lines before a line. A line that is earlier than
//! *newest* by more than the window is late, and its time becomes *newest*. Lines are released in the
//! order of their times, equal ones as they came. A line is held back until a line has come that is
//! later by the window, because until then an earlier one may come.
//!
//! If that takes more memory than allowed, the earliest lines are released before. A line that comes
//! after that, and is earlier than one that was released, is late, too.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::record::{Draft, Page, Position, Record};

#[derive(Debug)]
pub(crate) struct Reorder {
    window_ns: u64,
    most_bytes: usize,
    bytes: usize,
    newest_ns: u64,
    /// The time of the last line that was released.
    released_ns: u64,
    /// The number of the next line.
    next: u64,
    /// Lines that are not earlier than the one in front of them.
    in_order: InOrder,
    /// All others.
    stragglers: BinaryHeap<Straggler>,
    late: u64,
    early: u64,
    /// The line that was released last.
    draft: Draft,
}

/// A queue of lines in order, with their numbers.
#[derive(Debug, Default)]
struct InOrder {
    pages: VecDeque<NumberedPage>,
    spare: Option<NumberedPage>,
    last_ns: u64,
}

#[derive(Debug, Default)]
struct NumberedPage {
    page: Page,
    numbers: Vec<u64>,
    /// The index of the next one.
    next: usize,
}

#[derive(Debug)]
struct Straggler {
    time_ns: u64,
    number: u64,
    position: Position,
    text: Box<str>,
    ends: Box<[u32]>,
}

impl Reorder {
    pub(crate) fn new(window_ns: u64, most_bytes: usize) -> Self {
        Self {
            window_ns,
            most_bytes,
            bytes: 0,
            newest_ns: 0,
            released_ns: 0,
            next: 0,
            in_order: InOrder::default(),
            stragglers: BinaryHeap::new(),
            late: 0,
            early: 0,
            draft: Draft::default(),
        }
    }

    /// How many lines were late.
    pub(crate) const fn late(&self) -> u64 {
        self.late
    }

    /// How many lines were released before the window was over, for want of memory.
    pub(crate) const fn released_early(&self) -> u64 {
        self.early
    }

    /// Adds a line, and releases those that can be.
    #[inline]
    pub(crate) fn push(&mut self, mut record: Record<'_>, then: &mut impl FnMut(Record<'_>)) {
        let is_late = self.newest_ns.saturating_sub(record.time_ns) > self.window_ns
            || record.time_ns < self.released_ns;
        if is_late {
            self.late += 1;
            record.time_ns = self.newest_ns;
        }
        self.newest_ns = self.newest_ns.max(record.time_ns);
        let number = self.next;
        self.next += 1;
        self.bytes += record.bytes();
        if !self.in_order.push(&record, number) {
            self.stragglers.push(Straggler {
                time_ns: record.time_ns,
                number,
                position: record.position,
                text: record.text().into(),
                ends: record.ends().into(),
            });
        }
        // A line of exactly this time may still come; it is released after those that are here.
        if let Some(until_ns) = self.newest_ns.checked_sub(self.window_ns) {
            while self.first_ns().is_some_and(|first_ns| first_ns <= until_ns) {
                self.release(then);
            }
        }
        while self.bytes > self.most_bytes {
            self.early += 1;
            self.release(then);
        }
    }

    /// Releases all lines.
    pub(crate) fn finish(&mut self, then: &mut impl FnMut(Record<'_>)) {
        while self.first_ns().is_some() {
            self.release(then);
        }
    }

    #[inline]
    fn first_ns(&self) -> Option<u64> {
        let in_order = self.in_order.first().map(|(time_ns, _)| time_ns);
        match self.stragglers.peek() {
            Some(first) => Some(in_order.map_or(first.time_ns, |it| it.min(first.time_ns))),
            None => in_order,
        }
    }

    #[inline]
    fn release(&mut self, then: &mut impl FnMut(Record<'_>)) {
        let straggler = self.stragglers.peek().map(|it| (it.time_ns, it.number));
        let is_straggler = match (straggler, self.in_order.first()) {
            (Some(straggler), Some(in_order)) => straggler < in_order,
            (straggler, _) => straggler.is_some(),
        };
        if is_straggler {
            let Some(first) = self.stragglers.pop() else { return };
            self.draft.set(&first.text, &first.ends);
            let record = self.draft.record(first.time_ns, first.position);
            self.bytes = self.bytes.saturating_sub(record.bytes());
            self.released_ns = record.time_ns;
            return then(record);
        }
        let Some(record) = self.in_order.get() else {
            // Nothing is left, so nothing is in memory.
            self.bytes = 0;
            return;
        };
        self.bytes = self.bytes.saturating_sub(record.bytes());
        self.released_ns = record.time_ns;
        then(record);
        self.in_order.pop();
    }
}

impl InOrder {
    /// Adds a line if it is in order.
    #[inline]
    fn push(&mut self, record: &Record<'_>, number: u64) -> bool {
        if self.pages.is_empty() {
            self.last_ns = 0;
        }
        if record.time_ns < self.last_ns {
            return false;
        }
        self.last_ns = record.time_ns;
        if self.pages.back().is_none_or(|it| it.page.is_full()) {
            self.pages.push_back(self.spare.take().unwrap_or_default());
        }
        if let Some(last) = self.pages.back_mut() {
            last.page.push(record);
            last.numbers.push(number);
        }
        true
    }

    #[inline]
    fn first(&self) -> Option<(u64, u64)> {
        let first = self.pages.front()?;
        Some((first.page.time_ns(first.next)?, *first.numbers.get(first.next)?))
    }

    #[inline]
    fn get(&self) -> Option<Record<'_>> {
        let first = self.pages.front()?;
        first.page.get(first.next)
    }

    #[inline]
    fn pop(&mut self) {
        let Some(first) = self.pages.front_mut() else { return };
        first.next += 1;
        if first.next == first.page.len()
            && let Some(mut page) = self.pages.pop_front()
        {
            page.page.clear();
            page.numbers.clear();
            page.next = 0;
            self.spare = Some(page);
        }
    }
}

impl Ord for Straggler {
    /// The earliest is the greatest: a heap returns that first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time_ns, other.number).cmp(&(self.time_ns, self.number))
    }
}

impl PartialOrd for Straggler {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Straggler {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Straggler {}

#[cfg(test)]
mod tests;
