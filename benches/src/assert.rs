//! The promised numbers of tidegate, and whether a run reached them.

use crate::contenders::Who;
use crate::results::{Results, Row};

/// The condition of a target.
#[derive(Clone, Copy, Debug)]
enum Condition {
    /// `who` is at least `times` as fast as the fastest of `than`.
    Times { who: Who, than: &'static [Who], times: f64 },
    /// The value of `who` is at most this.
    AtMost(Who, f64),
    /// The value of `who` is at least this.
    AtLeast(Who, f64),
}

/// One promised number.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    row: &'static str,
    condition: Condition,
}

/// governor, keyed.
const GOVERNOR: &[Who] = &[Who::Governor];

/// quota, the faster of its two variants in the row.
const QUOTA: &[Who] = &[Who::Quota, Who::QuotaHinted];

/// tidegate's own single call.
const SINGLE: &[Who] = &[Who::Growing];

/// Shorthand for a ratio.
const fn times(row: &'static str, who: Who, than: &'static [Who], times: f64) -> Target {
    Target { row, condition: Condition::Times { who, than, times } }
}

/// Shorthand for an upper bound.
const fn at_most(row: &'static str, who: Who, value: f64) -> Target {
    Target { row, condition: Condition::AtMost(who, value) }
}

/// Every peer with keys that decides exactly: the fastest of them counts.
const PEERS: &[Who] =
    &[Who::Governor, Who::Quota, Who::QuotaHinted, Who::Throttlecrab, Who::MutexMap];

/// Ahead of every peer.
const fn ahead(row: &'static str) -> Target {
    times(row, Who::Growing, PEERS, 1.0)
}

/// All promises.
pub const TARGETS: &[Target] = &[
    times("hot-1t", Who::Growing, GOVERNOR, 2.3),
    times("hot-1t", Who::Growing, QUOTA, 1.0),
    times("hot-1t", Who::Hinted, GOVERNOR, 2.5),
    times("hot-2t", Who::Growing, GOVERNOR, 2.3),
    times("hot-2t", Who::Growing, QUOTA, 0.9),
    times("hot-2t", Who::Hinted, GOVERNOR, 2.7),
    ahead("denied-1t"),
    times("denied-2t", Who::Growing, GOVERNOR, 7.0),
    times("denied-2t", Who::Growing, QUOTA, 1.0),
    ahead("uniform-1k-1t"),
    ahead("uniform-1k-2t"),
    times("uniform-1m-1t", Who::Growing, GOVERNOR, 4.0),
    times("uniform-1m-1t", Who::Growing, QUOTA, 2.2),
    times("uniform-1m-1t", Who::Hinted, GOVERNOR, 5.0),
    times("uniform-1m-1t", Who::Hinted, QUOTA, 2.7),
    times("uniform-1m-2t", Who::Growing, GOVERNOR, 4.0),
    times("uniform-1m-2t", Who::Growing, QUOTA, 2.2),
    times("uniform-1m-2t", Who::Hinted, GOVERNOR, 5.0),
    times("uniform-1m-2t", Who::Hinted, QUOTA, 2.7),
    ahead("zipf-1m-1t"),
    ahead("zipf-1m-2t"),
    ahead("uniform-10m-1t"),
    times("fenced-1m", Who::Growing, GOVERNOR, 2.3),
    times("fenced-1m", Who::Hinted, GOVERNOR, 2.8),
    times("batch-1m", Who::Batch, SINGLE, 2.0),
    ahead("u64-hot"),
    ahead("u64-hot-2t"),
    ahead("u64-1k"),
    ahead("u64-1k-2t"),
    ahead("u64-1m"),
    ahead("u64-1m-2t"),
    ahead("ip-hot"),
    ahead("ip-1m"),
    times("new", Who::Growing, GOVERNOR, 3.0),
    times("new", Who::Growing, QUOTA, 1.8),
    times("new", Who::Hinted, GOVERNOR, 4.0),
    at_most("memory-peak", Who::Growing, 45.0),
    at_most("memory-10000000", Who::Growing, 40.0),
    at_most("scan-growth", Who::Growing, 64.0),
    Target { row: "scan-exact", condition: Condition::AtLeast(Who::Growing, 1_000.0) },
    times("worst-growing", Who::Growing, GOVERNOR, 200.0),
    // Microseconds.
    at_most("worst-growing", Who::Growing, 500.0),
];

/// The outcome of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The number was reached.
    Reached,
    /// It was not.
    Missed,
    /// The row was not part of the run.
    NotMeasured,
}

/// A checked target.
#[derive(Debug)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// The target and the measured value, as text.
    pub text: String,
}

impl Target {
    /// Compares the target with the measured value.
    pub fn check(&self, results: &Results) -> Verdict {
        let row = results.row(self.row);
        let title = row.map_or(self.row, |row| row.title.as_str());
        let (value, reached, wanted) = match self.condition {
            Condition::Times { who, than, times } => {
                let ratio = row.and_then(|row| slowest_ratio(row, who, than));
                let name = match than {
                    [_, _, _, ..] => "every peer",
                    than => than.first().map_or("", |than| than.name()),
                };
                let wanted = format!("{} at least {times} x {name}", who.name());
                (ratio, ratio.is_some_and(|ratio| ratio >= times), wanted)
            }
            Condition::AtMost(who, most) => {
                let value = row.and_then(|row| row.value(who));
                let wanted = format!("{} at most {most}", who.name());
                (value, value.is_some_and(|value| value <= most), wanted)
            }
            Condition::AtLeast(who, least) => {
                let value = row.and_then(|row| row.value(who));
                let wanted = format!("{} at least {least}", who.name());
                (value, value.is_some_and(|value| value >= least), wanted)
            }
        };
        let outcome = match value {
            None => Outcome::NotMeasured,
            Some(_) if reached => Outcome::Reached,
            Some(_) => Outcome::Missed,
        };
        let measured = value.map_or("not measured".into(), |value| format!("{value:.2}"));
        Verdict { outcome, text: format!("{title}: {wanted}: {measured}") }
    }
}

/// How many times faster `who` is than the fastest of `than`.
fn slowest_ratio(row: &Row, who: Who, than: &[Who]) -> Option<f64> {
    than.iter().filter_map(|&than| row.ratio(who, than)).min_by(f64::total_cmp)
}

/// Checks all targets.
pub fn check(results: &Results) -> Vec<Verdict> {
    TARGETS.iter().map(|target| target.check(results)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Cell;
    use crate::results::Unit;

    fn results(id: &str, cells: &[(Who, f64)]) -> Results {
        let cells = cells.iter().map(|&(who, value)| Cell::single(who, value)).collect();
        let row = Row { id: id.into(), title: "a row".into(), unit: Unit::Nanos, cells };
        Results { rows: vec![row] }
    }

    #[test]
    fn a_ratio_is_reached_or_missed() {
        let target = times("r", Who::Growing, GOVERNOR, 2.0);
        let run = |mine| results("r", &[(Who::Growing, mine), (Who::Governor, 100.0)]);
        assert_eq!(target.check(&run(50.0)).outcome, Outcome::Reached);
        assert_eq!(target.check(&run(51.0)).outcome, Outcome::Missed);
        assert_eq!(target.check(&Results::default()).outcome, Outcome::NotMeasured);
    }

    #[test]
    fn the_fastest_rival_counts() {
        let run =
            results("r", &[(Who::Growing, 10.0), (Who::Quota, 30.0), (Who::QuotaHinted, 15.0)]);
        let target = |factor| times("r", Who::Growing, QUOTA, factor).check(&run).outcome;
        assert_eq!(target(1.5), Outcome::Reached);
        assert_eq!(target(1.6), Outcome::Missed);
    }

    #[test]
    fn bounds_hold_at_the_bound() {
        let run = results("memory-peak", &[(Who::Growing, 45.0)]);
        assert_eq!(
            at_most("memory-peak", Who::Growing, 45.0).check(&run).outcome,
            Outcome::Reached
        );
        assert_eq!(at_most("memory-peak", Who::Growing, 44.9).check(&run).outcome, Outcome::Missed);
    }
}
