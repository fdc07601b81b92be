//! The metrics of TLS.

use tidegate_listen::tls::HandshakeOutcome;

use super::exposition::Exposition;
use crate::tls::{ListenersTls, WatchedTls};

/// Writes the metrics, if a listener has TLS.
pub(super) fn write_tls(tls: &ListenersTls, text: &mut Exposition) {
    let listeners: Vec<_> = tls.listeners().collect();
    if listeners.is_empty() {
        return;
    }
    type Gauge = fn(&WatchedTls) -> u64;
    let gauges: [(_, _, Gauge); 3] = [
        (
            "tidegate_tls_certificate_expiry_timestamp_seconds",
            "When the certificate of a listener expires, in Unix time.",
            |it| u64::try_from(it.tls.config().expires_at()).unwrap_or(0),
        ),
        (
            "tidegate_tls_certificate_remaining_seconds",
            "Seconds until the certificate of a listener expires; 0 if it has.",
            |it| u64::try_from(it.expires_in_secs()).unwrap_or(0),
        ),
        (
            "tidegate_tls_is_current",
            "1 if the certificate files in their current form are in force, else 0.",
            |it| u64::from(it.status().error.is_none()),
        ),
    ];
    for (name, help, gauge) in gauges {
        text.family(name, "gauge", help);
        for it in &listeners {
            text.sample(name, &[("listener", it.listener.name())], gauge(it));
        }
    }
    let name = "tidegate_tls_reloads_total";
    text.family(name, "counter", "Number of certificate reloads, by outcome: ok or failed.");
    for it in &listeners {
        let status = it.status();
        for (outcome, count) in [("ok", status.ok), ("failed", status.failed)] {
            let labels = [("listener", it.listener.name()), ("outcome", outcome)];
            text.sample(name, &labels, count);
        }
    }
    let name = "tidegate_tls_handshakes_total";
    text.family(name, "counter", "Number of TLS handshakes, by outcome.");
    for it in &listeners {
        for outcome in HandshakeOutcome::ALL {
            let labels = [("listener", it.listener.name()), ("outcome", outcome.name())];
            text.sample(name, &labels, it.tls.count(outcome));
        }
    }
    let name = "tidegate_tls_handshakes_in_progress";
    text.family(name, "gauge", "Number of TLS handshakes that have begun and not ended.");
    text.sample(name, &[], tls.handshakes_in_progress() as u64);
}
