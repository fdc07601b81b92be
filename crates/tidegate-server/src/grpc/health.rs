use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::rls;
use tokio::sync::{Mutex, watch};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::accept::ShutdownSignal;
use crate::daemon::SharedDaemon;

/// Tells whether calls are answered: while the daemon is ready, and until it stops.
#[derive(Debug)]
pub(crate) struct Health {
    daemon: SharedDaemon,
    reporter: HealthReporter,
    shutdown: ShutdownSignal,
    /// What was told last.
    told: Mutex<ServingStatus>,
    /// Whether those who watch have been told that the daemon stops.
    is_last_told: watch::Sender<bool>,
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
        let told = Mutex::new(ServingStatus::Serving);
        Self { daemon, reporter, shutdown, told, is_last_told: watch::Sender::new(false) }
    }

    /// Tells how it is now, if that is news.
    pub(crate) async fn publish(&self) {
        let is_serving = self.daemon.readiness().ready && !self.shutdown.is_wanted();
        let now = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        let mut told = self.told.lock().await;
        if *told != now {
            for name in NAMES {
                self.reporter.set_service_status(name, now).await;
            }
            *told = now;
        }
    }

    /// Tells those who watch, until the daemon stops.
    pub(crate) async fn keep_publishing(self: Arc<Self>) {
        let mut shutdown = self.shutdown.clone();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        while !shutdown.is_wanted() {
            tokio::select! {
                _ = looks.tick() => {}
                () = shutdown.wanted() => {}
            }
            self.publish().await;
        }
        self.is_last_told.send_replace(true);
    }

    /// Waits until the daemon stops and those who watch can know it.
    pub(crate) fn last_published(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut told = self.is_last_told.subscribe();
        async move {
            // The sender is there for as long as connections are.
            let _ = told.wait_for(|is_told| *is_told).await;
        }
    }
}

/// The whole server, `ratelimit` as envoyproxy/ratelimit says, and the service.
const NAMES: [&str; 3] = ["", "ratelimit", rls::SERVICE];

/// How long it may take until those who watch hear of a disk that fails.
const LOOK_EVERY: Duration = Duration::from_secs(1);
