//! Metrics of the daemon, and their exposition.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::policy::RuleId;
use tidegate::{Report, Request, Timestamp};
use tidegate_listen::Warnings;
use tidegate_proto::times::RetryFields;

use crate::listener::Listener;
pub(crate) use exposition::MetricsSources;
pub(crate) use histogram::{Histogram, Reading};
pub(crate) use process::resident_bytes;
pub(crate) use sharded_counter::ShardedCounter;
pub(crate) use top::{Top, TopKey, printable_value};
use unmatched::UnmatchedByDomain;

mod exposition;
mod histogram;
mod process;
mod sharded_counter;
mod tls;
mod top;
mod unmatched;

/// Counters of everything but the decisions of rules, which rules count themselves.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Requests by their outcome.
    pub(crate) decisions: DecisionCounters,
    /// By listener, in the order of [`Listener::ALL`].
    listeners: [ListenerMetrics; Listener::ALL.len()],
    /// Requests that no rule matched.
    pub(crate) unmatched: UnmatchedByDomain,
    /// Requests denied by a ban.
    banned: Counter,
    /// Requests decided by `on_error`, because the store was unavailable.
    outages: Counter,
    /// Those of them that local shares of the limits decided.
    local_decisions: Counter,
    /// Buckets outside the policy, by command: allowed and denied.
    pub(crate) throttle: Verdicts,
    /// Bounds the log lines about costs that were not booked.
    unbooked: Warnings,
    /// The busiest and the most denied keys.
    pub(crate) top: Top,
}

/// Decided requests by their outcome.
#[derive(Debug, Default)]
pub(crate) struct DecisionCounters {
    pub(crate) allowed: ShardedCounter,
    pub(crate) denied: ShardedCounter,
    /// Those of the allowed ones that a rule in shadow mode would have denied.
    pub(crate) shadow_denied: ShardedCounter,
}

impl DecisionCounters {
    fn add(&self, report: &Report) {
        if !report.is_allowed() {
            self.denied.add(1);
            return;
        }
        self.allowed.add(1);
        if report.details().is_denied_in_shadow() {
            self.shadow_denied.add(1);
        }
    }
}

/// The metrics of a listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerMetrics {
    /// Malformed requests and connections.
    pub(crate) malformed: Counter,
    /// Durations of requests, from being read to the response being ready.
    pub(crate) durations: Histogram,
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of allowed and denied calls.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    pub(crate) allowed: Counter,
    pub(crate) denied: Counter,
}

impl Metrics {
    /// No counts yet. Keys are shown as hashes if they are to be hidden.
    pub(crate) fn new(hides_keys: bool) -> Self {
        Self {
            decisions: DecisionCounters::default(),
            listeners: Default::default(),
            unmatched: UnmatchedByDomain::default(),
            banned: Counter::default(),
            outages: Counter::default(),
            local_decisions: Counter::default(),
            throttle: Verdicts::default(),
            unbooked: Warnings::new(),
            top: Top::new(hides_keys),
        }
    }

    pub(crate) fn listener(&self, listener: Listener) -> &ListenerMetrics {
        &self.listeners[listener as usize]
    }

    /// Counts the decision on a request, which was made about `now`.
    pub(crate) fn observe(
        &self,
        now: Timestamp,
        listener: Listener,
        request: &Request<'_>,
        report: &Report,
    ) {
        report.details().count();
        self.decisions.add(report);
        if report.is_outage() {
            self.outages.add(1);
            self.local_decisions.add(u64::from(report.details().is_local()));
        } else if report.details().is_banned() {
            self.banned.add(1);
        } else if !report.details().is_matched() {
            self.unmatched.add(request.domain());
        }
        if let Some(weight) = sampled(now)
            && let Some(key) = report.details().key_of(request)
        {
            self.top.add(&key, report.is_allowed(), weight, now);
        }
        if !report.is_allowed() {
            self.log_denial(listener, request, report);
        }
        for (rule, units) in report.details().unbooked() {
            if let Some(left_out) = self.unbooked.next() {
                let (domain, rule) = (rule.domain(), rule.name());
                let by = report.rule().map(RuleId::name);
                tracing::warn!(
                    %listener, domain, rule, units, by, left_out,
                    "a postpaid cost is not booked: another rule denied the request, or there is no room for its key"
                );
            }
        }
    }

    /// Logs a denial, at level debug.
    fn log_denial(&self, listener: Listener, request: &Request<'_>, report: &Report) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let key = report.details().key_of(request).map(|key| self.top.printable(&key));
        let RetryFields { retry_after_ms, retry } = RetryFields::new(report.retry_after());
        tracing::debug!(
            listener = listener.name(),
            domain = request.domain(),
            rule = report.rule().map(RuleId::name),
            key = key.map(|key| key.describe()),
            retry_after_ms,
            retry,
            "denied"
        );
    }
}

/// Whether a decision is sampled for the top keys, and for how many decisions it stands then.
///
/// All of them are while there are few; of many it is one in sixteen.
fn sampled(now: Timestamp) -> Option<u64> {
    thread_local! {
        /// The current second, and the number of decisions in it.
        static SEEN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }
    let second = now.as_nanos() / 1_000_000_000;
    SEEN.with(|seen| {
        let (of_second, count) = seen.get();
        let count = if of_second == second { count + 1 } else { 1 };
        seen.set((second, count));
        match count {
            0..=ALL_UP_TO => Some(1),
            _ if count % ONE_IN == 0 => Some(ONE_IN),
            _ => None,
        }
    })
}

/// Up to this many decisions per second and thread are all sampled.
const ALL_UP_TO: u64 = 512;
const ONE_IN: u64 = 16;

#[cfg(test)]
mod tests;
