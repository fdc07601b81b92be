//! Interpolation by the time stamp counter.
//!
//! From an *anchor* (a time, and the counter at that time) the clock runs on at a measured rate for
//! a limited *span* of the counter. A reader that finds the counter outside of the span, beyond it
//! or before the anchor, takes the system's time instead and sets the next anchor, no earlier than
//! the end of the span. So time never runs backwards, and a counter that jumps (sleep, migration)
//! is noticed by the next reader.
//!
//! Every thread has its own copy of the anchor, valid as long as the number of the anchor in force is
//! the one that it was copied under. So a reading takes one load of shared memory, from a line that
//! changes once per second, and that load orders it: a thread that has learnt of a time by a later
//! anchor from another thread sees that anchor's number or a later one.

#![allow(unsafe_code, reason = "reads the time stamp counter")]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tidegate_core::Timestamp;

/// How many anchors there have been: the number of the one in force.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// What is written when an anchor is due.
struct Latest {
    anchor: Anchor,
    /// The sample that the next rate is measured from.
    sample: Option<Sample>,
}

/// Its lock orders changes of [`NUMBER`].
static LATEST: Mutex<Latest> = Mutex::new(Latest { anchor: Anchor::NONE, sample: None });

/// An anchor and its number, as one thread has copied them.
struct Copied {
    number: Cell<u64>,
    anchor: Cell<Anchor>,
}

thread_local! {
    // The first anchor holds for no time at all, so the first reading sets or copies another.
    static COPIED: Copied =
        const { Copied { number: Cell::new(0), anchor: Cell::new(Anchor::NONE) } };
}

/// Simultaneous readings of the system's clock and the counter.
#[derive(Clone, Copy)]
struct Sample {
    nanos: u64,
    ticks: u64,
}

impl Sample {
    /// Reads both clocks, several times, and takes the closest readings.
    fn take(system_ns: impl Fn() -> u64) -> Self {
        let attempt = || {
            let before = read_counter();
            let nanos = system_ns();
            let gap = read_counter().saturating_sub(before);
            (gap, Self { nanos, ticks: before + gap / 2 })
        };
        let (mut best_gap, mut best) = attempt();
        for _ in 0..3 {
            let (gap, sample) = attempt();
            if gap < best_gap {
                (best_gap, best) = (gap, sample);
            }
        }
        best
    }
}

/// From where, at which rate and for how long the clock is interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    ticks: u64,
    nanos: u64,
    /// Nanoseconds per tick, times 2^32.
    rate: u64,
    /// For how many ticks it holds; 0 before the first calibration.
    span_ticks: u64,
}

impl Anchor {
    const NONE: Self = Self { ticks: 0, nanos: 0, rate: 0, span_ticks: 0 };

    /// The time when the counter stands at `ticks`, if that is within the span.
    #[inline(always)]
    fn at(&self, ticks: u64) -> Option<u64> {
        // A counter before the anchor wraps to a number beyond every span.
        let passed = ticks.wrapping_sub(self.ticks);
        (passed < self.span_ticks).then(|| self.nanos + self.nanos_in(passed))
    }

    /// The earliest time that the next anchor may have.
    fn end(&self) -> u64 {
        self.nanos + self.nanos_in(self.span_ticks)
    }

    /// A span is at most some seconds, so this does not overflow.
    #[inline(always)]
    fn nanos_in(&self, ticks: u64) -> u64 {
        (ticks * self.rate) >> 32
    }

    /// The next anchor, from two samples: `None` when they are too close to measure a rate.
    fn next(&self, from: Sample, to: Sample) -> Option<Self> {
        let (ns, ticks) = (to.nanos.saturating_sub(from.nanos), to.ticks.checked_sub(from.ticks)?);
        if ns < MIN_SAMPLE_NS || ticks == 0 {
            return None;
        }
        let rate = u64::try_from((u128::from(ns) << 32) / u128::from(ticks)).ok()?;
        // No processor counts slower than 100 MHz or faster than 100 GHz, and none changes its
        // pace: a rate unlike the one before means that the counter ran on during a sleep.
        let is_steady = self.rate == 0 || rate.abs_diff(self.rate) < self.rate / 1_000;
        if !(MIN_RATE..=MAX_RATE).contains(&rate) || !is_steady {
            return None;
        }
        let nanos = self.end().max(to.nanos);
        // Times within the span are not compared with the end of all clocks.
        if nanos > Timestamp::MAX.as_nanos() - MAX_SPAN_NS {
            return None;
        }
        let span_ns = ns.saturating_mul(10).min(MAX_SPAN_NS);
        let span_ticks = u64::try_from((u128::from(span_ns) << 32) / u128::from(rate)).ok()?;
        // If this clock is ahead of the system's, it runs slower during the span.
        let ahead_ns = (nanos - to.nanos).min(span_ns / 2);
        let rate = u64::try_from((u128::from(span_ns - ahead_ns) << 32) / u128::from(span_ticks));
        Some(Self { ticks: to.ticks, nanos, rate: rate.ok()?, span_ticks })
    }
}

/// The time by the counter, while the anchor holds.
#[inline(always)]
pub(super) fn interpolated() -> Option<Timestamp> {
    COPIED.with(|copied| {
        if NUMBER.load(Ordering::Relaxed) != copied.number.get() {
            return None;
        }
        // The counter first: then the numbers of the anchor are read where they are used.
        let ticks = read_counter();
        copied.anchor.get().at(ticks).map(Timestamp::from_valid_nanos)
    })
}

/// The system's time, never before what [`interpolated`] has shown, and a new anchor if possible.
pub(super) fn anchor(system_ns: impl Fn() -> u64) -> Timestamp {
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let nanos = latest.read(Sample::take(system_ns));
    // Under the lock, so that they belong together.
    COPIED.with(|copied| {
        copied.number.set(NUMBER.load(Ordering::Relaxed));
        copied.anchor.set(latest.anchor);
    });
    Timestamp::from_nanos(nanos)
}

impl Latest {
    /// The time of a sample, after setting the next anchor if one is due.
    fn read(&mut self, sample: Sample) -> u64 {
        let anchor = self.anchor;
        // Another thread may have set an anchor while this one waited.
        if let Some(nanos) = anchor.at(sample.ticks) {
            return nanos;
        }
        // A counter just before the anchor is another core's that lags by a few ticks.
        if anchor.ticks.wrapping_sub(sample.ticks) < MAX_LAG_TICKS {
            return anchor.nanos;
        }
        let from = *self.sample.get_or_insert(sample);
        if let Some(next) = anchor.next(from, sample) {
            self.set(next, sample);
            return next.nanos;
        }
        let nanos = anchor.end().max(sample.nanos);
        let passed_ns = sample.nanos.saturating_sub(from.nanos);
        if sample.ticks < from.ticks || passed_ns >= MIN_SAMPLE_NS {
            // The counter has jumped: measure again, on the system's clock until then.
            self.set(Anchor { ticks: sample.ticks, nanos, ..Anchor::NONE }, sample);
        }
        nanos
    }

    fn set(&mut self, anchor: Anchor, sample: Sample) {
        *self = Self { anchor, sample: Some(sample) };
        NUMBER.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether the counter runs at a constant rate on all cores, according to the processor and to
/// the kernel.
pub(super) fn is_trusted() -> bool {
    static TRUSTED: OnceLock<bool> = OnceLock::new();
    *TRUSTED.get_or_init(|| {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        is_invariant() && std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
    })
}

#[allow(unused_unsafe, reason = "the function is safe in newer compilers only")]
fn is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0 }
}

#[inline(always)]
fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

const MIN_SAMPLE_NS: u64 = 10_000_000;
const MAX_SPAN_NS: u64 = 1_000_000_000;
const MAX_LAG_TICKS: u64 = 1_000_000;
const MIN_RATE: u64 = (1 << 32) / 100;
const MAX_RATE: u64 = (1 << 32) * 10;

#[cfg(test)]
mod tests;
