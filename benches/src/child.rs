//! The child process: one measurement, then it prints its numbers.

use crate::contenders::governor::Governor;
use crate::contenders::mutex_map::MutexMap;
use crate::contenders::quota::Quota;
#[cfg(feature = "tidegate")]
use crate::contenders::tidegate::Tidegate;
use crate::contenders::{Contender, Limit, Who};
use crate::process::resident;
use crate::workload::{KeyList, Strings, Texts};
use std::time::{Duration, Instant};

/// The number of keys between two readings of the resident memory while a table grows.
const SAMPLE_EVERY: u32 = 50_000;

/// The count from which the peak of bytes per key is searched.
const PEAK_FROM: u32 = 1_000_000;

/// Runs the measurement that the arguments name.
pub fn run(args: &[String]) -> Result<(), String> {
    let parts: Vec<&str> = args.iter().map(String::as_str).collect();
    let count = |text: &str| text.parse::<u32>().map_err(|_| format!("not a count: {text:?}"));
    match parts[..] {
        ["memory", who, keys] => grown(named(who)?, Look::Memory, count(keys)?),
        ["worst", who, keys] => grown(named(who)?, Look::Worst, count(keys)?),
        #[cfg(feature = "tidegate")]
        ["price", ceiling] => scan::price(count(ceiling)?),
        #[cfg(feature = "tidegate")]
        ["scan", ceiling, keys] => scan::scan(count(ceiling)?, count(keys)?),
        _ => Err(format!("not a measurement: {args:?}")),
    }
}

/// The contender with this heading.
fn named(name: &str) -> Result<Who, String> {
    Who::from_name(name).ok_or_else(|| format!("not a contender: {name:?}"))
}

/// What is measured while keys are added.
#[derive(Clone, Copy)]
enum Look {
    /// The resident memory.
    Memory,
    /// The time of each call.
    Worst,
}

/// Adds `keys` new keys to a contender.
fn grown(who: Who, look: Look, keys: u32) -> Result<(), String> {
    match who {
        #[cfg(feature = "tidegate")]
        Who::Growing => looked::<Tidegate<String>, Texts>(look, keys, 0),
        #[cfg(feature = "tidegate")]
        Who::Hinted => looked::<Tidegate<String>, Texts>(look, keys, keys as usize),
        Who::Governor => looked::<Governor<String>, Strings>(look, keys, 0),
        Who::Quota => looked::<Quota<String>, Texts>(look, keys, 0),
        Who::MutexMap => looked::<MutexMap<String>, Texts>(look, keys, 0),
        _ => Err(format!("{} is not measured this way", who.name())),
    }
}

fn looked<C: Contender<L::Key>, L: KeyList>(
    look: Look,
    keys: u32,
    hint: usize,
) -> Result<(), String> {
    match look {
        Look::Memory => memory::<C, L>(keys, hint),
        Look::Worst => worst::<C, L>(keys, hint),
    }
}

/// Prints the bytes per key along the way, and their maximum from a million keys on.
fn memory<C: Contender<L::Key>, L: KeyList>(keys: u32, hint: usize) -> Result<(), String> {
    let before = resident()?;
    let contender = C::build(Limit::LIVE, hint)?;
    let (mut known, mut peak) = (0_u32, 0.0_f64);
    let mut failure = None;
    L::visit(keys, |key| {
        contender.allow(key);
        known += 1;
        if known.is_multiple_of(SAMPLE_EVERY) {
            match resident() {
                Ok(now) => {
                    let each = now.saturating_sub(before) as f64 / f64::from(known);
                    println!("at {known} {each}");
                    if known >= PEAK_FROM {
                        peak = peak.max(each);
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
    });
    println!("peak {peak}");
    failure.map_or(Ok(()), Err)
}

/// Prints the nanoseconds of the slowest call while a contender learns `keys` keys.
fn worst<C: Contender<L::Key>, L: KeyList>(keys: u32, hint: usize) -> Result<(), String> {
    let contender = C::build(Limit::LIVE, hint)?;
    let mut worst = Duration::ZERO;
    L::visit(keys, |key| worst = worst.max(timed(|| contender.allow(key)).1));
    println!("worst {}", worst.as_nanos());
    Ok(())
}

/// A result and the time it took.
#[inline]
fn timed(call: impl FnOnce() -> bool) -> (bool, Duration) {
    let start = Instant::now();
    let result = call();
    (result, start.elapsed())
}

/// A limiter with a capacity, and far more keys than it may hold.
#[cfg(feature = "tidegate")]
mod scan {
    use super::{Duration, KeyList, Limit, Texts, resident, timed};
    use crate::contenders::Contender;
    use crate::contenders::tidegate::Tidegate;

    /// Keys that are known before the scan.
    const KNOWN: u32 = 1_000;

    /// How much of its budget a known key spends before the scan.
    fn spent(number: u32) -> u32 {
        1 + number % (Limit::BUDGET.burst - 1)
    }

    /// Prints the memory of a limiter filled with exactly as many live keys as it may hold.
    pub(super) fn price(ceiling: u32) -> Result<(), String> {
        let before = resident()?;
        let limiter = Tidegate::with_ceiling(Limit::BUDGET, ceiling as usize)?;
        Texts::visit(ceiling, |key| {
            limiter.allow(key);
        });
        println!("resident {}", resident()?.saturating_sub(before));
        Ok(())
    }

    /// Prints its memory after `keys` one-time keys, its slowest call, and how many of the
    /// previously known keys have exactly the same budget left.
    pub(super) fn scan(ceiling: u32, keys: u32) -> Result<(), String> {
        let known: Vec<String> = (0..KNOWN).map(|number| format!("known{number:07}")).collect();
        let before = resident()?;
        let limiter = Tidegate::with_ceiling(Limit::BUDGET, ceiling as usize)?;
        for (key, number) in known.iter().zip(0..) {
            (0..spent(number)).for_each(|_| {
                limiter.allow(key.as_str());
            });
        }
        let mut worst = Duration::ZERO;
        Texts::visit(keys, |key| worst = worst.max(timed(|| limiter.allow(key)).1));
        println!("resident {}", resident()?.saturating_sub(before));
        println!("worst {}", worst.as_nanos());
        let exact = known.iter().zip(0..).filter(|&(key, number)| {
            let left = (0..Limit::BUDGET.burst * 2).filter(|_| limiter.allow(key.as_str())).count();
            left == (Limit::BUDGET.burst - spent(number)) as usize
        });
        println!("exact {}", exact.count());
        println!("known {KNOWN}");
        Ok(())
    }
}
