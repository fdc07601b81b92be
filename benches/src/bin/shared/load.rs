//! A closed loop: so many decisions in flight, each followed by the next one.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    Time(Duration),
    Calls(usize),
}

/// How many decisions are in flight, over how many keys.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub in_flight: usize,
    pub keys: usize,
}

/// What a load has measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub per_second: f64,
    /// How long each decision took, in nanoseconds, ascending.
    pub took_ns: Vec<u32>,
}

impl Measured {
    pub fn p50_us(&self) -> f64 {
        percentile(&self.took_ns, 0.5)
    }

    pub fn p99_us(&self) -> f64 {
        percentile(&self.took_ns, 0.99)
    }
}

/// A part of ascending times, in microseconds.
pub fn percentile(took_ns: &[u32], part: f64) -> f64 {
    let index = (took_ns.len() as f64 * part) as usize;
    took_ns.get(index).or(took_ns.last()).map_or(0.0, |ns| f64::from(*ns) / 1e3)
}

pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// A runtime on this thread.
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Makes decisions about keys, by their number; all have to be allowed.
pub fn run(
    runtime: &Runtime,
    shape: Shape,
    amount: Amount,
    decide: impl AsyncFn(usize) -> bool + 'static,
) -> Measured {
    let decide = Rc::new(decide);
    let calls = match amount {
        Amount::Time(_) => usize::MAX,
        Amount::Calls(calls) => calls,
    };
    let left = Rc::new(Cell::new(calls));
    let local = LocalSet::new();
    let began = Instant::now();
    let end = match amount {
        Amount::Time(length) => Some(began + length),
        Amount::Calls(_) => None,
    };
    let one = |number: usize| {
        let (decide, left) = (Rc::clone(&decide), Rc::clone(&left));
        async move {
            let mut took_ns = Vec::new();
            // Each begins elsewhere, so that they do not follow each other.
            let mut key = number * shape.keys / shape.in_flight;
            while left.get() > 0 {
                left.set(left.get() - 1);
                key = (key + 1) % shape.keys;
                let began = Instant::now();
                assert!(decide(key).await, "a request was denied, or met an outage");
                let now = Instant::now();
                took_ns.push(u32::try_from((now - began).as_nanos()).unwrap_or(u32::MAX));
                if end.is_some_and(|end| now >= end) {
                    break;
                }
            }
            took_ns
        }
    };
    let mut took_ns = local.block_on(runtime, async {
        let tasks: Vec<_> =
            (0..shape.in_flight).map(|number| tokio::task::spawn_local(one(number))).collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("a load does not panic"));
        }
        all
    });
    let per_second = took_ns.len() as f64 / began.elapsed().as_secs_f64();
    took_ns.sort_unstable();
    Measured { per_second, took_ns }
}
