//! What all protocols share.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate::{AnyStore, Clock, Engine, Timestamp};

use crate::audit::AuditTrail;
use crate::policy_watcher::Reload;
use crate::resp::ThrottleTables;
use crate::settings::Settings;
use crate::telemetry::{Metrics, Top};

/// What a daemon decides with.
pub(crate) type DaemonEngine = Engine<AnyStore>;

/// What all protocols share.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) engine: DaemonEngine,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) top: Top,
    /// Buckets outside the policy.
    pub(crate) throttles: ThrottleTables,
    /// How loading the policy file again has gone.
    pub(crate) reload: Reload,
    /// What was changed while running.
    pub(crate) audit: Arc<AuditTrail>,
    started_at: Timestamp,
}

/// A handle of it: each connection has one.
pub(crate) type SharedDaemon = Arc<Daemon>;

/// Whether the daemon can do what it is there for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    /// What is wrong with the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
    /// Why the policy file is not in force. It is no reason to be asked no more: the policy from before is
    /// in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// Settings of the policy file that are in force only after a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs_restart: Vec<&'static str>,
}

impl Daemon {
    pub(crate) fn new(engine: DaemonEngine, settings: Settings) -> Self {
        Self {
            started_at: engine.clock().now(),
            top: Top::new(settings.hides_keys),
            throttles: ThrottleTables::new(settings.policy.server()),
            metrics: Metrics::default(),
            reload: Reload::default(),
            audit: AuditTrail::of(&engine),
            engine,
            settings,
        }
    }

    /// How long it has been at work.
    pub(crate) fn uptime(&self) -> Duration {
        let now_ns = self.engine.clock().now().as_nanos();
        Duration::from_nanos(now_ns.saturating_sub(self.started_at.as_nanos()))
    }

    /// Whether it can do what it is there for, and what is wrong if not.
    pub(crate) fn readiness(&self) -> Readiness {
        let store = self.engine.on_disk().and_then(|store| store.failure());
        let store = store.map(|error| format!("the disk takes nothing: {error}"));
        let reload = self.reload.status();
        let policy = reload.short_error();
        Readiness { ready: store.is_none(), store, policy, needs_restart: reload.needs_restart }
    }
}
