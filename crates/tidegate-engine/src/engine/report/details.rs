//! What servers need of a report: each request of a combined decision, and what is counted.

use tidegate_core::{Decision, Timestamp};
use tidegate_policy::policy::{Mode, RuleId};

use super::{Report, RuleReport};
use crate::plan::KeyName;
use crate::request::Request;

/// More of a [`Report`], for servers: what each of several requests got, and what metrics count.
#[derive(Clone, Copy, Debug)]
pub struct ReportDetails<'a>(pub(super) &'a Report);

impl<'a> ReportDetails<'a> {
    /// The rules' decisions on one of several requests that were
    /// [decided as one](crate::StoreEngine::check_together), by its index.
    ///
    /// Requests with the same key of a rule share its decision.
    pub fn rules_of(self, request: usize) -> impl Iterator<Item = RuleReport<'a>> {
        let applies = move |index: usize| {
            !self.0.body.is_of_several
                || self.0.rules_hit(request).any(|charge| charge == u32::try_from(index).ok())
        };
        let evaluated = self.0.body.evaluated.iter().zip(&self.0.body.decisions).enumerate();
        evaluated
            .filter(move |(index, _)| applies(*index))
            .map(|(_, (evaluated, decision))| self.0.rule_report(evaluated, decision))
    }

    /// Whether an override makes one of the decided requests unlimited, by its index.
    #[must_use]
    pub fn is_unlimited(self, request: usize) -> bool {
        self.0.rules_hit(request).any(|charge| charge.is_none())
    }

    /// The index of the first request that was denied without the decision of a limit: it is banned
    /// or lacks an attribute, or the store is unavailable and `on_error` of a rule denies it.
    #[must_use]
    pub fn denied_request(self) -> Option<usize> {
        self.0.body.denial.as_ref().map(|denial| denial.request)
    }

    /// Whether one of the decided requests, by its index, is denied because the store is
    /// unavailable: by `on_error` of a rule that applies to it.
    #[must_use]
    pub fn is_denied_by_outage(self, request: usize) -> bool {
        if !self.0.body.is_outage || self.0.body.is_allowed || self.is_local() {
            return false;
        }
        let charge =
            |charge: Option<u32>| self.0.body.evaluated.get(usize::try_from(charge?).ok()?);
        !self.0.body.is_of_several
            || self.0.rules_hit(request).filter_map(charge).any(|it| self.0.denies_in_outage(it))
    }

    /// The key of the decisive rule's state, with the values of the request that this decides.
    #[must_use]
    pub fn key_of(self, request: &Request<'_>) -> Option<KeyName> {
        let number = match &self.0.body.denial {
            Some(denial) => denial.rule,
            None => self.0.decisive_rule().map(|index| self.0.body.evaluated[index].rule),
        };
        let compiled = self.0.ruleset().rule(number?);
        Some(KeyName {
            rule: compiled.rule.id().clone(),
            parts: compiled.key_of(&request.attributes),
        })
    }

    /// The index of the request that the decisive rule applied to, among those decided at once.
    #[must_use]
    pub fn decisive_request(self) -> usize {
        if let Some(denial) = &self.0.body.denial {
            return denial.request;
        }
        let charge = self.0.decisive_rule().and_then(|index| u32::try_from(index).ok());
        let hit = self.0.body.hits.iter().find(|hit| charge.is_some() && hit.charge == charge);
        hit.and_then(|hit| usize::try_from(hit.request).ok()).unwrap_or(0)
    }

    /// Whether [local shares](tidegate_policy::policy::OnError::Local) of the limits decided, because the store was unavailable:
    /// limits, what remains and waits are those of the shares, and rules without one are left out.
    #[must_use]
    pub fn is_local(self) -> bool {
        self.0.body.is_outage && !self.0.body.decisions.is_empty()
    }

    /// When the hold expires.
    #[must_use]
    pub fn expires(self) -> Option<Timestamp> {
        self.0.body.hold.map(|hold| hold.expires)
    }

    /// Whether all descriptors are in quota mode, those without a rule included: see
    /// [`EngineSettings::quota_mode`](tidegate_policy::policy::EngineSettings::quota_mode).
    #[must_use]
    pub fn is_quota_mode_for_all(self) -> bool {
        self.0.ruleset().settings.quota_mode()
    }

    /// Counts each rule's decision, for [`StoreEngine::tallies`](crate::StoreEngine::tallies).
    ///
    /// A decision by itself counts nothing: callers without metrics do not pay for it.
    pub fn count(self) {
        for (evaluated, decision) in self.0.body.evaluated.iter().zip(&self.0.body.decisions) {
            self.0
                .ruleset()
                .rule(evaluated.rule)
                .tally
                .add(evaluated.mode, Decision::is_allowed(decision));
        }
        for booking in &self.0.body.decisions.bookings {
            if let Some(evaluated) = self.0.body.evaluated.get(booking.index) {
                self.0.ruleset().rule(evaluated.rule).tally.book(booking);
            }
        }
        if let Some(rule) = self.0.body.denial.as_ref().and_then(|denial| denial.rule) {
            self.0.ruleset().rule(rule).tally.add(Mode::Enforce, false);
        }
    }

    /// Counts a denial for want of a slot, whatever is free by now.
    pub fn count_no_slot(self) {
        for evaluated in &self.0.body.evaluated {
            let rule = self.0.ruleset().rule(evaluated.rule);
            if rule.slots().is_some() {
                rule.tally.add(evaluated.mode, false);
            }
        }
    }

    /// The postpaid rules that booked nothing of their cost, with the units: another rule denied the
    /// request, or the rule's state has no room.
    pub fn unbooked(self) -> impl Iterator<Item = (&'a RuleId, u64)> {
        let unbooked = self.0.body.decisions.bookings.iter().filter(|it| it.unbooked > 0);
        unbooked.filter_map(|it| {
            let evaluated = self.0.body.evaluated.get(it.index)?;
            Some((self.0.ruleset().rule(evaluated.rule).rule.id(), it.unbooked))
        })
    }

    /// Whether a rule in shadow mode denied.
    #[must_use]
    pub fn is_denied_in_shadow(self) -> bool {
        let mut decided = self.0.body.evaluated.iter().zip(&self.0.body.decisions);
        decided.any(|(it, decision)| it.mode == Mode::Shadow && !Decision::is_allowed(decision))
    }

    /// Whether the request was denied by a [ban](crate::Ban), before any rule was evaluated.
    #[must_use]
    pub fn is_banned(self) -> bool {
        self.0.body.denial.as_ref().is_some_and(|it| it.is_ban)
    }

    /// Whether any rule applied to the request.
    #[must_use]
    pub fn is_matched(self) -> bool {
        !self.0.body.evaluated.is_empty()
            || self.0.body.denial.as_ref().is_some_and(|it| it.rule.is_some())
    }
}
