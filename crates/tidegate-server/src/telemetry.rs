//! What the daemon counts about itself, and how it tells.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{Clock, Report, Request, Timestamp};

use crate::daemon::Daemon;
use crate::listener::Listener;
pub(crate) use histogram::Histogram;
pub(crate) use top::{Top, TopKey};

mod exposition;
mod histogram;
mod top;

/// Counters of everything but decisions, which rules count themselves.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By door, in the order of [`Door::ALL`].
    listeners: [ListenerMetrics; Listener::ALL.len()],
    /// Requests that no rule had to do with.
    unmatched: Counter,
    /// Requests of those who are banned.
    banned: Counter,
    /// Requests that the store could not answer, so that `on_error` did.
    outages: Counter,
    /// Buckets outside the policy, by command: allowed and refused.
    pub(crate) cl_throttle: Verdicts,
    pub(crate) throttle: Verdicts,
}

/// What is counted at one door.
#[derive(Debug, Default)]
pub(crate) struct ListenerMetrics {
    pub(crate) accepted: Counter,
    /// Connections for which there was no place.
    pub(crate) refused: Counter,
    /// Connections that have gone.
    pub(crate) closed: Counter,
    /// What came and made no sense.
    pub(crate) malformed: Counter,
    /// How long requests took, from when they were read to when the answer was ready.
    pub(crate) durations: Histogram,
}

/// Something that is counted.
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

/// How often something was allowed, and how often not.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    pub(crate) allowed: Counter,
    pub(crate) denied: Counter,
}

impl Metrics {
    pub(crate) fn listener(&self, listener: Listener) -> &ListenerMetrics {
        &self.listeners[listener as usize]
    }
}

impl Daemon {
    /// The time by which requests are measured.
    pub(crate) fn now(&self) -> Timestamp {
        self.engine.clock().now()
    }

    /// Counts what was decided about a request.
    ///
    /// Every protocol calls this once for each decision that it tells somebody.
    pub(crate) fn observe(&self, listener: Listener, request: &Request<'_>, report: &Report) {
        let now = self.now();
        report.count();
        if report.is_outage() {
            self.metrics.outages.add(1);
        } else if report.is_banned() {
            self.metrics.banned.add(1);
        } else if !report.is_matched() {
            self.metrics.unmatched.add(1);
        }
        if let Some(weight) = sampled(now)
            && let Some(key) = report.key_of(request)
        {
            self.top.add(&key, report.is_allowed(), weight, now);
        }
        if !report.is_allowed() {
            self.log_refusal(listener, request, report);
        }
    }

    /// Counts how long so many requests took that were read at `since` and are answered now.
    ///
    /// Every protocol calls this once for what it answers together, whatever was asked.
    pub(crate) fn observe_durations(&self, listener: Listener, since: Timestamp, count: u64) {
        let took_ns = self.now().as_nanos().saturating_sub(since.as_nanos());
        self.metrics.listener(listener).durations.add(Duration::from_nanos(took_ns), count);
    }

    /// One line for each refusal, for those who want to see them.
    fn log_refusal(&self, listener: Listener, request: &Request<'_>, report: &Report) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let key = report.key_of(request).map(|key| TopKey::new(&key, self.settings.hides_keys));
        tracing::debug!(
            %listener,
            domain = ?request.domain(),
            rule = report.rule(),
            key = key.map(|key| key.describe()),
            wait = ?report.wait(),
            "refused"
        );
    }
}

/// Whether a decision is looked at closely, and for how many it stands then.
///
/// All of them are, as long as there are few; of many it is one in sixteen.
fn sampled(now: Timestamp) -> Option<u64> {
    thread_local! {
        /// The second that it is, and how many decisions there were in it.
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

/// So many decisions in a second, by each thread, are all looked at.
const ALL_UP_TO: u64 = 512;
const ONE_IN: u64 = 16;

#[cfg(test)]
mod tests;
