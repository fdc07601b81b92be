use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::rls;
use tokio::sync::{Mutex, watch};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::daemon::SharedDaemon;
use tidegate_listen::ShutdownSignal;

/// The health service: serving until the daemon stops, also while its store is unavailable.
#[derive(Debug)]
pub(crate) struct Health {
    daemon: SharedDaemon,
    reporter: HealthReporter,
    shutdown: ShutdownSignal,
    /// The published status.
    published: Mutex<ServingStatus>,
    /// Whether the status at shutdown is published to watchers.
    is_last_published: watch::Sender<bool>,
}

impl Health {
    pub(crate) async fn new(
        daemon: SharedDaemon,
        reporter: HealthReporter,
        shutdown: ShutdownSignal,
    ) -> Self {
        for name in NAMES {
            reporter.set_service_status(name, ServingStatus::Serving).await;
        }
        let published = Mutex::new(ServingStatus::Serving);
        let is_last_published = watch::Sender::new(false);
        Self { daemon, reporter, shutdown, published, is_last_published }
    }

    /// Publishes the status, if it has changed.
    pub(crate) async fn publish(&self) {
        let is_ready = self.daemon.readiness(&self.shutdown).ready;
        let now = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        let mut published = self.published.lock().await;
        if *published != now {
            for name in NAMES {
                self.reporter.set_service_status(name, now).await;
            }
            *published = now;
        }
    }

    /// Publishes changes of the status until the daemon stops.
    pub(crate) async fn keep_publishing(self: Arc<Self>) {
        let mut shutdown = self.shutdown.clone();
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        while !shutdown.is_wanted() {
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.wanted() => {}
            }
            self.publish().await;
        }
        self.is_last_published.send_replace(true);
    }

    /// Waits until the daemon stops and watchers have the last status.
    pub(crate) fn last_published(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut published = self.is_last_published.subscribe();
        async move {
            // The sender outlives all connections.
            let _ = published.wait_for(|is_published| *is_published).await;
        }
    }
}

/// The names of the whole server, of envoyproxy/ratelimit, and of the service.
const NAMES: [&str; 3] = ["", "ratelimit", rls::SERVICE];

/// The longest time until watchers get a change.
const CHECK_EVERY: Duration = Duration::from_secs(1);
