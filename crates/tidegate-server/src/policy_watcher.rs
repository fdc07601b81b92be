//! Watches the policy file, and reloads it when it changes.
//!
//! It polls the file by its path about once a second, so it does not matter how the file was
//! changed: in place, by renaming another one over it, or by moving a link. New content is polled
//! again soon, and loaded once two polls in a row have found the same, so a half-written file is
//! not loaded. A file with errors changes nothing, and neither does a missing one, or one that keeps
//! changing: the previous policy stays in force.

use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate::policy::{Diagnostic, Parsed, Policy, PolicyFile, Rule};
use tidegate::{Edit, StoreEngine, Timestamp};
use tokio::task::spawn_blocking;

use crate::load::{self, LoadError};
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

/// Metadata that changes with the content of a file.
type FileStamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// The state of watching a policy file.
#[derive(Debug)]
pub(crate) struct PolicyWatcher {
    path: PathBuf,
    hash: RandomState,
    /// The hash of the content that was loaded last, with or without errors.
    seen: Option<u64>,
    /// The hash of new content, which is loaded if the next poll finds it again.
    pending: Option<u64>,
    /// Since when the file has other content than that, and none that two polls have found.
    changing_since: Option<Timestamp>,
    /// The stamp of the file with the content that was loaded, and how many polls have found it.
    stamp: Option<(FileStamp, u8)>,
    /// Whether the last poll found no file. One that is being replaced may be missing for a moment.
    is_missed: bool,
}

impl PolicyWatcher {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            hash: RandomState::new(),
            seen: None,
            pending: None,
            changing_since: None,
            stamp: None,
            is_missed: false,
        }
    }

    /// How long to wait before the next poll.
    pub(crate) const fn poll_after(&self) -> Duration {
        if self.pending.is_some() { CONFIRM_AFTER } else { POLL_EVERY }
    }

    /// Polls the file; returns a reload once its new content is stable.
    pub(crate) fn poll_file(
        &mut self,
        target: &ReloadTarget,
        now: Timestamp,
    ) -> Option<PendingReload> {
        let stamp = stamp_of(&self.path);
        if let (Some(now), Some((before, polls))) = (stamp, self.stamp)
            && now == before
            && polls >= POLLS_ENOUGH
        {
            return None;
        }
        let files = match load::read(&self.path) {
            Ok(files) => files,
            Err(error) => {
                (self.pending, self.stamp) = (None, None);
                if std::mem::replace(&mut self.is_missed, true) {
                    failed(target, &error, self.seen.take().is_some());
                }
                return None;
            }
        };
        self.is_missed = false;
        let content = self.content(&files);
        if self.seen == Some(content) {
            (self.pending, self.changing_since) = (None, None);
            target.reload.lock().is_unstable = false;
            let polls = self.stamp.filter(|(known, _)| Some(*known) == stamp);
            self.stamp = stamp.map(|it| (it, polls.map_or(1, |(_, polls)| polls + 1)));
        } else if self.pending == Some(content) {
            return Some(self.pending(content, files));
        } else {
            self.pending = Some(content);
            self.note_change(target, now);
        }
        None
    }

    /// Warns of a file that keeps changing, once.
    fn note_change(&mut self, target: &ReloadTarget, now: Timestamp) {
        let since = *self.changing_since.get_or_insert(now);
        let changing_ns = now.as_nanos().saturating_sub(since.as_nanos());
        let mut status = target.reload.lock();
        if u128::from(changing_ns) >= UNSTABLE_AFTER.as_nanos() && !status.is_unstable {
            status.is_unstable = true;
            let file = self.path.display();
            tracing::warn!(%file, "policy file keeps changing; the previous policy stays in force");
        }
    }

    /// Reads the file now, even if it has not changed.
    pub(crate) fn read(&mut self, target: &ReloadTarget) -> Option<PendingReload> {
        match load::read(&self.path) {
            Ok(files) => Some(self.pending(self.content(&files), files)),
            Err(error) => {
                // When the file is back it is loaded, even with the same content.
                (self.seen, self.stamp) = (None, None);
                failed(target, &error, true);
                None
            }
        }
    }

    /// The hash of the content.
    fn content(&self, files: &[PolicyFile]) -> u64 {
        let parts: Vec<_> = files.iter().map(|file| (&file.name, &file.bytes)).collect();
        self.hash.hash_one(parts)
    }

    /// A reload of this content, which counts as loaded from now on, with or without errors.
    fn pending(&mut self, content: u64, files: Vec<PolicyFile>) -> PendingReload {
        let is_first = self.seen.is_none();
        (self.seen, self.pending, self.stamp) = (Some(content), None, None);
        self.changing_since = None;
        PendingReload { path: self.path.clone(), files, is_first }
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

fn stamp_of(path: &Path) -> Option<FileStamp> {
    // The stamp of a folder does not change with its files.
    let it = std::fs::metadata(path).ok().filter(|it| it.is_file())?;
    let (changed, written) = ((it.ctime(), it.ctime_nsec()), (it.mtime(), it.mtime_nsec()));
    Some((it.dev(), it.ino(), it.size(), changed, written))
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
    let parsed = loader.load(LOADING_MOST, move || load::parse(&files, options)).await;
    let shared = target.clone();
    let finished = spawn_blocking(move || pending.finish(&shared, parsed)).await;
    if let Err(error) = finished {
        failed(target, &loader::broken(error), true);
    }
}

/// How many warnings about a policy are logged.
const MOST_WARNINGS: usize = 20;

/// The interval between polls.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The time between two polls that have to find the same new content.
const CONFIRM_AFTER: Duration = Duration::from_millis(100);

/// How long a file may change without two equal polls.
const UNSTABLE_AFTER: Duration = Duration::from_secs(5);

/// The time-out of a load. The largest files need seconds.
const LOADING_MOST: Duration = Duration::from_secs(60);

/// Polls with the same stamp after which the content is not read again: two writes in one tick of
/// the file system's clock have the same stamp.
const POLLS_ENOUGH: u8 = 3;
