//! The rows that time decisions.

use crate::contenders::nothing::Nothing;
use crate::contenders::{Limit, Who};
use crate::field::{Field, PlainKey, Plan};
use crate::measure::Cell;
use crate::options::Options;
use crate::results::{Row, Unit};
use crate::workload::{self, Hot, KeyList, Strings, Texts, Values};
use std::net::IpAddr;

/// A million keys.
const MILLION: u32 = 1_000_000;

/// The workload of a row.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// One string key, allowed or denied.
    Hot { denied: bool, threads: usize },
    /// String keys, each call with any of them.
    Uniform { keys: u32, threads: usize },
    /// String keys, some far more often than others.
    Zipf { keys: u32, threads: usize },
    /// String keys with a fence after each decision.
    Fenced { keys: u32 },
    /// String keys, sixteen per call.
    #[cfg_attr(not(feature = "tidegate"), allow(dead_code))]
    Batch { keys: u32 },
    /// Plain numbers as keys; one of them, or uniform.
    Numbers { keys: u32, threads: usize },
    /// IP addresses as keys; one of them, or uniform.
    Addresses { keys: u32 },
    /// New string keys, once each; with `hint` every contender gets their number.
    New { keys: u32, hint: bool },
    /// Walking the `&String` keys that governor gets, without a limiter.
    WalkStrings { keys: u32 },
}

/// A row to measure.
#[derive(Clone, Debug)]
pub struct Spec {
    /// A short name.
    pub id: String,
    /// The title.
    pub title: String,
    kind: Kind,
}

/// The rows with more threads than two, for machines with more cores.
fn threaded(threads: usize) -> Vec<Spec> {
    let spec = |id: &str, title: &str, kind| Spec {
        id: format!("{id}-{threads}t"),
        title: format!("{title}, {threads} threads"),
        kind,
    };
    vec![
        spec("hot", "one hot key, allowed", Kind::Hot { denied: false, threads }),
        spec("denied", "one hot key, denied", Kind::Hot { denied: true, threads }),
        spec("uniform-1k", "1 k keys, uniform", Kind::Uniform { keys: 1_000, threads }),
        spec("uniform-1m", "1 M keys, uniform", Kind::Uniform { keys: MILLION, threads }),
        spec("zipf-1m", "1 M keys, Zipf", Kind::Zipf { keys: MILLION, threads }),
        spec("u64-hot", "one hot u64 key", Kind::Numbers { keys: 1, threads }),
        spec("u64-1m", "1 M u64 keys, uniform", Kind::Numbers { keys: MILLION, threads }),
    ]
}

/// All timing rows, in order.
pub fn specs(options: &Options) -> Vec<Spec> {
    let mut specs = usual_specs(options.quick);
    specs.extend(options.threads.into_iter().flat_map(threaded));
    specs
}

fn usual_specs(quick: bool) -> Vec<Spec> {
    let spec = |id: &str, title: &str, kind| Spec { id: id.into(), title: title.into(), kind };
    let hot = |denied, threads| Kind::Hot { denied, threads };
    let uniform = |keys, threads| Kind::Uniform { keys, threads };
    let new = if quick { MILLION } else { 10 * MILLION };
    let mut specs = vec![
        spec("hot-1t", "one hot key, allowed, 1 thread", hot(false, 1)),
        spec("hot-2t", "one hot key, allowed, 2 threads", hot(false, 2)),
        spec("denied-1t", "one hot key, denied, 1 thread", hot(true, 1)),
        spec("denied-2t", "one hot key, denied, 2 threads", hot(true, 2)),
        spec("uniform-1k-1t", "1 k keys, uniform, 1 thread", uniform(1_000, 1)),
        spec("uniform-1k-2t", "1 k keys, uniform, 2 threads", uniform(1_000, 2)),
        spec("uniform-1m-1t", "1 M keys, uniform, 1 thread", uniform(MILLION, 1)),
        spec("uniform-1m-2t", "1 M keys, uniform, 2 threads", uniform(MILLION, 2)),
        spec("zipf-1m-1t", "1 M keys, Zipf, 1 thread", Kind::Zipf { keys: MILLION, threads: 1 }),
        spec("zipf-1m-2t", "1 M keys, Zipf, 2 threads", Kind::Zipf { keys: MILLION, threads: 2 }),
    ];
    if !quick {
        specs.push(spec(
            "uniform-10m-1t",
            "10 M keys, uniform, 1 thread",
            uniform(10 * MILLION, 1),
        ));
    }
    specs.push(spec(
        "fenced-1m",
        "1 M keys, uniform, a fence after each decision",
        Kind::Fenced { keys: MILLION },
    ));
    #[cfg(feature = "tidegate")]
    specs.push(spec(
        "batch-1m",
        "1 M keys, uniform, check_many of 16",
        Kind::Batch { keys: MILLION },
    ));
    let number = |keys, threads| Kind::Numbers { keys, threads };
    let address = |keys| Kind::Addresses { keys };
    let millions = new / MILLION;
    specs.extend([
        spec("u64-hot", "one hot u64 key, 1 thread", number(1, 1)),
        spec("u64-hot-2t", "one hot u64 key, 2 threads", number(1, 2)),
        spec("u64-1k", "1 k u64 keys, uniform, 1 thread", number(1_000, 1)),
        spec("u64-1k-2t", "1 k u64 keys, uniform, 2 threads", number(1_000, 2)),
        spec("u64-1m", "1 M u64 keys, uniform, 1 thread", number(MILLION, 1)),
        spec("u64-1m-2t", "1 M u64 keys, uniform, 2 threads", number(MILLION, 2)),
        spec("ip-hot", "one hot IpAddr key, 1 thread", address(1)),
        spec("ip-1m", "1 M IpAddr keys, uniform, 1 thread", address(MILLION)),
        spec(
            "new",
            &format!("{millions} M new keys, once each"),
            Kind::New { keys: new, hint: false },
        ),
        spec(
            "new-hint",
            &format!("{millions} M new keys, once each, all with a hint"),
            Kind::New { keys: new, hint: true },
        ),
        spec(
            "walk-strings",
            "walking the keys as &String, no limiter",
            Kind::WalkStrings { keys: MILLION },
        ),
    ]);
    specs
}

/// Measures a row.
pub fn measure(spec: &Spec, options: &Options) -> Result<Row, String> {
    let bench = Bench { options };
    let cells = match spec.kind {
        Kind::Hot { denied, threads } => bench.hot(denied, threads)?,
        Kind::Uniform { keys, threads } => {
            let plan = bench.plan(keys, threads);
            // Far more keys than any cache holds: fewer calls show as much.
            let calls = if keys > MILLION { 1_000_000 } else { bench.keyed_calls() };
            bench.texts(plan, &workload::uniform(keys, calls))?
        }
        Kind::Zipf { keys, threads } => {
            let plan = Plan { limit: Limit::BUSY, ..bench.plan(keys, threads) };
            bench.texts(plan, &workload::zipf(keys, bench.keyed_calls()))?
        }
        Kind::Fenced { keys } => {
            let plan = Plan { fence: true, ..bench.plan(keys, 1) };
            bench.texts(plan, &workload::uniform(keys, bench.keyed_calls()))?
        }
        Kind::Batch { keys } => bench.batch(keys)?,
        Kind::Numbers { keys, threads } => bench.values::<u64>(keys, threads)?,
        Kind::Addresses { keys } => bench.values::<IpAddr>(keys, 1)?,
        Kind::New { keys, hint } => bench.new_keys(keys, hint)?,
        Kind::WalkStrings { keys } => bench.walk_strings(keys)?,
    };
    Ok(Row { id: spec.id.clone(), title: spec.title.clone(), unit: Unit::Nanos, cells })
}

/// The sizes of a run.
struct Bench<'a> {
    options: &'a Options,
}

impl Bench<'_> {
    /// Calls per round with a single key: short rounds, three times as many.
    fn hot_calls(&self) -> usize {
        if self.options.quick { 500_000 } else { 1_000_000 }
    }

    /// Calls per round with many keys.
    fn keyed_calls(&self) -> usize {
        if self.options.quick { 1_000_000 } else { 2_000_000 }
    }

    /// The usual plan for this many keys.
    fn plan(&self, keys: u32, threads: usize) -> Plan {
        let rounds = self.options.rounds();
        let (limit, rounds) = match keys {
            1 => (Limit::HOT, 3 * rounds),
            2..100_000 => (Limit::BUSY, rounds),
            _ => (Limit::LIVE, rounds),
        };
        Plan { limit, keys, threads, fence: false, rounds }
    }

    fn hot(&self, denied: bool, threads: usize) -> Result<Vec<Cell>, String> {
        let limit = if denied { Limit::DRAINED } else { Limit::HOT };
        let texts = Hot::<Texts>::new(self.hot_calls());
        let strings = Hot::<Strings>::new(self.hot_calls());
        let mut field = Field::new(Plan { limit, ..self.plan(1, threads) });
        field.strings(&texts, &strings)?;
        field.unkeyed(&texts)?;
        field.run(true)
    }

    fn texts(&self, plan: Plan, numbers: &[u32]) -> Result<Vec<Cell>, String> {
        let texts = Texts::of(numbers);
        let strings = Strings::of(numbers);
        let mut field = Field::new(plan);
        field.strings(&texts, &strings)?;
        field.run(true)
    }

    #[cfg(feature = "tidegate")]
    fn batch(&self, keys: u32) -> Result<Vec<Cell>, String> {
        let texts = Texts::of(&workload::uniform(keys, self.keyed_calls()));
        let mut field = Field::new(self.plan(keys, 1));
        field.batches(&texts)?;
        field.run(true)
    }

    #[cfg(not(feature = "tidegate"))]
    fn batch(&self, _keys: u32) -> Result<Vec<Cell>, String> {
        Err("check_many is tidegate's; build with the feature".into())
    }

    fn values<K: PlainKey>(&self, keys: u32, threads: usize) -> Result<Vec<Cell>, String> {
        let plan = self.plan(keys, threads);
        if keys == 1 {
            return self.valued(plan, &Hot::<Values<K>>::new(self.hot_calls()));
        }
        self.valued(plan, &Values::<K>::of(&workload::uniform(keys, self.keyed_calls())))
    }

    fn valued<L>(&self, plan: Plan, calls: &L) -> Result<Vec<Cell>, String>
    where
        L: KeyList,
        L::Key: PlainKey,
    {
        let mut field = Field::new(plan);
        field.values(calls)?;
        field.run(true)
    }

    fn new_keys(&self, keys: u32, hint: bool) -> Result<Vec<Cell>, String> {
        let numbers: Vec<u32> = (0..keys).collect();
        let texts = Texts::of(&numbers);
        let strings = Strings::of(&numbers);
        let plan = self.plan(keys, 1);
        let rounds = if hint { plan.rounds.min(3) } else { plan.rounds };
        let mut field = Field::new(Plan { rounds, ..plan });
        field.newcomers(if hint { keys as usize } else { 0 }, &texts, &strings);
        field.run(false)
    }

    fn walk_strings(&self, keys: u32) -> Result<Vec<Cell>, String> {
        let strings = Strings::of(&workload::uniform(keys, self.keyed_calls()));
        let mut field = Field::new(Plan { keys: 0, ..self.plan(keys, 1) });
        field.steady::<Nothing, _>(Who::Nothing, 0, &strings)?;
        field.run(true)
    }
}
