//! The state that all protocols share.
//!
//! It is put together at the start. Its parts do not know it: each takes what it needs as arguments,
//! and only protocols and [`Server`](crate::Server) use the whole.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use tidegate::policy::ServerSettings;
use tidegate::{
    Report, Request, StoreEngine, Timestamp,
    clock::{Clock, MonotonicClock},
};
use tidegate_listen::ShutdownSignal;

use crate::access::{AccessControl, SessionTimes, Sessions};
use crate::audit::AuditTrail;
use crate::body::DecisionId;
use crate::connections::ListenerConnections;
use crate::listener::Listener;
use crate::reload::Reload;
use crate::settings::Settings;
use crate::telemetry::{Metrics, MetricsSources};
use crate::throttles::{ThrottleKeys, throttle_keys};
use crate::tls::ListenersTls;
use crate::traffic::Traffic;

/// The state that all protocols share.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) engine: StoreEngine,
    pub(crate) settings: Arc<Settings>,
    /// Which clients may do what.
    pub(crate) access: Arc<AccessControl>,
    pub(crate) metrics: Metrics,
    /// Samples of the traffic.
    pub(crate) traffic: Traffic,
    /// Logins of the dashboard.
    pub(crate) sessions: Sessions,
    pub(crate) connections: ListenerConnections,
    /// Buckets outside the policy, of RESP.
    pub(crate) throttles: ThrottleKeys,
    /// The status of policy reloads.
    pub(crate) reload: Arc<Reload>,
    /// The certificates of the listeners.
    pub(crate) tls: ListenersTls,
    /// Changes at run time.
    pub(crate) audit: Arc<AuditTrail>,
    started_at: Timestamp,
    started_wall: Timestamp,
}

/// A handle to the daemon: each connection has one.
pub(crate) type SharedDaemon = Arc<Daemon>;

/// Whether the daemon can decide requests, as `/readyz` reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Readiness {
    /// False while the daemon stops. Before it can decide, its listeners are closed.
    pub(crate) ready: bool,
    /// What decisions have to do without: then `on_error` decides in its place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) degraded: Vec<&'static str>,
    /// The failure of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
    /// Why the policy file is not in force. The daemon is ready all the same: the previous policy
    /// is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// Why the token file is not in force; the previous tokens are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<String>,
    /// Why the files of TLS are not in force, or that a certificate has expired. The daemon is ready
    /// all the same: to take it out of service would help no client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<String>,
    /// Settings of the policy file that need a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs_restart: Vec<&'static str>,
}

impl Readiness {
    /// The status of `GET /readyz`, and with the parameter `strict` also of a daemon that has to
    /// do without a part.
    pub(crate) fn status(&self, query: Option<&str>) -> StatusCode {
        let is_strict = query.is_some_and(|query| query.split('&').any(|it| it == "strict"));
        match self.ready && (!is_strict || self.degraded.is_empty()) {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Daemon {
    /// Without tokens and TLS.
    pub(crate) fn new(engine: StoreEngine, settings: Settings) -> Self {
        let metrics = Metrics::new(settings.hides_keys);
        metrics.know_domains(&engine.policy());
        Self {
            started_at: MonotonicClock.now(),
            started_wall: engine.clock().wall(),
            connections: ListenerConnections::new(&settings.bounds),
            throttles: throttle_keys(settings.policy.settings()),
            access: Arc::new(AccessControl::new(None)),
            metrics,
            traffic: Traffic::new(settings.hides_keys),
            sessions: Sessions::default(),
            reload: Arc::default(),
            tls: ListenersTls::default(),
            audit: AuditTrail::of(&engine),
            engine,
            settings: Arc::new(settings),
        }
    }

    /// The same with TLS.
    pub(crate) fn with_tls(self, tls: ListenersTls) -> Self {
        Self { tls, ..self }
    }

    /// The same with the access of clients.
    pub(crate) fn with_access(self, access: AccessControl) -> Self {
        Self { access: Arc::new(access), ..self }
    }

    /// The time by which requests are measured.
    pub(crate) fn now(&self) -> Timestamp {
        MonotonicClock.now()
    }

    /// The time of the calendar.
    pub(crate) fn wall(&self) -> Timestamp {
        self.engine.clock().wall()
    }

    /// The time that the holder of a reservation or a lease counts by.
    pub(crate) fn latest(&self) -> Timestamp {
        self.engine.clock().latest()
    }

    /// The settings for the daemon in the policy file that is in force. Some need a restart.
    pub(crate) fn file_settings(&self) -> Arc<ServerSettings> {
        let loaded = self.reload.lock().server.clone();
        loaded.unwrap_or_else(|| Arc::clone(&self.settings.server))
    }

    /// The times that sessions of the dashboard go by.
    pub(crate) fn session_times(&self) -> SessionTimes {
        SessionTimes { now: self.now(), wall: self.wall() }
    }

    /// How long ago this was.
    pub(crate) fn elapsed(&self, since: Timestamp) -> Duration {
        Duration::from_nanos(self.now().as_nanos().saturating_sub(since.as_nanos()))
    }

    /// How long the daemon has been running.
    pub(crate) fn uptime(&self) -> Duration {
        self.elapsed(self.started_at)
    }

    /// Counts the decision on a request, and returns its id.
    ///
    /// Every protocol calls this once for each decision that it sends.
    pub(crate) fn observe(
        &self,
        listener: Listener,
        request: &Request<'_>,
        report: &Report,
    ) -> DecisionId {
        self.observe_together(listener, std::slice::from_ref(request), report)
    }

    /// The same for requests that were decided as one.
    pub(crate) fn observe_together(
        &self,
        listener: Listener,
        requests: &[Request<'_>],
        report: &Report,
    ) -> DecisionId {
        let id = DecisionId::next();
        if let Some(decisive) = requests.get(report.details().decisive_request()) {
            self.metrics.observe(self.now(), listener, decisive, report);
        }
        self.traffic.observe(&self.engine, id, listener, requests, report);
        id
    }

    /// Counts the duration of a batch of requests that were read at `since` and are done now.
    ///
    /// Every protocol calls this once for each batch, whatever its requests are.
    pub(crate) fn observe_durations(&self, listener: Listener, since: Timestamp, count: u64) {
        self.metrics.listener(listener).durations.add(self.elapsed(since), count);
    }

    /// All metrics, in the text format of Prometheus.
    pub(crate) fn metrics_text(&self) -> String {
        let Self { engine, metrics, access, connections, throttles, reload, tls, settings, .. } =
            self;
        let (started, uptime) = (self.started_wall, self.uptime());
        let redis = settings.redis.as_ref();
        let sources = MetricsSources {
            engine,
            metrics,
            access,
            connections,
            throttles,
            reload,
            tls,
            redis,
            started,
            uptime,
        };
        sources.text()
    }

    /// Whether the daemon can decide requests, and what is wrong.
    ///
    /// Without its store it still can, by `on_error`: proxies let requests pass that no daemon is
    /// ready for, so a daemon that denies in an outage has to be ready in it.
    pub(crate) fn readiness(&self, shutdown: &ShutdownSignal) -> Readiness {
        let store = self.store_problem();
        let degraded = store.iter().map(|_| "store").collect();
        let reload = self.reload.status();
        Readiness {
            ready: !shutdown.is_wanted(),
            degraded,
            store,
            policy: reload.short_error(),
            tokens: self.access.status.reloads().short_error(),
            tls: self.tls.problem(),
            needs_restart: reload.needs_restart,
        }
    }

    /// Why some or all rules follow `on_error`.
    fn store_problem(&self) -> Option<String> {
        let store = self.engine.file_store().and_then(|store| store.failure());
        let store = store.map(|error| format!("the store cannot write; on_error applies: {error}"));
        let redis = self.settings.redis.as_ref();
        let away = redis.filter(|redis| !redis.is_available()).map(|redis| {
            let reason = redis.failure().unwrap_or_else(|| "no response".to_owned());
            format!("the store is not available; on_error applies: {reason}")
        });
        let lacking = redis.and_then(|redis| redis.check_durability(&self.engine.policy()).err());
        store.or(away).or(lacking.map(|error| error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use tidegate::policy::{Parsed, Policy};
    use tidegate_listen::ShutdownTrigger;

    use super::Daemon;
    use crate::settings::Settings;

    #[tokio::test]
    async fn a_daemon_that_is_stopping_is_not_ready() {
        let policy = "[[rule]]\nname = 'r'\ncooldown = '1s'\n";
        let policy = Policy::from_toml(policy).unwrap();
        let engine = tidegate::StoreEngine::new(policy.clone());
        let daemon = Daemon::new(engine, Settings::on_free_ports(Parsed::from_code(policy)));
        let stop = ShutdownTrigger::new();
        let signal = stop.signal();
        let before = daemon.readiness(&signal);
        assert_eq!((before.ready, before.status(Some("strict"))), (true, StatusCode::OK));
        assert!(!stop.stop(Duration::ZERO).await, "its signal is in use");
        let after = daemon.readiness(&signal);
        assert_eq!((after.ready, after.status(None)), (false, StatusCode::SERVICE_UNAVAILABLE));
    }
}
