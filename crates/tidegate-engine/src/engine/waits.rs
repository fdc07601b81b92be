//! How long a denied request has to wait where limits change meanwhile: overrides end, edits wait
//! for the next period or window, and quotas need several periods.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Decision, Timestamp, Wait};
use tidegate_policy::policy::{Charging, Condition, Effective, Mode};

use super::planning::key_hash;
use super::report::{EvaluatedRule, Report};
use super::ruleset::{CompiledRule, Ruleset};
use super::{StoreEngine, Verb, When};
use crate::any_limit::{AnyLimit, NO_PERIOD};
use crate::history::{KeyRef, Version};
use crate::periods::Times;
use crate::plan::PlanTime;
use crate::request::Request;

impl StoreEngine {
    /// Corrects the wait of a denied request: until when it is denied, if nothing else happens.
    #[cold]
    #[inline(never)]
    pub(super) fn correct_wait(
        &self,
        report: &mut Report,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
        times: Times,
    ) {
        if report.may_change_ahead(times) && !matches!(when, When::Ahead(_)) {
            report.body.wait_ahead = self.wait_ahead(report, requests, verb, times);
        }
    }

    fn wait_ahead(
        &self,
        report: &Report,
        requests: &[Request<'_>],
        verb: Verb,
        times: Times,
    ) -> Option<Wait> {
        let (mut ahead, mut step) = self.begin_wait_ahead(report, requests, times)?;
        loop {
            let at = match step {
                WaitStep::Over(wait) => return wait,
                WaitStep::Peek(at) => at,
            };
            let mut look = Report::new(&self.shared.rules);
            let _ = self.decide_into(&mut look, requests, verb.look(), When::Ahead(at));
            step = self.go_on_waiting_ahead(&mut ahead, &look, requests);
        }
    }

    /// The first change ahead to be looked at; `None` if the request is not denied.
    pub(super) fn begin_wait_ahead(
        &self,
        report: &Report,
        requests: &[Request<'_>],
        times: Times,
    ) -> Option<(WaitAhead, WaitStep)> {
        let wait = report.retry_after()?;
        let mut ahead = WaitAhead {
            times,
            at: times,
            wait,
            window_end: report.end_of_waiting_window(times.now, |_, _| true),
            unknown_end: report.end_of_unknown(times),
            // Where nothing changes before its end, the wait is right as it is.
            is_right: wait != Wait::Unknown && !report.waits_for_others(),
            peeks: 0,
        };
        let step = self.next_peek(&mut ahead, report, requests);
        Some((ahead, step))
    }

    /// What follows from a peek at a change ahead.
    pub(super) fn go_on_waiting_ahead(
        &self,
        ahead: &mut WaitAhead,
        look: &Report,
        requests: &[Request<'_>],
    ) -> WaitStep {
        let at = ahead.at;
        if look.body.is_allowed {
            let wait_ns = at.now.as_nanos() - ahead.times.now.as_nanos();
            return WaitStep::Over(Some(Wait::After(Duration::from_nanos(wait_ns))));
        }
        let Some(wait) = look.retry_after() else { return WaitStep::Over(None) };
        ahead.wait = wait;
        // A window that has its whole length left is not open: none opens by itself.
        ahead.window_end = look.end_of_waiting_window(at.now, |left, span| left < span);
        ahead.unknown_end = look.end_of_unknown(at);
        self.next_peek(ahead, look, requests)
    }

    /// When to look next.
    fn next_peek(
        &self,
        ahead: &mut WaitAhead,
        look: &Report,
        requests: &[Request<'_>],
    ) -> WaitStep {
        if ahead.peeks == MOST_CHANGES {
            return WaitStep::Over(Some(Wait::Unknown));
        }
        ahead.peeks += 1;
        let end = match ahead.wait {
            Wait::After(wait) => Some(ahead.at.now.saturating_add(wait)),
            Wait::Never => None,
            Wait::Unknown => ahead.unknown_end,
        };
        let change = self.next_change(look.ruleset(), Some(look), requests, ahead.at);
        let change = change.into_iter().chain(ahead.window_end).min();
        let next = match (change.filter(|it| end.is_none_or(|end| *it <= end)), end) {
            (Some(change), _) => change,
            (None, _) if ahead.is_right => return WaitStep::Over(None),
            (None, None) => return WaitStep::Over(Some(ahead.wait)),
            (None, Some(end)) => end,
        };
        (ahead.at, ahead.is_right) = (ahead.times.at(next), false);
        WaitStep::Peek(ahead.at)
    }

    /// When the limit of some key of the requests changes by itself, after a time.
    fn next_change(
        &self,
        rules: &Ruleset,
        look: Option<&Report>,
        requests: &[Request<'_>],
        times: Times,
    ) -> Option<Timestamp> {
        let of_request = |request: &Request<'_>| {
            let domain = rules.domain(request.domain)?;
            let matching = domain.matcher.find(&request.attributes);
            let numbers = matching.iter().map(|index| domain.rules[index]);
            let of_rule = |number| {
                let limit = look.and_then(|look| look.limit_of_rule(number));
                self.change_of(rules.rule(number), limit, request, times)
            };
            numbers.filter_map(of_rule).min()
        };
        requests.iter().filter_map(of_request).min()
    }

    /// From when on another plan is needed for these requests, although nothing is edited.
    pub(super) fn plan_until(
        &self,
        rules: &Ruleset,
        requests: &[Request<'_>],
        times: Times,
    ) -> Option<Timestamp> {
        if !rules.needs_wall {
            return None;
        }
        let end_of_period = |request: &Request<'_>| {
            let domain = rules.domain(request.domain)?;
            let matching = domain.matcher.find(&request.attributes);
            let rules = matching.iter().map(|index| rules.rule(domain.rules[index]));
            rules.filter_map(|rule| rule.periods.as_ref()?.period(times).ends).min()
        };
        let end = requests.iter().filter_map(end_of_period).min();
        end.into_iter().chain(self.next_change(rules, None, requests, times)).min()
    }

    /// The time of the plan of requests.
    #[inline]
    pub(super) fn plan_time(
        &self,
        rules: &Ruleset,
        requests: &[Request<'_>],
        when: When,
        times: Times,
    ) -> PlanTime {
        match when {
            When::Ahead(_) => PlanTime::Ahead,
            When::At(_) => PlanTime::Given,
            When::Now | When::Read(_) if !self.is_shared() => PlanTime::of(None),
            When::Now | When::Read(_) => {
                PlanTime::Clock { until: self.plan_until(rules, requests, times) }
            }
        }
    }

    /// The time of the plan of a request.
    pub(super) fn plan_time_of(
        &self,
        rules: &Ruleset,
        request: &Request<'_>,
        times: Times,
    ) -> PlanTime {
        self.plan_time(rules, std::slice::from_ref(request), self.when(), times)
    }

    fn change_of(
        &self,
        compiled: &CompiledRule,
        room: Option<u64>,
        request: &Request<'_>,
        times: Times,
    ) -> Option<Timestamp> {
        let newest = compiled.history.newest();
        let (family, parts) = (compiled.charge.family, compiled.rule.key().parts());
        let hash = key_hash(family, parts, &request.attributes, self.shared.store.hash());
        let meets = |conditions: &[Condition]| {
            conditions.iter().all(|condition| condition.holds(&request.attributes))
        };
        let key = KeyRef { hash, meets: &meets };
        let until = compiled.history.next_end(key, times.wall);
        let until = until.map(|wall| times.by_the_clock(wall));
        let period = compiled.periods.as_ref().map_or(NO_PERIOD, |periods| periods.period(times));
        let waits = newest.waits_for.is_some_and(|last| period.index <= last);
        // An edit may have left a quota more units than it carries over.
        let (_, limit) = compiled.limit_of(hash, &request.attributes, period, times);
        let kept = limit.and_then(AnyLimit::most_kept_units);
        let lapses = room.zip(kept).is_some_and(|(room, kept)| room > kept);
        let next_period = period.ends.filter(|_| waits || lapses);
        until.into_iter().chain(next_period).min()
    }
}

/// How far the changes ahead have been followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitAhead {
    times: Times,
    /// The change that is looked at.
    at: Times,
    wait: Wait,
    window_end: Option<Timestamp>,
    unknown_end: Option<Timestamp>,
    is_right: bool,
    peeks: usize,
}

/// What to do next.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitStep {
    /// Look at this time.
    Peek(Times),
    /// This is the wait; `None`: the one that the limits have now.
    Over(Option<Wait>),
}

impl Report {
    /// Whether a denied request may have to wait for other than its limits say now.
    pub(super) fn may_change_ahead(&self, times: Times) -> bool {
        let may_change = self.ruleset().changes_ahead
            || self.waits_for_others()
            || self.end_of_unknown(times).is_some()
            || self.has_carried();
        may_change && !self.body.is_outage
    }

    /// What a rule has room for; `None` if it does not apply.
    fn limit_of_rule(&self, number: u32) -> Option<u64> {
        let index = self.body.evaluated.iter().position(|it| it.rule == number)?;
        self.body.decisions.get(index).map(Decision::limit)
    }

    /// Whether a quota by a calendar has units that it carried over, which may lapse.
    fn has_carried(&self) -> bool {
        let carries = |(evaluated, decision): (&EvaluatedRule, &Decision)| {
            let compiled = self.ruleset().rule(evaluated.rule);
            let kept = compiled.charge.limit.most_kept_units();
            let may_lapse = kept.is_some_and(|kept| decision.limit() > kept);
            compiled.periods.is_some() && (may_lapse || !compiled.overrides.is_empty())
        };
        self.body.evaluated.iter().zip(&self.body.decisions).any(carries)
    }

    /// When a window ends that keeps its limit until then, although an edit was made.
    fn end_of_waiting_window(
        &self,
        now: Timestamp,
        is_open: impl Fn(Duration, Duration) -> bool,
    ) -> Option<Timestamp> {
        let end = |(evaluated, decision): (&EvaluatedRule, &Decision)| {
            let is_waiting = self.ruleset().rule(evaluated.rule).window_may_wait();
            let is_open = |left| is_open(left, decision.span().unwrap_or(Duration::MAX));
            let left = decision.reset().filter(|left| !left.is_zero() && is_open(*left));
            let left = left.filter(|_| is_waiting);
            left.map(|left| now.saturating_add(left))
        };
        self.body.evaluated.iter().zip(&self.body.decisions).filter_map(end).min()
    }

    /// The end of the open period, where only quotas by a calendar deny the request for an unknown
    /// time: those that need several periods. Until then it is denied.
    fn end_of_unknown(&self, times: Times) -> Option<Timestamp> {
        if self.body.denial.is_some() {
            return None;
        }
        let mut last = None;
        for (evaluated, decision) in self.body.evaluated.iter().zip(&self.body.decisions) {
            if evaluated.mode == Mode::Enforce && decision.retry_after() == Some(Wait::Unknown) {
                let periods = self.ruleset().rule(evaluated.rule).periods.as_ref()?;
                last = last.max(Some(periods.period(times).ends?));
            }
        }
        last
    }

    /// Whether a rule that did not deny the request may deny it after the wait: those behind a ban,
    /// and those that charge denied requests.
    fn waits_for_others(&self) -> bool {
        let is_ban = self.body.denial.as_ref().is_some_and(|denial| denial.is_ban);
        let is_charged = |(evaluated, decision): (&EvaluatedRule, &Decision)| {
            let charging = self.ruleset().rule(evaluated.rule).rule.charging();
            decision.is_allowed() && charging != Charging::Allowed
        };
        is_ban || self.body.evaluated.iter().zip(&self.body.decisions).any(is_charged)
    }
}

impl CompiledRule {
    /// Whether its limits may change by themselves.
    pub(super) fn changes_ahead(&self) -> bool {
        let newest = self.history.newest();
        newest.next_tag() > newest.tag + 1 || self.window_may_wait()
    }

    /// Whether some window may keep its limit to its end.
    fn window_may_wait(&self) -> bool {
        let waits = |version: &Arc<Version>| version.effective == Effective::Next;
        matches!(self.charge.limit, AnyLimit::Window(_))
            && self.history.versions[1..].iter().any(waits)
    }
}

/// How many changes are followed; beyond that the wait is unknown.
const MOST_CHANGES: usize = 32;
