use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// The status of reloads of the token file.
#[derive(Debug, Default)]
pub(crate) struct TokensStatus {
    counts: Mutex<TokensReloads>,
}

/// How often the token file was loaded, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokensReloads {
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    /// The errors of the file in its current form; `None` if it was loaded.
    pub(crate) error: Option<String>,
}

impl TokensStatus {
    pub(super) fn loaded(&self) {
        let mut counts = self.lock();
        counts.ok += 1;
        counts.error = None;
    }

    pub(super) fn failed(&self, error: String) {
        let mut counts = self.lock();
        counts.failed += 1;
        counts.error = Some(error);
    }

    pub(crate) fn reloads(&self) -> TokensReloads {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, TokensReloads> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokensReloads {
    pub(crate) fn to_json(&self) -> Value {
        json!({ "ok": self.ok, "failed": self.failed, "error": self.error })
    }

    /// What is wrong with the file, without quoted lines of it.
    pub(crate) fn short_error(&self) -> Option<String> {
        let first = self.error.as_ref()?.lines().next().unwrap_or_default();
        Some(format!("the previous tokens are in force: {first}"))
    }
}
