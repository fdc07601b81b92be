//! How often each rule allowed and denied, for metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_policy::policy::{Charging, Mode, RuleId};

use super::StoreEngine;
use super::ruleset::{CompiledRule, Ruleset};
use crate::decision::Booking;

/// What a rule has decided so far, over all [counted reports](crate::ReportDetails::count).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleTally {
    /// The rule.
    pub rule: RuleId,
    /// The mode in which it decided.
    pub mode: Mode,
    /// How often it allowed.
    pub allowed: u64,
    /// How often it denied.
    pub denied: u64,
}

/// What a postpaid rule has booked so far, over all [counted reports](crate::ReportDetails::count), in units.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BookingTally {
    /// The rule.
    pub rule: RuleId,
    /// Units that were charged.
    pub booked: u64,
    /// Of these, units beyond what was left.
    pub overdrawn: u64,
    /// Units that were not charged, because the state cannot count them or the debt does not allow them.
    pub forgiven: u64,
    /// Units that were not charged, because another rule denied the request or there was no room.
    pub unbooked: u64,
}

/// The counters of one rule. They continue when the rule is edited.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Allowed and denied when enforced, then in shadow mode.
    counts: [AtomicU64; 4],
    /// Units booked, overdrawn, forgiven and not booked.
    units: [AtomicU64; 4],
}

impl Tally {
    pub(super) fn add(&self, mode: Mode, is_allowed: bool) {
        self.counts[counter_index(mode, is_allowed)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn book(&self, booking: &Booking) {
        let Booking { units, overdrawn, forgiven, unbooked, .. } = *booking;
        for (counter, units) in self.units.iter().zip([units, overdrawn, forgiven, unbooked]) {
            // Wraps after 2^64 units.
            counter.fetch_add(units, Ordering::Relaxed);
        }
    }

    fn count(&self, mode: Mode, is_allowed: bool) -> u64 {
        self.counts[counter_index(mode, is_allowed)].load(Ordering::Relaxed)
    }
}

const fn counter_index(mode: Mode, is_allowed: bool) -> usize {
    let mode = match mode {
        Mode::Enforce => 0,
        Mode::Shadow => 2,
    };
    if is_allowed { mode } else { mode + 1 }
}

/// Gives each rule the counters of the earlier rule of the same name.
pub(super) fn continue_counting(old: Option<&Ruleset>, rules: &mut [CompiledRule]) {
    let old = old.iter().flat_map(|old| &old.rules);
    let tallies: HashMap<_, _> = old.map(|it| (it.rule.id(), &it.tally)).collect();
    for rule in rules {
        if let Some(tally) = tallies.get(rule.rule.id()) {
            rule.tally = Arc::clone(tally);
        }
    }
}

impl StoreEngine {
    /// What every rule in force has decided so far, in the order of the policy: one entry for each
    /// mode in which it decided anything, and one for its own mode in any case.
    #[must_use]
    pub fn tallies(&self) -> Vec<RuleTally> {
        let rules = self.shared.rules.load();
        let mut tallies = Vec::with_capacity(rules.rules.len());
        let listed = rules.rules.iter().filter(|it| !it.rule.is_placeholder());
        for CompiledRule { rule, tally, .. } in listed {
            for mode in [Mode::Enforce, Mode::Shadow] {
                let (allowed, denied) = (tally.count(mode, true), tally.count(mode, false));
                if mode == rule.mode() || allowed > 0 || denied > 0 {
                    let rule = rule.id().clone();
                    tallies.push(RuleTally { rule, mode, allowed, denied });
                }
            }
        }
        tallies
    }

    /// What every postpaid rule in force has booked so far, in the order of the policy.
    #[must_use]
    pub fn bookings(&self) -> Vec<BookingTally> {
        let rules = self.shared.rules.load();
        let postpaid = rules.rules.iter().filter(|it| it.rule.charging() == Charging::Postpaid);
        let tally = |CompiledRule { rule, tally, .. }: &CompiledRule| {
            let [booked, overdrawn, forgiven, unbooked] =
                [0, 1, 2, 3].map(|index| tally.units[index].load(Ordering::Relaxed));
            BookingTally { rule: rule.id().clone(), booked, overdrawn, forgiven, unbooked }
        };
        postpaid.map(tally).collect()
    }
}
