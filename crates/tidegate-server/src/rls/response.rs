//! Responses of the rate limit service: statuses for Envoy, headers for its client.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate::policy::{Charging, Mode, RuleId};
use tidegate::{Report, Wait, policy::WindowUnit, report::RuleReport};
use tidegate_proto::headers::LimitFields;
use tidegate_proto::rls::rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit};
use tidegate_proto::rls::{self, HeaderValue};

use crate::daemon::Daemon;

/// The status of one descriptor, by its index.
pub(super) fn status(report: &Report, index: usize) -> DescriptorStatus {
    if report.details().denied_request() == Some(index)
        || report.details().is_denied_by_outage(index)
    {
        let duration_until_reset = report.retry_after().and_then(after).map(seconds);
        let code = Code::OverLimit.into();
        return DescriptorStatus { code, duration_until_reset, ..Default::default() };
    }
    let Some(rule) = report.details().rules_of(index).max_by_key(weight) else {
        let limit_remaining = if report.details().is_unlimited(index) { u32::MAX } else { 0 };
        return DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..Default::default() };
    };
    let is_over = denies(&rule);
    DescriptorStatus {
        code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
        current_limit: Some(limit(&rule)),
        limit_remaining: if is_over { 0 } else { narrow(rule.decision.remaining()) },
        duration_until_reset: until_reset(&rule).map(seconds),
    }
}

/// The time until the window ends; of other limits, the wait if denied, or else the time until
/// their state is fresh.
fn until_reset(rule: &RuleReport<'_>) -> Option<Duration> {
    let wait = || rule.decision.retry_after().and_then(after);
    rule.ends.or_else(wait).or_else(|| rule.decision.reset())
}

/// Whether a rule makes its descriptor over the limit.
fn denies(rule: &RuleReport<'_>) -> bool {
    !rule.decision.is_allowed() && (rule.mode == Mode::Enforce || rule.is_quota)
}

/// Whether there are descriptors in quota mode, and all of them are over the limit.
///
/// Where all descriptors are in that mode, so are those without a limit, which are never over it;
/// those that are unlimited are not.
pub(super) fn is_over_all_quotas(report: &Report, descriptors: usize) -> bool {
    let is_over = |index| match report.details().rules_of(index).find(|rule| rule.is_quota) {
        Some(rule) => Some(!rule.decision.is_allowed()),
        None => (report.details().is_quota_mode_for_all() && !report.details().is_unlimited(index))
            .then_some(false),
    };
    let mut quotas = (0..descriptors).filter_map(is_over).peekable();
    quotas.peek().is_some() && quotas.all(|is_over| is_over)
}

/// The precedence of a rule: denied before allowed, enforced before shadow, then the longest wait,
/// or the fewest remaining units.
fn weight(rule: &RuleReport<'_>) -> (bool, bool, Duration, u64) {
    let is_binding = rule.mode == Mode::Enforce || rule.is_quota;
    let denies = denies(rule);
    let wait = rule.decision.retry_after().filter(|_| denies);
    let wait = wait.map_or(Duration::ZERO, |wait| after(wait).unwrap_or(Duration::MAX));
    (denies, is_binding, wait, u64::MAX - rule.decision.remaining())
}

fn limit(rule: &RuleReport<'_>) -> RateLimit {
    let unit = match rule.span.and_then(WindowUnit::of_length) {
        None => rate_limit::Unit::Unknown,
        Some(WindowUnit::Second) => rate_limit::Unit::Second,
        Some(WindowUnit::Minute) => rate_limit::Unit::Minute,
        Some(WindowUnit::Hour) => rate_limit::Unit::Hour,
        Some(WindowUnit::Day) => rate_limit::Unit::Day,
        Some(WindowUnit::Week) => rate_limit::Unit::Week,
        Some(WindowUnit::Month) => rate_limit::Unit::Month,
        Some(WindowUnit::Year) => rate_limit::Unit::Year,
    };
    let requests_per_unit = narrow(capacity(rule));
    RateLimit { requests_per_unit, unit: unit.into(), name: rule.rule.name().into() }
}

/// The capacity of a limit: 0 if it is below the cost of every request, which a postpaid rule books
/// all the same.
fn capacity(rule: &RuleReport<'_>) -> u64 {
    let max = rule.decision.limit();
    let is_prepaid = rule.charging != Charging::Postpaid;
    if is_prepaid && rule.price.is_some_and(|price| price > max) { 0 } else { max }
}

/// The headers for the client: `retry-after`, and those of the configured dialect, of the enforced
/// rules.
pub(super) fn headers(daemon: &Daemon, report: &Report) -> Vec<HeaderValue> {
    let mut headers = Vec::new();
    let mut put = |key: &str, value: &[u8]| {
        let value = String::from_utf8_lossy(value).into_owned();
        headers.push(HeaderValue { key: key.into(), value });
    };
    if let Some(wait) = report.retry_after().and_then(after) {
        put("retry-after", seconds(wait).seconds.to_string().as_bytes());
    }
    let enforced = report.rules().filter(|it| it.mode == Mode::Enforce);
    let lines: SmallVec<[LimitFields<'_>; 4]> = enforced.map(|it| limit_fields(&it)).collect();
    let dialect = lines
        .iter()
        .position(|line| Some(line.name) == report.rule().map(RuleId::name))
        .unwrap_or(0);
    daemon.settings.dialect.write(&lines, dialect, put);
    headers
}

fn limit_fields<'r>(rule: &RuleReport<'r>) -> LimitFields<'r> {
    let fields = LimitFields::new(rule.rule.name(), rule.decision);
    let limit = capacity(rule);
    LimitFields { span: rule.span, limit, remaining: fields.remaining.min(limit), ..fields }
}

fn after(wait: Wait) -> Option<Duration> {
    match wait {
        Wait::After(wait) => Some(wait),
        Wait::Never | Wait::Unknown => None,
    }
}

/// Whole seconds, rounded up, so that a retry then is not too early.
fn seconds(duration: Duration) -> rls::Duration {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    rls::Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
