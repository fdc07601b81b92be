//! The rows that are measured in separate processes: memory, and the slowest call.

use crate::contenders::Who;
use crate::measure::Cell;
use crate::options::Options;
use crate::process::{Numbers, measured, number};
use crate::results::{Row, Unit};

/// The numbers of keys at which tidegate's memory is reported, in thousands.
const STEPS: [u32; 12] =
    [1_000, 1_250, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 10_000];

/// The capacity of the scan rows.
const CEILING: u32 = 1_000_000;

/// The contenders whose memory is measured besides tidegate's.
const PEERS: [Who; 3] = [Who::Governor, Who::Quota, Who::MutexMap];

/// A group of rows from the same processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Bytes per key.
    Memory,
    /// The slowest call while growing.
    Worst,
    /// A limiter with a capacity, scanned.
    Scan,
}

impl Group {
    /// All groups that this build can measure.
    pub fn all() -> Vec<Group> {
        let mut groups = vec![Group::Memory, Group::Worst];
        if cfg!(feature = "tidegate") {
            groups.push(Group::Scan);
        }
        groups
    }

    /// The short name, which is the prefix of its rows' names.
    pub fn id(self) -> &'static str {
        match self {
            Group::Memory => "memory",
            Group::Worst => "worst",
            Group::Scan => "scan",
        }
    }

    /// The title.
    pub fn title(self) -> &'static str {
        match self {
            Group::Memory => "bytes per key",
            Group::Worst => "worst single call while growing",
            Group::Scan => "scan of one-time keys with a ceiling",
        }
    }

    /// Measures the group's rows.
    pub fn measure(self, options: &Options) -> Result<Vec<Row>, String> {
        match self {
            Group::Memory => memory(options),
            Group::Worst => worst(options),
            Group::Scan => scan(options),
        }
    }
}

/// The number of keys of a full run.
fn most(options: &Options) -> u32 {
    if options.quick { 2_000_000 } else { 10_000_000 }
}

/// Starts a process that measures `what` over a contender.
fn over(what: &str, who: Who, keys: u32) -> Result<Numbers, String> {
    measured(&[what.into(), who.name().into(), keys.to_string()])
}

/// `1 M`, `1.25 M`.
fn millions(keys: u32) -> String {
    format!("{} M", f64::from(keys) / 1e6)
}

fn memory(options: &Options) -> Result<Vec<Row>, String> {
    let most = most(options);
    let mut measured = Vec::new();
    if cfg!(feature = "tidegate") {
        measured.push((Who::Growing, over("memory", Who::Growing, most)?));
        measured.push((Who::Hinted, over("memory", Who::Hinted, most)?));
    }
    for who in PEERS {
        measured.push((who, over("memory", who, most)?));
    }
    let mut rows = Vec::new();
    for keys in STEPS.into_iter().map(|thousands| thousands * 1_000).filter(|&keys| keys <= most) {
        let ends = keys == 1_000_000 || keys == most;
        let mut cells = Vec::new();
        for (who, numbers) in &measured {
            // A hinted table has its size from the start: it is reported where it is full.
            let shown = match who {
                Who::Growing => true,
                Who::Hinted => keys == most,
                _ => ends,
            };
            if shown {
                cells.push(Cell::single(*who, number(numbers, &format!("at {keys}"))?));
            }
        }
        if !cells.is_empty() {
            let title = format!("resident bytes per string key at {}", millions(keys));
            rows.push(Row { id: format!("memory-{keys}"), title, unit: Unit::Bytes, cells });
        }
    }
    let peak = |(who, numbers): &(Who, Numbers)| Ok(Cell::single(*who, number(numbers, "peak")?));
    let growing = measured.iter().filter(|(who, _)| *who != Who::Hinted);
    rows.push(Row {
        id: "memory-peak".into(),
        title: format!("resident bytes per string key, most from 1 M to {}", millions(most)),
        unit: Unit::Bytes,
        cells: growing.map(peak).collect::<Result<_, String>>()?,
    });
    Ok(rows)
}

/// The slowest call of each contender; of several runs the one whose slowest call was fastest.
fn worst(options: &Options) -> Result<Vec<Row>, String> {
    let most = most(options);
    let mut samples: Vec<(Who, Vec<f64>)> = Vec::new();
    if cfg!(feature = "tidegate") {
        samples.push((Who::Growing, Vec::new()));
    }
    samples.push((Who::Governor, Vec::new()));
    samples.push((Who::Quota, Vec::new()));
    for run in 0..if options.quick { 3 } else { 5 } {
        for (who, samples) in &mut samples {
            if *who == Who::Quota && run > 0 {
                continue;
            }
            samples.push(number(&over("worst", *who, most)?, "worst")? / 1e3);
        }
    }
    let best = |(who, samples): &(Who, Vec<f64>)| {
        let cell = Cell::of_samples(*who, samples);
        Cell { value: cell.low, ..cell }
    };
    Ok(vec![Row {
        id: "worst-growing".into(),
        title: format!("slowest single call, growing from 0 to {} keys", millions(most)),
        unit: Unit::Micros,
        cells: samples.iter().map(best).collect(),
    }])
}

/// A row of the scan, which only tidegate has.
fn scan_row(id: &str, title: &str, unit: Unit, value: f64) -> Row {
    let cells = vec![Cell::single(Who::Growing, value)];
    Row { id: id.into(), title: title.into(), unit, cells }
}

fn scan(options: &Options) -> Result<Vec<Row>, String> {
    const MIB: f64 = 1_048_576.0;
    let most = most(options);
    let ceiling = CEILING.to_string();
    let price = number(&measured(&["price".into(), ceiling.clone()])?, "resident")? / MIB;
    let mut runs = Vec::new();
    for _ in 0..options.rounds() {
        runs.push(measured(&["scan".into(), ceiling.clone(), most.to_string()])?);
    }
    let all = |name: &str| runs.iter().map(|run| number(run, name)).collect::<Result<Vec<_>, _>>();
    let resident = all("resident")?.into_iter().fold(0.0, f64::max) / MIB;
    let exact = all("exact")?.into_iter().fold(f64::INFINITY, f64::min);
    let slowest = all("worst")?.into_iter().fold(f64::INFINITY, f64::min) / 1e3;
    let scanned = format!("scan of {} keys, ceiling of 1 M", millions(most));
    let row =
        |id, what: &str, unit, value| scan_row(id, &format!("{scanned}: {what}"), unit, value);
    Ok(vec![
        row("scan-price", "resident memory of 1 M live keys", Unit::Mebibytes, price),
        row("scan-resident", "resident memory afterwards", Unit::Mebibytes, resident),
        row("scan-growth", "above the price of the ceiling", Unit::Mebibytes, resident - price),
        row("scan-exact", "of 1000 known keys, exact afterwards", Unit::Count, exact),
        row("scan-worst", "slowest single call", Unit::Micros, slowest),
    ])
}
