use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Signals that the process stops. Shutdown waits until all of them are dropped.
#[derive(Clone, Debug)]
pub struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Waits until the process stops.
    pub async fn wanted(&mut self) {
        // The sender outlives all receivers that matter.
        let _ = self.0.wait_for(|is_stopping| *is_stopping).await;
    }

    /// Whether the process is stopping.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        *self.0.borrow()
    }
}

/// Sends the shutdown signal, and waits until all receivers are dropped.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

impl Default for ShutdownTrigger {
    fn default() -> Self {
        Self::new()
    }
}

impl ShutdownTrigger {
    /// A trigger that has not been pulled.
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// A receiver of the signal.
    #[must_use]
    pub fn signal(&self) -> ShutdownSignal {
        ShutdownSignal(self.0.subscribe())
    }

    /// Signals shutdown, and waits at most this long until all receivers are dropped. True if they
    /// are.
    pub async fn stop(&self, grace: Duration) -> bool {
        self.0.send_replace(true);
        tokio::time::timeout(grace, self.0.closed()).await.is_ok()
    }
}

/// Waits for SIGTERM or SIGINT. Signals count from the call on, so call it before the process
/// announces that it is ready.
pub fn terminated() -> impl Future<Output = ()> + Send {
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    async {
        let [Ok(mut terminated), Ok(mut interrupted)] = signals else {
            tracing::error!("cannot handle SIGTERM and SIGINT");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    }
}
