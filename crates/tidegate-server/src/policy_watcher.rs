//! Watches the policy file, and reloads it when it changes.
//!
//! A file with errors changes nothing, and neither does a missing one, or one that keeps changing: the
//! previous policy stays in force.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::policy::{
    Diagnostic, LoadError, Parsed, Policy, PolicyFile, PolicyWatch, Rule, WatchedFile,
};
use tidegate::{Edit, StoreEngine, Timestamp};
use tokio::task::spawn_blocking;

use crate::reload::{FileSettings, Reload, needs_restart};
use crate::settings::Settings;
use loader::Loader;
use tidegate_listen::ShutdownSignal;

mod loader;
#[cfg(test)]
mod tests;

/// What a reload reads and changes.
#[derive(Clone, Debug)]
pub(crate) struct ReloadTarget {
    pub(crate) engine: StoreEngine,
    /// The settings that the daemon was started with.
    pub(crate) settings: Arc<Settings>,
    pub(crate) reload: Arc<Reload>,
}

/// Watches a policy file, and keeps the status of reloads.
#[derive(Debug)]
pub(crate) struct PolicyWatcher(PolicyWatch);

impl PolicyWatcher {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(PolicyWatch::new(path))
    }

    /// How long to wait before the next poll.
    pub(crate) const fn poll_after(&self) -> Duration {
        self.0.poll_after()
    }

    /// Polls the file; returns a reload once its new content is stable.
    pub(crate) fn poll_file(
        &mut self,
        target: &ReloadTarget,
        now: Timestamp,
    ) -> Option<PendingReload> {
        let found = self.0.poll(now);
        self.reload_of(target, found)
    }

    /// Reads the file now, even if it has not changed.
    pub(crate) fn read(&mut self, target: &ReloadTarget) -> Option<PendingReload> {
        let found = self.0.read();
        self.reload_of(target, found)
    }

    fn reload_of(&self, target: &ReloadTarget, found: WatchedFile) -> Option<PendingReload> {
        match found {
            WatchedFile::New { files, is_first } => {
                return Some(PendingReload { path: self.0.path().into(), files, is_first });
            }
            WatchedFile::Same => target.reload.lock().is_unstable = false,
            WatchedFile::Changing { is_unstable: true } => self.warn_of_changes(target),
            WatchedFile::Unreadable { error, is_new } => {
                let path = self.0.path().display().to_string();
                failed(target, &LoadError::Unreadable { path, error }, is_new);
            }
            _ => {}
        }
        None
    }

    /// Warns of a file that keeps changing, once.
    fn warn_of_changes(&self, target: &ReloadTarget) {
        if !std::mem::replace(&mut target.reload.lock().is_unstable, true) {
            let file = self.0.path().display();
            tracing::warn!(%file, "policy file keeps changing; the previous policy stays in force");
        }
    }
}

/// A reload: the files to load.
#[derive(Debug)]
pub(crate) struct PendingReload {
    path: PathBuf,
    pub(crate) files: Vec<PolicyFile>,
    /// Whether it is the first load, so that the policy may be in force already.
    is_first: bool,
}

impl PendingReload {
    /// Puts the parsed policy into force, or records its errors.
    pub(crate) fn finish(&self, target: &ReloadTarget, parsed: Result<Parsed, LoadError>) {
        match parsed {
            Ok(parsed) => self.apply(target, parsed),
            Err(error) => failed(target, &error, true),
        }
    }

    fn apply(&self, target: &ReloadTarget, parsed: Parsed) {
        let Parsed { policy, server, warnings, left_out, .. } = parsed;
        let policy = policy.with_request_limits();
        let before = target.reload.status();
        let started = &target.settings;
        let is_started = policy == started.policy && server == *started.server;
        // A policy that the admin API has set before the first poll stays in force.
        let is_replaced = before.is_replaced && before.ok == 0 && is_started;
        let in_force = before.server.as_ref().unwrap_or(&started.server);
        let is_in_force = *target.engine.policy() == policy && **in_force == server;
        let is_known = self.is_first && (is_replaced || is_in_force);
        let needs_restart = needs_restart(
            FileSettings { engine: started.policy.settings(), server: &started.server },
            FileSettings { engine: policy.settings(), server: &server },
        );
        let file = self.path.display();
        if !is_known {
            log_warnings(&warnings, left_out);
            if !needs_restart.is_empty() {
                let settings = needs_restart.join(", ");
                tracing::warn!(%file, settings, "settings need a restart");
            }
            warn_of_edits(target, &policy);
            let checked = started.redis.as_ref().map(|redis| redis.check_durability(&policy));
            if let Some(Err(error)) = checked {
                return failed(target, &error, true);
            }
            // This thread may block: a store writes what has changed.
            let replace = || target.engine.edit("file", Edit::policy(policy)).block();
            match target.reload.replace(server, replace) {
                Ok(changes) => {
                    tracing::info!(%file, changes = changes.len(), "policy reloaded");
                }
                Err(error) => return failed(target, &error, true),
            }
        }
        let mut status = target.reload.lock();
        status.ok += u64::from(!is_known);
        status.last_ok = Some(target.engine.clock().wall());
        status.error = None;
        status.is_unstable = false;
        status.is_replaced &= is_known;
        status.needs_restart = needs_restart;
    }
}

/// Logs warnings about a policy, one line each, up to a bound.
fn log_warnings(warnings: &[Diagnostic], left_out: usize) {
    for Diagnostic { file, line, column, message, hint, .. } in warnings.iter().take(MOST_WARNINGS)
    {
        let (file, hint) = (&**file, hint.as_deref());
        tracing::warn!(file, line, column, warning = message, hint, "policy warning");
    }
    let left_out = left_out + warnings.len().saturating_sub(MOST_WARNINGS);
    if left_out > 0 {
        let hint = "`tidegate validate` lists them";
        tracing::warn!(warnings = left_out, hint, "more policy warnings");
    }
}

/// Warns of rules of the file that are not in force, because of edits at run time.
fn warn_of_edits(target: &ReloadTarget, policy: &Policy) {
    let overlay = target.engine.overlay();
    let is_in_file = |edited: &&Rule| {
        let is_it = |rule: &Rule| (rule.domain(), rule.name()) == (edited.domain(), edited.name());
        policy.rules().iter().any(is_it)
    };
    let hidden = overlay.rules().filter(is_in_file);
    let hidden: Vec<_> = hidden.map(|rule| format!("{}/{}", rule.domain(), rule.name())).collect();
    if !hidden.is_empty() {
        tracing::warn!(
            rules = hidden.join(", "),
            "rules overridden by run-time edits; `tidegate admin policy --drop-edits` removes the edits"
        );
    }
}

/// Records and logs that a reload failed; once for the same error, unless `is_new`.
fn failed(target: &ReloadTarget, error: &dyn std::fmt::Display, is_new: bool) {
    let error = error.to_string();
    let mut status = target.reload.lock();
    if is_new || status.error.as_ref() != Some(&error) {
        // The log has one line per event; the status has the whole error.
        let first = error.lines().next().unwrap_or_default();
        tracing::error!(error = first, "policy reload failed; the previous policy stays in force");
        status.failed += 1;
        status.error = Some(error);
        status.is_unstable = false;
    }
}

/// Watches until the daemon stops. [`Reload::request`] reloads the file at once.
///
/// The file may be on another machine, and reading it may be slow, so blocking threads do that. No
/// failure in them ends the watching, and shutdown does not wait for them.
pub(crate) async fn watch(target: ReloadTarget, path: PathBuf, mut shutdown: ShutdownSignal) {
    let watching = async {
        let loader = Loader::new();
        let mut watcher = PolicyWatcher::new(path.clone());
        let mut wait = Duration::ZERO;
        loop {
            let is_requested = tokio::select! {
                () = tokio::time::sleep(wait) => false,
                () = target.reload.requested() => true,
            };
            let shared = target.clone();
            let polled = spawn_blocking(move || {
                let pending = if is_requested {
                    watcher.read(&shared)
                } else {
                    watcher.poll_file(&shared, shared.engine.clock().now())
                };
                (watcher, pending)
            });
            let pending;
            (watcher, pending) = polled.await.unwrap_or_else(|error| {
                failed(&target, &loader::broken(error), false);
                (PolicyWatcher::new(path.clone()), None)
            });
            wait = watcher.poll_after();
            if let Some(pending) = pending {
                load(&target, &loader, pending).await;
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = shutdown.wanted() => {}
    }
}

async fn load(target: &ReloadTarget, loader: &Loader, mut pending: PendingReload) {
    let files = std::mem::take(&mut pending.files);
    let options = target.settings.yaml_options;
    let parsed = loader
        .load(LOADING_MOST, move || {
            Policy::load_files_with(&files, options).map_err(LoadError::Invalid)
        })
        .await;
    let shared = target.clone();
    let finished = spawn_blocking(move || pending.finish(&shared, parsed)).await;
    if let Err(error) = finished {
        failed(target, &loader::broken(error), true);
    }
}

/// How many warnings about a policy are logged.
const MOST_WARNINGS: usize = 20;

/// The time-out of a load. The largest files need seconds.
const LOADING_MOST: Duration = Duration::from_secs(60);
