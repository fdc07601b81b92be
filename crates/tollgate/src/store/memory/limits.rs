//! The limits that states count under, by number, with what became of them.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::Timestamp;

use crate::cycle::{CycleClock, Times};
use crate::policy::Effective;
use crate::store::{Adoption, Charge};
use crate::terms::{Moment, NO_PERIOD, State, Terms};

/// Every limit that some state may count under.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    known: HashMap<u32, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    family: u64,
    terms: Terms,
    cycle: Option<Arc<CycleClock>>,
    /// When it came into force.
    since: Times,
    /// When it goes out of force by itself.
    until: Option<Timestamp>,
    successor: Option<Successor>,
    /// Whether its rule is gone, so that nobody asks for its states any more.
    is_removed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Successor {
    tag: u32,
    at: Times,
    effective: Effective,
    period: u64,
}

/// A limit that comes into force.
#[derive(Clone, Debug)]
pub(crate) struct NewLimit {
    pub(crate) tag: u32,
    pub(crate) family: u64,
    pub(crate) terms: Terms,
    pub(crate) cycle: Option<Arc<CycleClock>>,
    /// When it goes out of force by itself.
    pub(crate) until: Option<Timestamp>,
}

/// A limit that goes out of force, and the one that follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Succession {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) effective: Effective,
    /// The period in which the edit was made.
    pub(crate) period: u64,
}

/// A state, with the limit that it counts under from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) tag: u32,
    pub(crate) terms: Terms,
    pub(crate) state: State,
}

/// A limit from an earlier life.
#[derive(Clone, Copy, Debug)]
pub struct Restored {
    pub(crate) tag: u32,
    pub(crate) family: u64,
    pub(crate) terms: Terms,
}

impl Limits {
    /// What has to be known to understand the states later.
    pub(crate) fn restorable(&self) -> Vec<Restored> {
        let known = self.known.iter();
        known.map(|(tag, it)| Restored { tag: *tag, family: it.family, terms: it.terms }).collect()
    }

    /// Knows limits from an earlier life.
    pub(crate) fn restore(&mut self, limits: Vec<Restored>) {
        let zero = Times { now: Timestamp::ZERO, wall: Timestamp::ZERO };
        for Restored { tag, family, terms } in limits {
            self.known.insert(
                tag,
                Known {
                    family,
                    terms,
                    cycle: None,
                    since: zero,
                    until: None,
                    successor: None,
                    is_removed: false,
                },
            );
        }
    }

    /// Takes new limits and says what follows the old ones, from `at` on.
    pub(crate) fn adopt(&mut self, adoption: &Adoption, at: Times) {
        for limit in &adoption.limits {
            self.known.entry(limit.tag).or_insert_with(|| Known {
                family: limit.family,
                terms: limit.terms,
                cycle: limit.cycle.clone(),
                since: at,
                until: limit.until,
                successor: None,
                is_removed: false,
            });
        }
        for succession in &adoption.successions {
            if let Some(known) = self.known.get_mut(&succession.from) {
                let Succession { to: tag, effective, period, .. } = *succession;
                known.successor.get_or_insert(Successor { tag, at, effective, period });
            }
        }
        for tag in &adoption.removed {
            if let Some(known) = self.known.get_mut(tag) {
                known.is_removed = true;
            }
        }
    }

    /// Whether the rule of a limit is gone.
    pub(crate) fn is_removed(&self, tag: u32) -> bool {
        self.known.get(&tag).is_some_and(|known| known.is_removed)
    }

    /// How many limits are known that are no longer in force.
    pub(crate) fn superseded(&self) -> usize {
        self.known.values().filter(|known| known.successor.is_some()).count()
    }

    /// Forgets limits that nobody is counted under any more.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.known.retain(|tag, known| known.successor.is_none() || keep(*tag));
    }

    /// A state as it stands now, under the limit that followed the one it was counted under.
    ///
    /// Each edit takes place at the time at which it was made, so that nothing is refilled at a rate
    /// that was not in force.
    ///
    /// `period` is the number of the period that a quota is in, if anybody knows.
    pub(crate) fn current(
        &self,
        mut carried: Carried,
        now: Timestamp,
        period: Option<u64>,
    ) -> Carried {
        while let Some(known) = self.known.get(&carried.tag)
            && let Some(successor) = known.successor
            && let Some(next) = self.known.get(&successor.tag)
        {
            let mut edited = known.moment(successor.at);
            if successor.effective == Effective::Next {
                // The period of the edit is the last one of the old limit.
                edited.period.index = successor.period;
                let is_last = period.is_none_or(|period| period <= successor.period);
                if carried.is_window_open(now) || (known.cycle.is_some() && is_last) {
                    break;
                }
                edited.period.index = edited.period.index.saturating_add(1);
            }
            carried = Carried {
                tag: successor.tag,
                terms: next.terms,
                state: next.terms.carry_over(&known.terms, &carried.state, edited),
            };
        }
        carried
    }

    /// A state as the charge finds it: under the charge's own limit, or under an older one that is
    /// still good for the open window.
    pub(crate) fn carry(
        &self,
        tag: u32,
        state: State,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Carried {
        let Some(known) = self.known.get(&tag) else {
            // Only a state that came from elsewhere has a number that nobody knows.
            return Carried { tag: charge.tag, terms: *charge.terms, state };
        };
        let carried = self.current(
            Carried { tag, terms: known.terms, state },
            now,
            Some(charge.period.index),
        );
        if carried.tag == charge.tag || carried.is_waiting_for_next(self) {
            return carried;
        }
        // Both are in force: the key has come under an override, or an override has ended.
        let from = self.known.get(&carried.tag).unwrap_or(known);
        let ended = from.until.filter(|&until| until <= now);
        let since = self.known.get(&charge.tag).map_or(from.since, |to| to.since);
        let at = Times { now: since.now.max(ended.unwrap_or(Timestamp::ZERO)), ..since };
        let state = charge.terms.carry_over(&carried.terms, &carried.state, from.moment(at));
        Carried { tag: charge.tag, terms: *charge.terms, state }
    }

    /// The terms of a limit, and the period that it, or the one that followed it, is in.
    pub(crate) fn get(&self, tag: u32, times: Times) -> Option<(Terms, Moment)> {
        let mut known = self.known.get(&tag)?;
        let terms = known.terms;
        while let Some(next) = known.successor.and_then(|next| self.known.get(&next.tag)) {
            known = next;
        }
        Some((terms, known.moment(times)))
    }

    /// Whether a state counts for nothing any more.
    pub(crate) fn is_idle(&self, carried: Carried, since: Timestamp) -> bool {
        let current = self.current(carried, since, None);
        current.terms.is_idle(&current.state, since)
    }

    pub(crate) fn terms(&self, tag: u32) -> Option<Terms> {
        self.known.get(&tag).map(|known| known.terms)
    }
}

impl Carried {
    /// Whether something was charged to a window that has not ended.
    fn is_window_open(&self, now: Timestamp) -> bool {
        match self.state {
            State::Window(_) => !self.terms.is_idle(&self.state, now),
            _ => false,
        }
    }

    fn is_waiting_for_next(&self, limits: &Limits) -> bool {
        limits.known.get(&self.tag).is_some_and(|known| known.successor.is_some())
    }
}

impl Known {
    fn moment(&self, times: Times) -> Moment {
        let period = self.cycle.as_ref().map_or(NO_PERIOD, |cycle| cycle.period(times));
        Moment { now: times.now, period }
    }
}
