//! The reloads of the policy file: their status, and which settings need a restart.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tidegate::Timestamp;
use tidegate::policy::ServerSettings;
use tidegate_proto::times::time_text;
use tokio::sync::Notify;

pub(crate) use restart::{FileSettings, needs_restart};

mod restart;

/// The reloads of the policy file: their status, and requests for one.
#[derive(Debug, Default)]
pub(crate) struct Reload {
    status: Mutex<ReloadStatus>,
    /// Held while another policy is put into force.
    replacing: Mutex<()>,
    requested: Notify,
}

/// The status of policy reloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadStatus {
    /// The number of reloads that succeeded.
    pub(crate) ok: u64,
    /// The number of reloads that failed.
    pub(crate) failed: u64,
    pub(crate) last_ok: Option<Timestamp>,
    /// The errors of the file in its current form; `None` if it was loaded.
    pub(crate) error: Option<String>,
    /// Whether another policy was put into force by the admin API since the last reload.
    pub(crate) is_replaced: bool,
    /// Whether the file has kept changing for too long to be loaded.
    pub(crate) is_unstable: bool,
    /// Settings of the file that need a restart.
    pub(crate) needs_restart: Vec<&'static str>,
    /// The settings for the daemon that came with the policy in force; `None`: those of the start.
    pub(crate) server: Option<Arc<ServerSettings>>,
}

impl Reload {
    /// Puts another policy into force, with the settings for the daemon from the same file.
    pub(crate) fn replace<T, E>(
        &self,
        server: ServerSettings,
        replace: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = replace()?;
        self.lock().server = Some(Arc::new(server));
        Ok(replaced)
    }

    /// Requests a reload now.
    pub(crate) fn request(&self) {
        self.requested.notify_one();
    }

    /// Records that the admin API has replaced the policy of the file.
    pub(crate) fn replaced(&self) {
        self.lock().is_replaced = true;
    }

    /// Waits until a reload is requested.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
    }

    pub(crate) fn status(&self) -> ReloadStatus {
        self.lock().clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ReloadStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReloadStatus {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "ok": self.ok, "failed": self.failed, "last_ok": self.last_ok.map(time_text),
            "error": self.error, "replaced": self.is_replaced, "unstable": self.is_unstable,
            "needs_restart": self.needs_restart,
        })
    }

    /// Whether the policy file in its current form is in force.
    pub(crate) const fn is_current(&self) -> bool {
        self.error.is_none() && !self.is_replaced && !self.is_unstable
    }

    /// Why the policy file is not in force, without quoted lines of the file, for clients that may
    /// not read it.
    pub(crate) fn short_error(&self) -> Option<String> {
        match &self.error {
            Some(error) => {
                let first = error.lines().next().unwrap_or_default();
                Some(format!("the previous policy is in force: {first}"))
            }
            None if self.is_unstable => {
                Some("the previous policy is in force: the policy file keeps changing".into())
            }
            None if self.is_replaced => Some("a policy from the admin API is in force".into()),
            None => None,
        }
    }
}
