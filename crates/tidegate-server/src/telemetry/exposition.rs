//! The text that Prometheus reads.

use std::fmt::Write as _;
use std::time::Duration;

use tidegate::policy::Mode;
use tidegate_proto::resp::ThrottleDialect;

use super::{Metrics, Verdicts};
use crate::daemon::Daemon;
use crate::listener::Listener;

impl Daemon {
    /// Everything that is counted, as Prometheus reads it.
    ///
    /// A key is never a label: what is told grows with the policy, not with those who ask.
    pub(crate) fn metrics_text(&self) -> String {
        let mut text = Exposition::default();
        self.write_decisions(&mut text);
        self.metrics.write_listeners(&mut text);
        self.write_table(&mut text);
        self.write_throttles(&mut text);
        self.write_disk(&mut text);
        self.write_reloads(&mut text);
        text.family("tidegate_build_info", "gauge", "What is running.");
        text.sample("tidegate_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        text.family("tidegate_uptime_seconds", "gauge", "How long the daemon has been at work.");
        text.seconds("tidegate_uptime_seconds", &[], self.uptime());
        text.0
    }

    fn write_decisions(&self, text: &mut Exposition) {
        let name = "tidegate_decisions_total";
        text.family(name, "counter", "What each rule said about requests.");
        for tally in self.engine.tallies() {
            let mode = match tally.mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
            };
            for (outcome, count) in [("allow", tally.allowed), ("deny", tally.denied)] {
                let labels = [
                    ("domain", &*tally.domain),
                    ("rule", &*tally.rule),
                    ("outcome", outcome),
                    ("mode", mode),
                ];
                text.sample(name, &labels, count);
            }
        }
        let single = [
            ("tidegate_unmatched_total", "Requests that no rule matched.", &self.metrics.unmatched),
            ("tidegate_banned_total", "Requests of those who are banned.", &self.metrics.banned),
            (
                "tidegate_outages_total",
                "Requests that the store could not answer, so that `on_error` did.",
                &self.metrics.outages,
            ),
        ];
        for (name, help, counter) in single {
            text.family(name, "counter", help);
            text.sample(name, &[], counter.get());
        }
        let name = "tidegate_throttle_total";
        text.family(name, "counter", "Answers of the buckets outside the policy.");
        let commands =
            [("CL.THROTTLE", &self.metrics.cl_throttle), ("THROTTLE", &self.metrics.throttle)];
        for (command, Verdicts { allowed, denied }) in commands {
            for (outcome, counter) in [("allow", allowed), ("deny", denied)] {
                text.sample(name, &[("command", command), ("outcome", outcome)], counter.get());
            }
        }
    }

    fn write_throttles(&self, text: &mut Exposition) {
        let name = "tidegate_throttle_keys";
        text.family(name, "gauge", "Keys of the buckets outside the policy.");
        for (command, dialect) in [
            ("CL.THROTTLE", ThrottleDialect::RedisCell),
            ("THROTTLE", ThrottleDialect::Throttlecrab),
        ] {
            let keys = self.throttles.of(dialect).len();
            text.sample(name, &[("command", command)], keys as u64);
        }
    }

    fn write_reloads(&self, text: &mut Exposition) {
        let status = self.reload.status();
        let name = "tidegate_policy_reloads_total";
        text.family(name, "counter", "How often the policy file was put into force, and was not.");
        for (outcome, count) in [("good", status.good), ("bad", status.bad)] {
            text.sample(name, &[("outcome", outcome)], count);
        }
        let name = "tidegate_policy_is_current";
        text.family(name, "gauge", "1 if the policy file, as it is, is in force; else 0.");
        text.sample(name, &[], u64::from(status.is_current()));
    }

    fn write_table(&self, text: &mut Exposition) {
        let max_keys = self.engine.policy().server().max_keys();
        let gauges = [
            ("tidegate_table_keys", "Keys with a state of their own.", self.engine.len() as u64),
            ("tidegate_table_keys_max", "How many there may be.", max_keys),
            (
                "tidegate_table_bytes",
                "Memory in which their states are kept.",
                self.engine.bytes() as u64,
            ),
            ("tidegate_rules", "Rules in force.", self.engine.policy().rules().len() as u64),
        ];
        for (name, help, value) in gauges {
            text.family(name, "gauge", help);
            text.sample(name, &[], value);
        }
    }

    fn write_disk(&self, text: &mut Exposition) {
        let Some(store) = self.engine.on_disk() else { return };
        let name = "tidegate_store_writable";
        text.family(name, "gauge", "Whether the disk takes what has to be written.");
        text.sample(name, &[], u64::from(store.failure().is_none()));
        let counts = store.counts();
        let counters = [
            ("tidegate_log_records_total", "Records in the log.", counts.records),
            ("tidegate_log_bytes_total", "Bytes written to the log.", counts.bytes),
            ("tidegate_log_syncs_total", "How often the log was made safe.", counts.syncs),
        ];
        for (name, help, value) in counters {
            text.family(name, "counter", help);
            text.sample(name, &[], value);
        }
    }
}

impl Metrics {
    fn write_listeners(&self, text: &mut Exposition) {
        type Counted = fn(&super::ListenerMetrics) -> &super::Counter;
        let counters: [(_, _, Counted); 3] = [
            ("tidegate_connections_total", "Connections that were accepted.", |it| &it.accepted),
            (
                "tidegate_connections_refused_total",
                "Connections for which there was no place.",
                |it| &it.refused,
            ),
            ("tidegate_malformed_total", "What came and made no sense.", |it| &it.malformed),
        ];
        for (name, help, counter) in counters {
            text.family(name, "counter", help);
            for listener in Listener::ALL {
                text.sample(
                    name,
                    &[("listener", listener.name())],
                    counter(self.listener(listener)).get(),
                );
            }
        }
        let name = "tidegate_connections";
        text.family(name, "gauge", "Connections at the moment.");
        for listener in Listener::ALL {
            let metrics = self.listener(listener);
            // Read in this order so that the difference is never below zero.
            let closed = metrics.closed.get();
            let open = metrics.accepted.get().saturating_sub(closed);
            text.sample(name, &[("listener", listener.name())], open);
        }
        let name = "tidegate_request_duration_seconds";
        text.family(
            name,
            "histogram",
            "From when a request was read to when its answer was ready.",
        );
        for listener in Listener::ALL {
            text.histogram(name, listener.name(), &self.listener(listener).durations.read());
        }
    }
}

/// The text, as it grows.
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

/// Labels in braces, with what would end a value escaped.
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
                    // Others are allowed, but nobody wants them in a terminal.
                    other if other.is_control() => write!(f, "\\\\u{:x}", u32::from(other))?,
                    other => f.write_char(other)?,
                }
            }
            f.write_str("\"")?;
        }
        f.write_str("}")
    }
}
