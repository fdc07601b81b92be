//! Logs outages of the store, and their ends.

use std::time::Duration;

use crate::accept::ShutdownSignal;
use crate::daemon::SharedDaemon;

/// Watches the store until the daemon stops.
pub(crate) async fn store_health(daemon: SharedDaemon, mut shutdown: ShutdownSignal) {
    let Some(store) = daemon.engine.on_disk() else { return };
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    let mut is_failing = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.wanted() => return,
        }
        match store.failure() {
            Some(error) if !is_failing => {
                tracing::error!(%error, "store unavailable; on_error applies");
                is_failing = true;
            }
            None if is_failing => {
                tracing::info!("store available again");
                is_failing = false;
            }
            _ => {}
        }
    }
}

const CHECK_EVERY: Duration = Duration::from_secs(1);
