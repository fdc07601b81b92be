use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Decision, Timestamp, Wait, Window};
use tidegate_policy::policy::{
    Charging, Limit, Metadata, Mode, OnError, Periods, RuleId, duration_to_text,
};

use super::current_rules::CurrentRules;
use super::error::CheckError;
use super::planning::{EarlyDenial, RuleHit};
use super::ruleset::{CompiledDomain, Ruleset};
use crate::plan::Charge;
use crate::store::{Answer, Decided, Durable, Failure, HoldId};
pub(super) use body::{PlainParts, RecycledBody, ReportBody, ReportTicket, TicketEnd};
pub use details::ReportDetails;

mod body;
mod details;

/// The decision on a request: the verdict, and what every rule decided.
///
/// A pointer: what is in it is filled in place, and does not move with it.
#[must_use]
pub struct Report {
    pub(super) body: RecycledBody,
}

/// A [denied](Report::allowed) request, as an error.
pub struct RequestDenied(Report);

impl RequestDenied {
    /// The report.
    pub fn into_report(self) -> Report {
        self.0
    }
}

impl fmt::Display for RequestDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.reason().unwrap_or_default())
    }
}

tidegate_core::debug_as_displayed!(RequestDenied);

impl std::error::Error for RequestDenied {}

/// A rule that was evaluated.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvaluatedRule {
    pub(super) rule: u32,
    pub(super) mode: Mode,
}

impl From<&Charge> for EvaluatedRule {
    #[inline(always)]
    fn from(charge: &Charge) -> Self {
        Self { rule: charge.rule, mode: charge.mode }
    }
}

/// Why a request was denied before any limit was evaluated.
#[derive(Clone, Debug)]
pub(super) struct EarlyDenialReport {
    /// The index of the denied request.
    pub(super) request: usize,
    pub(super) rule: Option<u32>,
    pub(super) is_ban: bool,
    pub(super) reason: Box<str>,
    pub(super) wait: Wait,
    /// The attribute that the rule needs and the request lacks.
    pub(super) missing: Option<Box<str>>,
}

/// What one rule decided.
#[derive(Clone, Copy, Debug)]
pub struct RuleReport<'a> {
    /// The rule.
    pub rule: &'a RuleId,
    /// Whether its denial is enforced.
    pub mode: Mode,
    /// Whether it is in [quota mode](tidegate_policy::policy::RuleBuilder::quota_mode).
    pub is_quota: bool,
    /// Which requests it charges.
    pub charging: Charging,
    /// Its decision.
    pub decision: &'a Decision,
    /// The time over which the limit's whole capacity returns; `None` where that varies or is
    /// unknown.
    pub span: Option<Duration>,
    /// The time until the current window ends, whatever was used of it; `None` for limits that are
    /// not windows.
    pub ends: Option<Duration>,
    /// The rule's fixed cost, in place of the request's own, if it has one.
    pub price: Option<u64>,
    /// The rule's metadata.
    pub metadata: Option<&'a Arc<Metadata>>,
}

impl Report {
    /// The memory of a report, in bytes, besides its own size: what a program that holds many of
    /// them counts. One over more than three rules needs more.
    #[doc(hidden)]
    pub const BODY_BYTES: usize = ReportBody::BYTES;

    /// Whether the request is allowed. If so it was charged to all rules, else to none.
    #[inline]
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.body.is_allowed
    }

    /// `Ok` if the request is allowed, for callers to whom a denial is an error.
    pub fn allowed(self) -> Result<(), RequestDenied> {
        if self.is_allowed() { Ok(()) } else { Err(RequestDenied(self)) }
    }

    /// The decisive rule: the denying one with the longest wait, or else the one with the least
    /// remaining. `None` if no rule matches.
    #[must_use]
    pub fn rule(&self) -> Option<&RuleId> {
        let number = match &self.body.denial {
            Some(denial) => denial.rule,
            None => self.decisive_rule().map(|index| self.body.evaluated[index].rule),
        };
        number.map(|number| self.ruleset().rule(number).rule.id())
    }

    /// More of it, for servers.
    #[must_use]
    pub const fn details(&self) -> ReportDetails<'_> {
        ReportDetails(self)
    }

    /// The decision of the decisive rule.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.decisive_rule().map(|index| &self.body.decisions[index])
    }

    /// The capacity of the decisive rule's limit, in units of cost.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.decision().map(Decision::limit)
    }

    /// What remains under the decisive rule's limit.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.decision().map(Decision::remaining)
    }

    /// How long a denied caller should wait; `None` when allowed.
    ///
    /// Over several rules it is the longest of their waits, unless limits change before it is over:
    /// then it is the time after which the request is allowed, if nothing else happens.
    #[must_use]
    pub fn retry_after(&self) -> Option<Wait> {
        if self.body.wait_ahead.is_some() && !self.body.is_allowed {
            return self.body.wait_ahead;
        }
        match &self.body.denial {
            Some(denial) => Some(denial.wait),
            None if self.body.is_allowed => None,
            None => self.decision().and_then(Decision::retry_after),
        }
    }

    /// The time until the decisive rule's limit is as good as fresh; `None` if it is unknown.
    #[must_use]
    pub fn reset(&self) -> Option<Duration> {
        self.decision().and_then(Decision::reset)
    }

    /// The attribute that a rule's key needs and the request lacks, if it is denied for that.
    #[must_use]
    pub fn missing_attribute(&self) -> Option<&str> {
        self.body.denial.as_ref()?.missing.as_deref()
    }

    /// Why the request was denied, as text; `None` when allowed.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        if self.body.is_allowed {
            return None;
        }
        if let Some(denial) = &self.body.denial {
            return Some(denial.reason.to_string());
        }
        let index = self.decisive_rule()?;
        let rule = &self.ruleset().rule(self.body.evaluated[index].rule).rule;
        if let Some(deny) = rule.deny_reason() {
            return Some(deny.to_string());
        }
        let mut name = format!("`{}`", rule.name());
        if self.is_local() {
            name.push_str(" with its local share, as the store is unavailable");
        }
        Some(match self.retry_after()? {
            wait @ Wait::After(_) => {
                format!("denied by rule {name}: retry {}", describe_wait(wait))
            }
            Wait::Never => format!("denied by rule {name}: the cost is more than it ever allows"),
            Wait::Unknown => format!("denied by rule {name}: the wait is unknown"),
        })
    }

    /// The decision of every rule that applies, in the order of the policy.
    pub fn rules(&self) -> impl Iterator<Item = RuleReport<'_>> {
        self.body
            .evaluated
            .iter()
            .zip(&self.body.decisions)
            .map(|(evaluated, decision)| self.rule_report(evaluated, decision))
    }

    fn rules_hit(&self, request: usize) -> impl Iterator<Item = Option<u32>> {
        let is_its = move |it: &&RuleHit| usize::try_from(it.request) == Ok(request);
        self.body.hits.iter().filter(is_its).map(|it| it.charge)
    }

    /// Whether [local shares](OnError::Local) of the limits decided.
    pub(super) fn is_local(&self) -> bool {
        self.body.is_outage && !self.body.decisions.is_empty()
    }

    fn rule_report<'r>(
        &'r self,
        evaluated: &EvaluatedRule,
        decision: &'r Decision,
    ) -> RuleReport<'r> {
        let rule = &self.ruleset().rule(evaluated.rule).rule;
        let by_calendar = || match rule.limit() {
            Limit::Quota(_, Periods::Calendar(calendar)) => calendar.usual_length(),
            _ => None,
        };
        let fixed = rule.cost().filter(|cost| cost.attribute().is_none());
        let ends = match rule.limit() {
            Limit::Window(window) => window_end(*window, decision),
            _ => None,
        };
        RuleReport {
            rule: rule.id(),
            mode: evaluated.mode,
            charging: rule.charging(),
            is_quota: rule.is_in_quota_mode() && self.ruleset().settings.enforce_ppm() > 0,
            decision,
            span: decision.span().or_else(by_calendar),
            ends,
            price: fixed.and_then(|cost| cost.cost("")),
            metadata: rule.metadata(),
        }
    }

    /// Whether the store was unavailable, so that the rules' `on_error` decided: by words alone, or
    /// [by local shares](ReportDetails::is_local) of the limits.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.body.is_outage
    }

    /// Whether the [idempotency key](crate::Request::idempotency_key) was used before, for the same request:
    /// this is what it got then, and nothing was charged again.
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.body.is_repeat
    }

    /// The id of the hold.
    #[must_use]
    pub fn hold(&self) -> Option<HoldId> {
        self.body.hold.map(|hold| hold.id)
    }

    /// The index of the decisive rule.
    fn decisive_rule(&self) -> Option<usize> {
        let indexes = 0..self.body.evaluated.len().min(self.body.decisions.len());
        if self.body.is_allowed {
            let least = |index: &usize| self.body.decisions[*index].remaining();
            let binding = |index: &usize| self.body.evaluated[*index].mode == Mode::Enforce;
            let least_binding = indexes.clone().filter(binding).min_by_key(least);
            return least_binding.or_else(|| indexes.min_by_key(least));
        }
        let denying = indexes.filter(|&index| {
            self.body.evaluated[index].mode == Mode::Enforce
                && !self.body.decisions[index].is_allowed()
        });
        // The first of equals.
        denying.rev().max_by_key(|&index| rank(self.body.decisions[index].retry_after()))
    }
}

/// How a report is made.
impl Report {
    /// The decision where no rule matches.
    #[inline(always)]
    pub(super) fn new(rules: &CurrentRules) -> Self {
        Self { body: RecycledBody::new(rules) }
    }

    /// The rules that decided.
    #[inline(always)]
    pub(super) fn ruleset(&self) -> &Ruleset {
        self.body.ruleset()
    }

    /// Sets the result, and returns what it has to wait for, if it does.
    #[inline]
    pub(super) fn set(
        &mut self,
        decided: Result<Decided, Failure>,
    ) -> Result<Option<Durable>, CheckError> {
        match decided {
            Ok(Decided { is_allowed, hold, is_repeat, durable, .. }) => {
                (self.body.is_allowed, self.body.is_repeat) = (is_allowed, is_repeat);
                self.body.hold = hold;
                if let Answer::Pending(durable) = durable {
                    return Ok(Some(durable));
                }
            }
            Err(Failure::Superseded | Failure::NotAdopted | Failure::Outage(_)) => {
                self.set_outage();
            }
            Err(failure) => return Err(failure.into()),
        }
        Ok(None)
    }

    /// The report as it may be returned: once it is durable.
    #[inline]
    pub(super) fn when_durable(mut self) -> Answer<Result<Self, CheckError>> {
        let Some(durable) = self.body.take_durable() else { return Answer::Ready(Ok(self)) };
        Answer::Pending(Box::pin(async move {
            match durable.await {
                Ok(()) => self.body.local.take().iter().for_each(|local| local.tidy()),
                Err(_) => self.set_outage(),
            }
            Ok(self)
        }))
    }

    /// Decides by the rules' `on_error`: one that denies is enough, and else those with a local share
    /// of their limit decide. A request that was denied before any limit was evaluated needs no store,
    /// and stays denied.
    pub(super) fn set_outage(&mut self) {
        if self.body.denial.is_some() {
            return;
        }
        self.body.decisions.clear();
        (self.body.hold, self.body.is_repeat) = (None, false);
        self.body.is_allowed = true;
        self.body.is_outage = true;
        let local = self.body.local.take();
        if let Some(index) = self.body.evaluated.iter().position(|it| self.denies_in_outage(it)) {
            let charge = u32::try_from(index).ok();
            let hit = self.body.hits.iter().find(|hit| hit.charge == charge);
            let request = hit.map_or(0, |hit| hit.request);
            self.deny(EarlyDenialReport {
                request: usize::try_from(request).unwrap_or(usize::MAX),
                rule: Some(self.body.evaluated[index].rule),
                is_ban: false,
                reason: "the store is unavailable".into(),
                wait: Wait::Unknown,
                missing: None,
            });
        } else if let Some(local) = local {
            self.decide_locally(&local);
        }
    }

    /// Whether an evaluated rule denies while the store is unavailable.
    fn denies_in_outage(&self, evaluated: &EvaluatedRule) -> bool {
        let on_error = self.ruleset().without_store(evaluated.rule);
        evaluated.mode == Mode::Enforce && on_error == OnError::Deny
    }

    pub(super) fn deny(&mut self, denial: EarlyDenialReport) {
        self.body.is_allowed = false;
        self.body.denial = Some(Box::new(denial));
    }
}

/// The time until the window of the decision ends: the open one, or the one that would open.
fn window_end(window: Window, decision: &Decision) -> Option<Duration> {
    let reset = decision.reset()?;
    if !reset.is_zero() {
        return Some(reset);
    }
    let span = decision.span()?;
    let into_it = if window.is_aligned() {
        let span_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(decision.decided_at().as_nanos() % span_ns)
    } else {
        Duration::ZERO
    };
    Some(span - into_it)
}

/// A wait as text, in whole milliseconds, rounded up.
pub(super) fn describe_wait(wait: Wait) -> String {
    match wait {
        Wait::After(wait) => {
            let ms = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            format!("in {}", duration_to_text(Duration::from_millis(ms)))
        }
        Wait::Never => "never".into(),
        Wait::Unknown => "when units are released".into(),
    }
}

/// Orders waits: unknown is longer than any time, never longer still.
fn rank(wait: Option<Wait>) -> (u8, Duration) {
    match wait {
        None => (0, Duration::ZERO),
        Some(Wait::After(wait)) => (1, wait),
        Some(Wait::Unknown) => (2, Duration::ZERO),
        Some(Wait::Never) => (3, Duration::ZERO),
    }
}

impl EarlyDenialReport {
    pub(super) fn new(
        rules: &Ruleset,
        domain: Option<&CompiledDomain>,
        denial: EarlyDenial,
        request: u32,
        wall: Timestamp,
    ) -> Self {
        let request = usize::try_from(request).unwrap_or(usize::MAX);
        match denial {
            EarlyDenial::Missing { rule: number, part } => {
                let rule = &rules.rule(number).rule;
                let attribute = rule.key().parts()[part].attribute();
                let reason =
                    format!("rule `{}` needs the attribute `{attribute}`", rule.name()).into();
                Self {
                    request,
                    rule: Some(number),
                    is_ban: false,
                    reason,
                    wait: Wait::Never,
                    missing: Some(attribute.into()),
                }
            }
            EarlyDenial::Banned { ban } => {
                let ban = domain.and_then(|domain| domain.bans.get(ban));
                let reason = ban.and_then(|ban| ban.reason.clone());
                let until = ban.and_then(|ban| ban.until);
                Self {
                    request,
                    rule: None,
                    is_ban: true,
                    reason: reason.unwrap_or_else(|| "banned".into()),
                    wait: until.map_or(Wait::Never, |until| {
                        let left_ns = until.as_nanos().saturating_sub(wall.as_nanos());
                        Wait::After(Duration::from_nanos(left_ns))
                    }),
                    missing: None,
                }
            }
            EarlyDenial::Unmatched => {
                let reason = "no rule matches".into();
                Self {
                    request,
                    rule: None,
                    is_ban: false,
                    reason,
                    wait: Wait::Never,
                    missing: None,
                }
            }
        }
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report")
            .field("is_allowed", &self.body.is_allowed)
            .field("rule", &self.rule())
            .field("wait", &self.retry_after())
            .field("rules", &self.rules().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
