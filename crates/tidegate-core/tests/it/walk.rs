//! Walking a state through steps, and what was admitted on the way.

use tidegate_core::Timestamp;

use crate::model::{Summary, summary};
use crate::strategies::{Op, Step, Subject};

/// A key under one limit, at its own time.
#[derive(Clone, Debug)]
pub(crate) struct Walk<S: Subject> {
    pub(crate) limit: S,
    pub(crate) state: S::State,
    pub(crate) now: u64,
    /// (time, units charged or, below zero, refunded), in order. A hold charges nothing.
    pub(crate) admissions: Vec<(u64, i128)>,
}

/// What a step reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Decided(Summary),
    Moved(u64),
    Nothing,
}

impl<S: Subject> Walk<S> {
    pub(crate) fn new(limit: S) -> Self {
        Self { limit, state: limit.fresh(), now: limit.scales()[0], admissions: Vec::new() }
    }

    pub(crate) fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    /// The walk after all of `steps`. Edits are left out.
    pub(crate) fn through(mut self, steps: &[Step]) -> Self {
        for step in steps {
            self.step(step);
        }
        self
    }

    pub(crate) fn step(&mut self, step: &Step) -> Report {
        self.now = step.time.from(self.now, self.limit.scales());
        let (now, capacity) = (self.at(), self.limit.capacity());
        let (limit, state) = (self.limit, &mut self.state);
        let (report, admitted) = match step.op {
            Op::Check(amount) => {
                let cost = amount.of(capacity);
                let decision = limit.check(state, cost, now);
                let charged = if decision.is_allowed() { cost.into() } else { 0 };
                (Report::Decided(summary(&decision)), charged)
            }
            Op::CheckPostpaid(amount) => {
                let (cost, before) = (amount.of(capacity), limit.used(state, now));
                let decision = limit.check_postpaid(state, cost, now);
                let charged = i128::from(limit.used(state, now)) - i128::from(before);
                (Report::Decided(summary(&decision)), charged)
            }
            Op::Peek(amount) => {
                (Report::Decided(summary(&limit.peek(state, amount.of(capacity), now))), 0)
            }
            Op::Hold(amount) => {
                let units = amount.of(capacity);
                let decision = limit.hold(state, units, now);
                if decision.is_allowed() && units > 0 {
                    self.admissions.push((self.now, 0));
                }
                (Report::Decided(summary(&decision)), 0)
            }
            Op::Refund(amount) => {
                let given = limit.refund(state, amount.of(capacity), now);
                (Report::Moved(given), -i128::from(given))
            }
            Op::Commit(units, actual) => {
                let charged = limit.commit(state, units.of(capacity), actual.of(capacity), now);
                (Report::Moved(charged), charged.into())
            }
            Op::Cancel(amount) => {
                limit.cancel(state, amount.of(capacity), now);
                (Report::Nothing, 0)
            }
            Op::Edit(_) => (Report::Nothing, 0),
        };
        if admitted != 0 {
            self.admissions.push((self.now, admitted));
        }
        report
    }

    /// The same key under a new limit.
    pub(crate) fn edit(&self, limit: S) -> Self {
        let limit = limit.succeeding(&self.limit);
        let state = limit.carry_over(&self.limit, &self.state, self.at());
        Self { limit, state, ..self.clone() }
    }

    /// What is left for the next caller.
    pub(crate) fn remaining(&self) -> u64 {
        self.limit.peek(&self.state, 0, self.at()).remaining()
    }
}

/// The times of a walk as its limit must count them: a step back stays at the latest one
/// that mattered, an admission or a hold.
pub(crate) fn without_steps_back(admissions: &[(u64, i128)]) -> Vec<(u64, i128)> {
    let mut latest = 0;
    let advance = |&(at, units): &(u64, i128)| {
        latest = latest.max(at);
        (latest, units)
    };
    admissions.iter().map(advance).collect()
}
