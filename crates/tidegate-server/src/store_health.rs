//! Says in the log when the disk takes nothing any more, and when it does again.

use std::time::Duration;

use crate::accept::ShutdownSignal;
use crate::daemon::SharedDaemon;

/// Looks at the store until the daemon stops.
pub(crate) async fn store_health(daemon: SharedDaemon, mut shutdown: ShutdownSignal) {
    let Some(store) = daemon.engine.on_disk() else { return };
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut is_failing = false;
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = shutdown.wanted() => return,
        }
        match store.failure() {
            Some(error) if !is_failing => {
                tracing::error!(%error, "the disk takes nothing: rules say what is allowed now");
                is_failing = true;
            }
            None if is_failing => {
                tracing::info!("the disk takes everything again");
                is_failing = false;
            }
            _ => {}
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
