//! The metrics in the text format of Prometheus.

use std::fmt::Write as _;
use std::time::Duration;

use tidegate::redis::Redis;
use tidegate::{StoreEngine, Timestamp, report::BookingTally};

use super::process::write_process;
use super::tls::write_tls;
use super::{Metrics, Verdicts};
use crate::access::{AccessControl, DenialReason};
use crate::connections::ListenerConnections;
use crate::listener::Listener;
use crate::reload::Reload;
use crate::throttles::ThrottleKeys;
use crate::tls::ListenersTls;
use tidegate_listen::{BudgetKind, ConnectionCounts};

/// What the metrics are read from.
#[derive(Debug)]
pub(crate) struct MetricsSources<'a> {
    pub(crate) engine: &'a StoreEngine,
    pub(crate) metrics: &'a Metrics,
    pub(crate) access: &'a AccessControl,
    pub(crate) connections: &'a ListenerConnections,
    pub(crate) throttles: &'a ThrottleKeys,
    pub(crate) reload: &'a Reload,
    pub(crate) tls: &'a ListenersTls,
    /// The store that several daemons share.
    pub(crate) redis: Option<&'a Redis>,
    /// When the daemon started, by the wall clock.
    pub(crate) started: Timestamp,
    /// How long it has been running.
    pub(crate) uptime: Duration,
}

/// One of the counters of a postpaid rule.
type BookedUnits = fn(&BookingTally) -> u64;

impl MetricsSources<'_> {
    /// All metrics, in the text format of Prometheus.
    ///
    /// A key is never a label: the size of the text grows with the policy, not with the clients.
    pub(crate) fn text(&self) -> String {
        let mut text = Exposition::default();
        self.write_decisions(&mut text);
        self.write_connections(&mut text);
        self.metrics.write_listeners(&mut text);
        self.write_access(&mut text);
        self.write_budgets(&mut text);
        self.write_table(&mut text);
        self.write_throttles(&mut text);
        self.write_disk(&mut text);
        self.write_shared_store(&mut text);
        self.write_reloads(&mut text);
        write_tls(self.tls, &mut text);
        write_process(self.started, &mut text);
        text.family("tidegate_build_info", "gauge", "Version of the daemon; the value is 1.");
        text.sample("tidegate_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        text.family("tidegate_uptime_seconds", "gauge", "Seconds since the daemon started.");
        text.seconds("tidegate_uptime_seconds", &[], self.uptime);
        text.0
    }

    fn write_decisions(&self, text: &mut Exposition) {
        let name = "tidegate_decisions_total";
        text.family(name, "counter", "Number of decisions, by rule, outcome and mode.");
        for tally in self.engine.tallies() {
            for (outcome, count) in [("allow", tally.allowed), ("deny", tally.denied)] {
                let labels = [
                    ("domain", tally.rule.domain()),
                    ("rule", tally.rule.name()),
                    ("outcome", outcome),
                    ("mode", tally.mode.name()),
                ];
                text.sample(name, &labels, count);
            }
        }
        self.write_bookings(text);
        self.metrics.write_unmatched(&self.engine.policy(), text);
        let single = [
            ("tidegate_banned_total", "Number of requests denied by a ban.", &self.metrics.banned),
            (
                "tidegate_outages_total",
                "Number of requests decided by on_error, because the store was unavailable.",
                &self.metrics.outages,
            ),
            (
                "tidegate_local_decisions_total",
                "Number of those requests that local shares of the limits decided.",
                &self.metrics.local_decisions,
            ),
        ];
        for (name, help, counter) in single {
            text.family(name, "counter", help);
            text.sample(name, &[], counter.get());
        }
        let name = "tidegate_throttle_total";
        text.family(name, "counter", "Number of CL.THROTTLE calls, by outcome.");
        let Verdicts { allowed, denied } = &self.metrics.throttle;
        for (outcome, counter) in [("allow", allowed), ("deny", denied)] {
            text.sample(name, &[("outcome", outcome)], counter.get());
        }
    }

    /// What postpaid rules have booked. Without one the families are empty.
    fn write_bookings(&self, text: &mut Exposition) {
        let bookings = self.engine.bookings();
        let families: [(&str, &str, BookedUnits); 4] = [
            (
                "tidegate_booked_units_total",
                "Units that checks of postpaid rules have charged.",
                |it| it.booked,
            ),
            (
                "tidegate_overdrawn_units_total",
                "Of the booked units, those beyond what was left.",
                |it| it.overdrawn,
            ),
            (
                "tidegate_forgiven_units_total",
                "Units that checks of postpaid rules did not charge, because of the debt or the size of a state.",
                |it| it.forgiven,
            ),
            (
                "tidegate_unbooked_units_total",
                "Units that checks of postpaid rules did not charge, because another rule denied the request.",
                |it| it.unbooked,
            ),
        ];
        for (name, help, units) in families {
            text.family(name, "counter", help);
            for tally in &bookings {
                let labels = [("domain", tally.rule.domain()), ("rule", tally.rule.name())];
                text.sample(name, &labels, units(tally));
            }
        }
    }

    fn write_access(&self, text: &mut Exposition) {
        let name = "tidegate_access_denied_total";
        text.family(name, "counter", "Number of requests denied access, by listener and reason.");
        for listener in Listener::ALL {
            for reason in DenialReason::ALL {
                let labels = [("listener", listener.name()), ("reason", reason.name())];
                text.sample(name, &labels, self.access.denied(listener, reason));
            }
        }
        let Some(tokens) = self.access.tokens() else { return };
        text.family("tidegate_tokens", "gauge", "Number of tokens in force.");
        text.sample("tidegate_tokens", &[], tokens as u64);
        let name = "tidegate_token_reloads_total";
        text.family(name, "counter", "Number of reloads of the token file, by outcome.");
        let reloads = self.access.status.reloads();
        for (outcome, count) in [("ok", reloads.ok), ("failed", reloads.failed)] {
            text.sample(name, &[("outcome", outcome)], count);
        }
    }

    fn write_throttles(&self, text: &mut Exposition) {
        let name = "tidegate_throttle_keys";
        text.family(name, "gauge", "Number of keys of CL.THROTTLE.");
        text.sample(name, &[], self.throttles.len() as u64);
    }

    fn write_reloads(&self, text: &mut Exposition) {
        let status = self.reload.status();
        let name = "tidegate_policy_reloads_total";
        text.family(name, "counter", "Number of policy reloads, by outcome: ok or failed.");
        for (outcome, count) in [("ok", status.ok), ("failed", status.failed)] {
            text.sample(name, &[("outcome", outcome)], count);
        }
        let name = "tidegate_policy_is_current";
        text.family(name, "gauge", "1 if the policy file in its current form is in force, else 0.");
        text.sample(name, &[], u64::from(status.is_current()));
    }

    fn write_connections(&self, text: &mut Exposition) {
        type Counted = fn(&ConnectionCounts) -> u64;
        let families: [(_, _, _, Counted); 3] = [
            ("tidegate_connections_total", "counter", "Number of accepted connections.", |it| {
                it.accepted
            }),
            (
                "tidegate_connections_refused_total",
                "counter",
                "Number of connections refused, because there were too many.",
                |it| it.refused,
            ),
            ("tidegate_connections", "gauge", "Number of open connections.", |it| {
                it.accepted.saturating_sub(it.closed)
            }),
        ];
        for (name, kind, help, count) in families {
            text.family(name, kind, help);
            for listener in Listener::ALL {
                let counts = self.connections.of(listener).counts();
                text.sample(name, &[("listener", listener.name())], count(&counts));
            }
        }
    }

    fn write_budgets(&self, text: &mut Exposition) {
        let name = "tidegate_budget_bytes";
        text.family(name, "gauge", "Bytes that connections hold: being received, or not yet sent.");
        for kind in BudgetKind::ALL {
            let used = self.connections.all().bytes_held(kind) as u64;
            text.sample(name, &[("budget", kind.name())], used);
        }
        let name = "tidegate_connections_closed_for_budget_total";
        let help = "Number of connections closed, because a byte budget was exceeded.";
        text.family(name, "counter", help);
        for listener in Listener::ALL {
            for kind in BudgetKind::ALL {
                let count = self.connections.of(listener).counts().closed_for_budget[kind as usize];
                let labels = [("listener", listener.name()), ("budget", kind.name())];
                text.sample(name, &labels, count);
            }
        }
    }

    fn write_table(&self, text: &mut Exposition) {
        let policy = self.engine.policy();
        let max_keys = policy.settings().max_keys();
        let rules = policy.rules().iter().filter(|it| !it.is_placeholder()).count() as u64;
        let gauges = [
            (
                "tidegate_table_keys",
                "Number of keys with a state of their own.",
                self.engine.len() as u64,
            ),
            ("tidegate_table_keys_max", "Maximum number of keys (max_keys).", max_keys),
            ("tidegate_table_bytes", "Bytes of memory for states.", self.engine.bytes() as u64),
            ("tidegate_rules", "Number of rules in the policy.", rules),
        ];
        for (name, help, value) in gauges {
            text.family(name, "gauge", help);
            text.sample(name, &[], value);
        }
        let name = "tidegate_idempotency_keys_evicted_total";
        let help = "Number of idempotency keys forgotten early, because there were too many.";
        text.family(name, "counter", help);
        text.sample(name, &[], self.engine.evicted_idempotency_keys());
        let name = "tidegate_abandoned_operations_dropped_total";
        let help = "Number of operations of disconnected clients not completed, because there were too many.";
        text.family(name, "counter", help);
        text.sample(name, &[], self.engine.dropped_operations());
    }

    fn write_disk(&self, text: &mut Exposition) {
        let Some(store) = self.engine.file_store() else { return };
        let name = "tidegate_store_writable";
        text.family(name, "gauge", "1 if the store can write to its disk, else 0.");
        text.sample(name, &[], u64::from(store.failure().is_none()));
        let counts = store.counts();
        let counters = [
            ("tidegate_log_records_total", "Number of records written to the log.", counts.records),
            ("tidegate_log_bytes_total", "Bytes written to the log.", counts.bytes),
            ("tidegate_log_syncs_total", "Number of syncs of the log to disk.", counts.syncs),
        ];
        for (name, help, value) in counters {
            text.family(name, "counter", help);
            text.sample(name, &[], value);
        }
    }
}

impl MetricsSources<'_> {
    /// What a store that several daemons share does.
    fn write_shared_store(&self, text: &mut Exposition) {
        let Some(redis) = self.redis else { return };
        let name = "tidegate_store_available";
        text.family(
            name,
            "gauge",
            "1 if the shared store responds and does what it is sent, else 0.",
        );
        text.sample(name, &[], u64::from(redis.is_available()));
        let name = "tidegate_store_clock_uncertainty_seconds";
        text.family(name, "gauge", "How exactly the clock of the shared store is known.");
        text.seconds(name, &[], redis.clock().uncertainty());
        if let Some(server) = redis.server() {
            let name = "tidegate_store_replicas";
            text.family(name, "gauge", "Number of replicas connected to the shared store.");
            text.sample(name, &[], u64::from(server.replicas));
            if server.replicas > 0 {
                let name = "tidegate_store_replica_lag_bytes";
                let help = "What the replica furthest behind has not acknowledged, in bytes.";
                text.family(name, "gauge", help);
                text.sample(name, &[], server.lag.bytes);
                let name = "tidegate_store_replica_lag_seconds";
                let help = "Time since the last acknowledgement of the replica furthest behind.";
                text.family(name, "gauge", help);
                text.sample(name, &[], server.lag.seconds);
            }
            if let Some(keys) = server.keys {
                let name = "tidegate_store_database_keys";
                let help = "Number of keys in the database of the shared store.";
                text.family(name, "gauge", help);
                text.sample(name, &[], keys);
            }
        }
        for (name, help, value) in redis.stats().named() {
            let name = format!("tidegate_store_{name}_total");
            text.family(&name, "counter", help);
            text.sample(&name, &[], value);
        }
    }
}

impl Metrics {
    fn write_listeners(&self, text: &mut Exposition) {
        let name = "tidegate_malformed_total";
        text.family(name, "counter", "Number of malformed requests and connections.");
        for listener in Listener::ALL {
            let count = self.listener(listener).malformed.get();
            text.sample(name, &[("listener", listener.name())], count);
        }
        let name = "tidegate_request_duration_seconds";
        text.family(
            name,
            "histogram",
            "Seconds from reading a request to its response being ready.",
        );
        for listener in Listener::ALL {
            text.histogram(name, listener.name(), &self.listener(listener).durations.read());
        }
    }
}

/// The text under construction.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let labels = Labels(labels);
        self.line(format_args!("{name}{labels} {value}"));
    }

    pub(super) fn seconds(&mut self, name: &str, labels: &[(&str, &str)], value: Duration) {
        let labels = Labels(labels);
        let (whole, nanos) = (value.as_secs(), value.subsec_nanos());
        self.line(format_args!("{name}{labels} {whole}.{nanos:09}"));
    }

    fn histogram(&mut self, name: &str, listener: &str, reading: &super::histogram::Reading) {
        for (bound, count) in &reading.at_most {
            let bound = decimal(*bound);
            self.sample(
                &format!("{name}_bucket"),
                &[("listener", listener), ("le", &bound)],
                *count,
            );
        }
        let all = [("listener", listener), ("le", "+Inf")];
        self.sample(&format!("{name}_bucket"), &all, reading.count);
        self.seconds(&format!("{name}_sum"), &all[..1], reading.sum);
        self.sample(&format!("{name}_count"), &all[..1], reading.count);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Seconds without needless zeros.
fn decimal(time: Duration) -> String {
    let text = format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Labels in braces, with escaped values.
struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl std::fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        f.write_str("{")?;
        for (index, (name, value)) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            write!(f, "{name}=\"")?;
            for character in value.chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    // Other control characters are valid, but unsafe in a terminal.
                    other if other.is_control() => write!(f, "\\\\u{:x}", u32::from(other))?,
                    other => f.write_char(other)?,
                }
            }
            f.write_str("\"")?;
        }
        f.write_str("}")
    }
}
