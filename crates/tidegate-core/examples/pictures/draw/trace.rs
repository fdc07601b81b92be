//! Traffic, and the decisions on it.

use std::ops::{Range, RangeInclusive};

use tidegate_core::{Algorithm, Decision, Period, Quota, Timestamp};

/// When requests arrive, in thousandths of the axis' unit.
pub(crate) struct Script {
    pub(crate) unit: &'static str,
    ns_per_milli: u64,
    length_milli: u64,
    arrivals_milli: Vec<u64>,
}

/// The decisions of a limit on a script.
pub(crate) struct Trace {
    pub(crate) unit: &'static str,
    pub(crate) length_milli: u64,
    pub(crate) arrivals: Vec<Arrival>,
    /// How many units remained, and from when on.
    pub(crate) levels: Vec<Level>,
    /// Where windows begin and end.
    pub(crate) edges_milli: Vec<u64>,
}

pub(crate) struct Arrival {
    pub(crate) at_milli: u64,
    pub(crate) is_admitted: bool,
}

pub(crate) struct Level {
    pub(crate) since_milli: u64,
    pub(crate) left: u64,
}

impl Script {
    pub(crate) const fn seconds(length: u64) -> Self {
        Self::new("s", 1_000_000, length)
    }

    pub(crate) const fn hours(length: u64) -> Self {
        Self::new("h", 3_600_000_000, length)
    }

    const fn new(unit: &'static str, ns_per_milli: u64, length: u64) -> Self {
        Self { unit, ns_per_milli, length_milli: length * 1_000, arrivals_milli: Vec::new() }
    }

    pub(crate) fn at(self, at_milli: u64) -> Self {
        self.every(1, at_milli..=at_milli)
    }

    pub(crate) fn every(mut self, step_milli: usize, range: RangeInclusive<u64>) -> Self {
        self.arrivals_milli.extend(range.step_by(step_milli));
        self.arrivals_milli.sort_unstable();
        self
    }
}

impl Trace {
    /// Runs a script, with one cost for all. `window` returns where a state's window begins and
    /// ends.
    pub(crate) fn of<A: Algorithm>(
        script: &Script,
        limit: &A,
        cost: u64,
        window: impl Fn(&A::State) -> Option<[u64; 2]>,
    ) -> Self {
        let mut state = limit.fresh();
        let mut edges_ns = Vec::new();
        let mut trace = Self::record(script, cost, |cost, now| {
            let decision = limit.check(&mut state, cost, now);
            edges_ns.extend(window(&state).into_iter().flatten());
            decision
        });
        edges_ns.sort_unstable();
        edges_ns.dedup();
        trace.edges_milli = edges_ns.iter().map(|ns| ns / script.ns_per_milli).collect();
        trace
    }

    /// Runs a script under a quota whose periods have one length.
    pub(crate) fn of_quota(script: &Script, limit: &Quota, per_milli: u64) -> Self {
        let per_ns = per_milli * script.ns_per_milli;
        let period = |now: Timestamp| {
            let index = now.as_nanos() / per_ns;
            Period { index, ends: Some(Timestamp::from_nanos((index + 1) * per_ns)) }
        };
        let mut state = limit.fresh(period(Timestamp::ZERO));
        let trace =
            Self::record(script, 1, |cost, now| limit.check(&mut state, cost, period(now), now));
        trace.with_grid(per_milli)
    }

    /// The same, with an edge at every multiple.
    pub(crate) fn with_grid(mut self, step_milli: u64) -> Self {
        self.edges_milli =
            (1..).map(|n| n * step_milli).take_while(|&n| n < self.length_milli).collect();
        self
    }

    /// Checks every arrival with its cost, and peeks with a cost of 0 all the time.
    fn record(
        script: &Script,
        cost: u64,
        mut check: impl FnMut(u64, Timestamp) -> Decision,
    ) -> Self {
        let mut arrivals = Vec::new();
        let mut levels: Vec<Level> = Vec::new();
        let mut coming = script.arrivals_milli.iter().peekable();
        for at_milli in 0..script.length_milli {
            let now = Timestamp::from_nanos(at_milli * script.ns_per_milli);
            while coming.next_if_eq(&&at_milli).is_some() {
                arrivals.push(Arrival { at_milli, is_admitted: check(cost, now).is_allowed() });
            }
            let left = check(0, now).remaining();
            if levels.last().is_none_or(|level| level.left != left) {
                levels.push(Level { since_milli: at_milli, left });
            }
        }
        Self {
            unit: script.unit,
            length_milli: script.length_milli,
            arrivals,
            levels,
            edges_milli: Vec::new(),
        }
    }

    pub(crate) fn admitted(&self) -> usize {
        self.admitted_in(0..u64::MAX)
    }

    pub(crate) fn admitted_in(&self, range: Range<u64>) -> usize {
        let counts = |arrival: &&Arrival| arrival.is_admitted && range.contains(&arrival.at_milli);
        self.arrivals.iter().filter(counts).count()
    }

    pub(crate) fn left_at(&self, at_milli: u64) -> u64 {
        let began = self.levels.iter().rev().find(|level| level.since_milli <= at_milli);
        began.map_or(0, |level| level.left)
    }

    /// Where the first of the stretches with the most admissions begins, and how many they are.
    pub(crate) fn busiest(&self, span_milli: u64) -> (u64, usize) {
        let starts = self.arrivals.iter().filter(|arrival| arrival.is_admitted);
        let counts = starts.map(|arrival| {
            let from = arrival.at_milli;
            (from, self.admitted_in(from..from + span_milli))
        });
        counts.rev().max_by_key(|&(_, count)| count).unwrap_or((0, 0))
    }
}
