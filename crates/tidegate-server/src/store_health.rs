//! Logs outages of the store, their ends, and idempotency keys that were dropped before their time.

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

/// Warns about idempotency keys that are dropped before their time, until the daemon stops.
pub(crate) async fn idempotency_keys(daemon: SharedDaemon, mut shutdown: ShutdownSignal) {
    let mut ticks = tokio::time::interval(WARN_EVERY);
    let mut before = daemon.engine.evicted_idempotency_keys();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.wanted() => return,
        }
        let evicted = daemon.engine.evicted_idempotency_keys();
        if evicted > before {
            tracing::warn!(
                evicted = evicted - before,
                max_idempotency_keys = daemon.engine.policy().server().max_idempotency_keys(),
                "idempotency keys dropped before their time: repeated requests may be charged \
                 again; raise max_idempotency_keys"
            );
        }
        before = evicted;
    }
}

const CHECK_EVERY: Duration = Duration::from_secs(1);

const WARN_EVERY: Duration = Duration::from_secs(10);
