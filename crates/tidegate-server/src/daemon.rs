//! The state that all protocols share.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate::{AnyStore, Clock, Engine, Timestamp};

use crate::audit::AuditTrail;
use crate::connections::ListenerConnections;
use crate::policy_watcher::Reload;
use crate::resp::ThrottleTables;
use crate::settings::Settings;
use crate::telemetry::{Metrics, Top};

/// The engine of a daemon.
pub(crate) type DaemonEngine = Engine<AnyStore>;

/// The state that all protocols share.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) engine: DaemonEngine,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) top: Top,
    pub(crate) connections: ListenerConnections,
    /// Buckets outside the policy, of RESP.
    pub(crate) throttles: ThrottleTables,
    /// The status of policy reloads.
    pub(crate) reload: Reload,
    /// Changes at run time.
    pub(crate) audit: Arc<AuditTrail>,
    started_at: Timestamp,
    started_wall: Timestamp,
}

/// A handle to the daemon: each connection has one.
pub(crate) type SharedDaemon = Arc<Daemon>;

/// Whether the daemon is ready, as `/readyz` reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    /// The failure of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
    /// Why the policy file is not in force. The daemon is ready all the same: the previous policy
    /// is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// Settings of the policy file that need a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs_restart: Vec<&'static str>,
}

impl Daemon {
    pub(crate) fn new(engine: DaemonEngine, settings: Settings) -> Self {
        let daemon = Self {
            started_at: engine.clock().now(),
            started_wall: engine.clock().wall(),
            top: Top::new(settings.hides_keys),
            connections: ListenerConnections::new(&settings.bounds),
            throttles: ThrottleTables::new(settings.policy.server()),
            metrics: Metrics::default(),
            reload: Reload::default(),
            audit: AuditTrail::of(&engine),
            engine,
            settings,
        };
        daemon.know_domains();
        daemon
    }

    /// When the daemon started, by the wall clock.
    pub(crate) fn started_wall(&self) -> Timestamp {
        self.started_wall
    }

    /// How long the daemon has been running.
    pub(crate) fn uptime(&self) -> Duration {
        let now_ns = self.engine.clock().now().as_nanos();
        Duration::from_nanos(now_ns.saturating_sub(self.started_at.as_nanos()))
    }

    /// Whether the daemon is ready, and what is wrong if not.
    pub(crate) fn readiness(&self) -> Readiness {
        let store = self.engine.on_disk().and_then(|store| store.failure());
        let store = store.map(|error| format!("the store cannot write: {error}"));
        let reload = self.reload.status();
        let policy = reload.short_error();
        Readiness { ready: store.is_none(), store, policy, needs_restart: reload.needs_restart }
    }
}
