//! The timed loops, and the statistics over their rounds.

use crate::contenders::{Contender, Limit, Who};
use crate::workload::KeyList;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Barrier;
use std::time::Instant;

/// Makes the decisions of a range of calls; the loop is compiled for each contender.
pub trait Driver<L: KeyList>: Sync {
    /// Returns how many were allowed.
    fn drive(&self, keys: &L, calls: Range<usize>) -> u64;
}

/// One call after the other, without a fence.
pub struct OneByOne<C>(pub C);

impl<L: KeyList, C: Contender<L::Key>> Driver<L> for OneByOne<C> {
    fn drive(&self, keys: &L, calls: Range<usize>) -> u64 {
        let mut allowed = 0;
        for index in calls {
            allowed += u64::from(self.0.allow(keys.at(index)));
        }
        black_box(allowed)
    }
}

/// One call after the other, each finished with all its loads before the next one starts.
pub struct Fenced<C>(pub C);

impl<L: KeyList, C: Contender<L::Key>> Driver<L> for Fenced<C> {
    fn drive(&self, keys: &L, calls: Range<usize>) -> u64 {
        let mut allowed = 0;
        for index in calls {
            allowed += u64::from(black_box(self.0.allow(keys.at(index))));
            full_fence();
        }
        black_box(allowed)
    }
}

/// Orders everything before it: loads, stores, and instructions that execute early.
#[inline]
fn full_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both are SSE2 instructions, which every x86_64 processor has.
    unsafe {
        core::arch::x86_64::_mm_mfence();
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// The result of a timed pass over all calls.
pub struct Pass {
    /// Nanoseconds per decision and thread: wall time x threads / decisions.
    pub nanos: f64,
    /// How many calls were allowed.
    pub allowed: u64,
}

/// Makes all calls once, split over `threads` that start together.
pub fn pass<L: KeyList, D: Driver<L>>(driver: &D, keys: &L, threads: usize) -> Pass {
    if threads == 1 {
        let start = Instant::now();
        let allowed = driver.drive(keys, 0..keys.len());
        let nanos = start.elapsed().as_nanos() as f64 / keys.len() as f64;
        return Pass { nanos, allowed };
    }
    let share = keys.len() / threads;
    let barrier = Barrier::new(threads);
    let timed = |thread: usize| {
        barrier.wait();
        let start = Instant::now();
        let allowed = driver.drive(keys, thread * share..(thread + 1) * share);
        (start, Instant::now(), allowed)
    };
    let spans: Vec<(Instant, Instant, u64)> = std::thread::scope(|scope| {
        let timed = &timed;
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || timed(thread))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let start = spans.iter().map(|span| span.0).min();
    let end = spans.iter().map(|span| span.1).max();
    let wall = end.zip(start).map_or(0, |(end, start)| (end - start).as_nanos());
    Pass { nanos: wall as f64 / share as f64, allowed: spans.iter().map(|span| span.2).sum() }
}

/// One contender of a row, ready to run a round.
pub struct Entry<'a> {
    who: Who,
    round: Box<dyn FnMut() -> Result<f64, String> + 'a>,
}

impl<'a> Entry<'a> {
    /// A contender and the function that returns the nanoseconds of one of its rounds.
    pub fn new(who: Who, round: impl FnMut() -> Result<f64, String> + 'a) -> Self {
        Self { who, round: Box::new(round) }
    }
}

/// The value of one contender in one row.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The contender.
    pub who: Who,
    /// The median over the rounds.
    pub value: f64,
    /// The smallest round.
    pub low: f64,
    /// The largest round.
    pub high: f64,
}

impl Cell {
    /// A value that was not sampled over rounds.
    pub fn single(who: Who, value: f64) -> Self {
        Self { who, value, low: value, high: value }
    }

    /// The median of samples with their extremes.
    pub fn of_samples(who: Who, samples: &[f64]) -> Self {
        let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let high = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { who, value: median(samples), low, high }
    }
}

/// Runs `rounds` rounds over all contenders in turn and returns each one's median.
///
/// With `warm_up` a first round is run and discarded.
pub fn interleave(
    mut entries: Vec<Entry<'_>>,
    rounds: usize,
    warm_up: bool,
) -> Result<Vec<Cell>, String> {
    if warm_up {
        for entry in &mut entries {
            (entry.round)()?;
        }
    }
    let mut samples = vec![Vec::with_capacity(rounds); entries.len()];
    for _ in 0..rounds {
        for (entry, samples) in entries.iter_mut().zip(&mut samples) {
            samples.push((entry.round)()?);
        }
    }
    let cells = entries.iter().zip(&samples);
    Ok(cells.map(|(entry, samples)| Cell::of_samples(entry.who, samples)).collect())
}

/// Fails if a contender did not decide as the row expects.
pub fn verify(who: Who, limit: Limit, allowed: u64, calls: usize) -> Result<(), String> {
    let expected = if limit.denies() { 0 } else { calls as u64 };
    if allowed == expected {
        return Ok(());
    }
    let name = who.name();
    Err(format!("{name} allowed {allowed} of {calls} calls where {expected} were expected"))
}

/// The middle value, or the mean of the two middle ones; NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_odd_even_and_no_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_cell_keeps_the_extremes() {
        let cell = Cell::of_samples(Who::Nothing, &[5.0, 1.0, 9.0]);
        assert_eq!((cell.low, cell.value, cell.high), (1.0, 5.0, 9.0));
    }

    #[test]
    fn decisions_are_checked_against_the_limit() {
        assert!(verify(Who::Quota, Limit::HOT, 10, 10).is_ok());
        assert!(verify(Who::Quota, Limit::HOT, 9, 10).is_err());
        assert!(verify(Who::Quota, Limit::DRAINED, 0, 10).is_ok());
        assert!(verify(Who::Quota, Limit::DRAINED, 1, 10).is_err());
    }

    #[test]
    fn rounds_go_over_the_contenders_in_turn() {
        let order = std::cell::RefCell::new(Vec::new());
        let entry = |who, value| {
            let order = &order;
            Entry::new(who, move || {
                order.borrow_mut().push(who);
                Ok(value)
            })
        };
        let entries = vec![entry(Who::Governor, 1.0), entry(Who::Quota, 2.0)];
        let cells = interleave(entries, 2, false).unwrap();
        assert_eq!(order.take(), [Who::Governor, Who::Quota, Who::Governor, Who::Quota]);
        assert_eq!(cells[1].value, 2.0);
    }
}
