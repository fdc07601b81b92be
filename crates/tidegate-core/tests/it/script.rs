//! Scripts of time: what a limit decides at which moment, as a readable list.

use std::time::Duration;

use tidegate_core::{Algorithm, Decision, Timestamp, Wait};

/// What is done at one moment of a script, and what has to come of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    Check { cost: u64, expect: Expect },
    Refund { units: u64, given: u64 },
    Hold { units: u64, expect: Expect },
    Commit { units: u64, actual: u64, charged: u64 },
    Cancel { units: u64 },
    Left(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    Allow,
    Deny(Wait),
}

/// A cost of 1 is allowed.
pub(crate) fn allow() -> Line {
    allow_of(1)
}

pub(crate) fn allow_of(cost: u64) -> Line {
    Line::Check { cost, expect: Expect::Allow }
}

/// A cost of 1 is denied, for exactly this long.
pub(crate) fn deny_for_ms(millis: u64) -> Line {
    deny_of(1, Wait::After(Duration::from_millis(millis)))
}

pub(crate) fn deny_for_ns(nanos: u64) -> Line {
    deny_of(1, Wait::After(Duration::from_nanos(nanos)))
}

pub(crate) fn deny_of(cost: u64, wait: Wait) -> Line {
    Line::Check { cost, expect: Expect::Deny(wait) }
}

/// A refund of `units` gives this much back.
pub(crate) fn refund(units: u64, given: u64) -> Line {
    Line::Refund { units, given }
}

pub(crate) fn hold(units: u64) -> Line {
    Line::Hold { units, expect: Expect::Allow }
}

pub(crate) fn commit(units: u64, actual: u64, charged: u64) -> Line {
    Line::Commit { units, actual, charged }
}

pub(crate) fn cancel(units: u64) -> Line {
    Line::Cancel { units }
}

/// So much is left for the next caller.
pub(crate) fn left(units: u64) -> Line {
    Line::Left(units)
}

/// One key under one limit.
#[derive(Debug)]
pub(crate) struct Script<L: Algorithm> {
    limit: L,
    state: L::State,
}

pub(crate) fn script<L: Algorithm>(limit: L) -> Script<L> {
    Script { limit, state: limit.fresh() }
}

impl<L: Algorithm> Script<L> {
    #[track_caller]
    pub(crate) fn at_ms(self, millis: u64, line: Line) -> Self {
        self.at_ns(millis * 1_000_000, line)
    }

    #[track_caller]
    pub(crate) fn at_ns(mut self, nanos: u64, line: Line) -> Self {
        let (limit, now) = (self.limit, Timestamp::from_nanos(nanos));
        let state = &mut self.state;
        match line {
            Line::Check { cost, expect } => {
                let looked = limit.peek(state, cost, now);
                let decision = limit.check(state, cost, now);
                assert_eq!(looked.is_allowed(), decision.is_allowed(), "peek at {now}");
                meets(&decision, expect);
            }
            Line::Hold { units, expect } => meets(&limit.hold(state, units, now), expect),
            Line::Refund { units, given } => {
                assert_eq!(limit.refund(state, units, now), given, "refunded at {now}");
            }
            Line::Commit { units, actual, charged } => {
                assert_eq!(limit.commit(state, units, actual, now), charged, "charged at {now}");
            }
            Line::Cancel { units } => limit.cancel(state, units, now),
            Line::Left(units) => {
                assert_eq!(limit.peek(state, 0, now).remaining(), units, "left at {now}");
            }
        }
        self
    }

    /// The same step many times.
    #[track_caller]
    pub(crate) fn times(mut self, times: u64, millis: u64, line: Line) -> Self {
        for _ in 0..times {
            self = self.at_ms(millis, line);
        }
        self
    }

    /// From here on under another limit.
    pub(crate) fn edit_at_ms(self, millis: u64, limit: L) -> Self {
        let limit = limit.succeeding(&self.limit);
        let state = limit.carry_over(&self.limit, &self.state, Timestamp::from_millis(millis));
        Self { limit, state }
    }

    /// How many single units are admitted, one try every `step_ns` in `[from_ns, to_ns)`.
    pub(crate) fn admitted(&mut self, from_ns: u64, to_ns: u64, step_ns: u64) -> u64 {
        let mut admitted = 0;
        let mut now = from_ns;
        while now < to_ns {
            let decision = self.limit.check(&mut self.state, 1, Timestamp::from_nanos(now));
            admitted += u64::from(decision.is_allowed());
            now += step_ns;
        }
        admitted
    }

    /// How many single units are admitted at one moment before the first denial.
    pub(crate) fn burst_at_ms(&mut self, millis: u64) -> u64 {
        let now = Timestamp::from_millis(millis);
        let is_allowed = |_: &u64| self.limit.check(&mut self.state, 1, now).is_allowed();
        (0..10_000_000).take_while(is_allowed).count() as u64
    }
}

#[track_caller]
fn meets(decision: &Decision, expect: Expect) {
    let wait = match expect {
        Expect::Allow => None,
        Expect::Deny(wait) => Some(wait),
    };
    assert_eq!(decision.retry_after(), wait, "decided at {}", decision.decided_at());
}
