//! Watches the policy file, and puts what changes in it into force.
//!
//! It looks at the file by its path about once a second, so it does not matter how the file was changed:
//! in place, by renaming another one over it, or by moving a link. What has changed is loaded once two
//! looks in a row have seen the same, so a half-written file is not taken for a whole one. A bad file
//! changes nothing, and neither does one that has gone: the policy from before stays in force.

use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::{Parsed, Policy, PolicyFile, Rule};
use tidegate::{Clock, Timestamp};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use crate::accept::ShutdownSignal;
use crate::daemon::{Daemon, SharedDaemon};
use crate::load::{self, LoadError};
use crate::local::time_text;
use loader::Loader;
pub(crate) use restart::needs_restart;

mod loader;
mod restart;
#[cfg(test)]
mod tests;

/// How loading the policy file again has gone so far.
#[derive(Debug, Default)]
pub(crate) struct Reload {
    status: Mutex<ReloadStatus>,
    requested: Notify,
}

/// How loading the policy file again has gone so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadStatus {
    /// How often a file was put into force.
    pub(crate) good: u64,
    /// How often one was not.
    pub(crate) bad: u64,
    pub(crate) last_good: Option<Timestamp>,
    /// What is wrong with the file as it is; `None` if the policy of the file is in force.
    pub(crate) error: Option<String>,
    /// Whether an admin has put another policy into force since the file was.
    pub(crate) is_replaced: bool,
    /// Settings of the file that are in force only after a restart.
    pub(crate) needs_restart: Vec<&'static str>,
}

impl Reload {
    /// Has the file loaded at once.
    pub(crate) fn request(&self) {
        self.requested.notify_one();
    }

    /// Another policy than that of the file is in force from now on.
    pub(crate) fn replaced(&self) {
        self.lock().is_replaced = true;
    }

    pub(crate) fn status(&self) -> ReloadStatus {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ReloadStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReloadStatus {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "good": self.good, "bad": self.bad, "last_good": self.last_good.map(time_text),
            "error": self.error, "replaced": self.is_replaced,
            "needs_restart": self.needs_restart,
        })
    }

    /// Whether the policy file, as it is, is in force.
    pub(crate) const fn is_current(&self) -> bool {
        self.error.is_none() && !self.is_replaced
    }

    /// Why the policy file is not in force, without lines of it, for those who need not know what is in
    /// it.
    pub(crate) fn short_error(&self) -> Option<String> {
        match &self.error {
            Some(error) => {
                let first = error.lines().next().unwrap_or_default();
                Some(format!("the old one is in force: {first}"))
            }
            None if self.is_replaced => Some("one that an admin has sent is in force".into()),
            None => None,
        }
    }
}

/// What tells whether a file may have changed.
type FileStamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// Somebody who looks at the file from time to time.
#[derive(Debug)]
pub(crate) struct PolicyWatcher {
    path: PathBuf,
    hash: RandomState,
    /// The content that was dealt with last, whether it was put into force or not.
    seen: Option<u64>,
    /// Content that is new, if nothing more is written into the file.
    pending: Option<u64>,
    /// The file that had the content that was seen, and how many looks have found it so.
    stamp: Option<(FileStamp, u8)>,
    /// Whether the last look has found no file. One that is being replaced may be gone for a moment.
    is_missed: bool,
}

impl PolicyWatcher {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            hash: RandomState::new(),
            seen: None,
            pending: None,
            stamp: None,
            is_missed: false,
        }
    }

    /// Looks at the file; what has changed in it, once it is whole.
    pub(crate) fn poll_file(&mut self, daemon: &Daemon) -> Option<PendingReload> {
        let stamp = stamp_of(&self.path);
        if let (Some(now), Some((before, looks))) = (stamp, self.stamp)
            && now == before
            && looks >= LOOKS_ENOUGH
        {
            return None;
        }
        let files = match load::read(&self.path) {
            Ok(files) => files,
            Err(error) => {
                (self.pending, self.stamp) = (None, None);
                if std::mem::replace(&mut self.is_missed, true) {
                    failed(daemon, &error, self.seen.take().is_some());
                }
                return None;
            }
        };
        self.is_missed = false;
        let content = self.content(&files);
        if self.seen == Some(content) {
            self.pending = None;
            let looks = self.stamp.filter(|(known, _)| Some(*known) == stamp);
            self.stamp = stamp.map(|it| (it, looks.map_or(1, |(_, looks)| looks + 1)));
        } else if self.pending == Some(content) {
            return Some(self.pending(content, files));
        } else {
            self.pending = Some(content);
        }
        None
    }

    /// What the file says now, even if it is the same as before.
    pub(crate) fn read(&mut self, daemon: &Daemon) -> Option<PendingReload> {
        match load::read(&self.path) {
            Ok(files) => Some(self.pending(self.content(&files), files)),
            Err(error) => {
                // When it is back it is news, even if it is the same as before.
                (self.seen, self.stamp) = (None, None);
                failed(daemon, &error, true);
                None
            }
        }
    }

    /// What tells one content from another.
    fn content(&self, files: &[PolicyFile]) -> u64 {
        let parts: Vec<_> = files.iter().map(|file| (&file.name, &file.bytes)).collect();
        self.hash.hash_one(parts)
    }

    /// From now on the content is known, whatever comes of it.
    fn pending(&mut self, content: u64, files: Vec<PolicyFile>) -> PendingReload {
        let is_first = self.seen.is_none();
        (self.seen, self.pending, self.stamp) = (Some(content), None, None);
        PendingReload { path: self.path.clone(), files, is_first }
    }
}

/// Files that are to be loaded.
#[derive(Debug)]
pub(crate) struct PendingReload {
    path: PathBuf,
    pub(crate) files: Vec<PolicyFile>,
    /// Whether nothing was loaded before, so that they may be what is in force already.
    is_first: bool,
}

impl PendingReload {
    /// Puts what was made of the files into force, or tells why not.
    pub(crate) fn take(&self, daemon: &Daemon, parsed: Result<Parsed, LoadError>) {
        match parsed {
            Ok(parsed) => self.apply(daemon, parsed),
            Err(error) => failed(daemon, &error, true),
        }
    }

    fn apply(&self, daemon: &Daemon, parsed: Parsed) {
        let Parsed { policy, warnings, .. } = parsed;
        let policy = policy.with_own_limits();
        // Who sends another one before the file is first looked at does not lose it to that look.
        let before = daemon.reload.status();
        let is_replaced =
            before.is_replaced && before.good == 0 && policy == daemon.settings.policy;
        let is_known = self.is_first && (is_replaced || *daemon.engine.policy() == policy);
        let needs_restart = needs_restart(daemon.settings.policy.server(), policy.server());
        let file = self.path.display();
        if !is_known {
            for warning in &warnings {
                tracing::warn!("{warning}");
            }
            if !needs_restart.is_empty() {
                let settings = needs_restart.join(", ");
                tracing::warn!(%file, settings, "in force only after a restart");
            }
            warn_of_edits(daemon, &policy);
            let changes = daemon.engine.replace_policy("file", policy).len();
            tracing::info!(%file, changes, "loaded the policy file");
        }
        let mut status = daemon.reload.lock();
        status.good += u64::from(!is_known);
        status.last_good = Some(daemon.engine.clock().wall());
        status.error = None;
        status.is_replaced &= is_known;
        status.needs_restart = needs_restart;
    }
}

/// Tells of rules of the file that are not in force, because of edits that were made while running.
fn warn_of_edits(daemon: &Daemon, policy: &Policy) {
    let overlay = daemon.engine.overlay();
    let is_in_file = |edited: &&Rule| {
        let is_it = |rule: &Rule| {
            (rule.domain_name(), rule.name()) == (edited.domain_name(), edited.name())
        };
        policy.rules().iter().any(is_it)
    };
    let hidden = overlay.rules().filter(is_in_file);
    let hidden: Vec<_> =
        hidden.map(|rule| format!("{}/{}", rule.domain_name(), rule.name())).collect();
    if !hidden.is_empty() {
        tracing::warn!(
            rules = hidden.join(", "),
            "edits made while running count, not the file; `tidegate admin policy --drop-edits` \
             takes them back"
        );
    }
}

/// Writes down that the file is not in force; once, if that is not new.
fn failed(daemon: &Daemon, error: &LoadError, is_new: bool) {
    let error = error.to_string();
    let mut status = daemon.reload.lock();
    if is_new || status.error.as_ref() != Some(&error) {
        // The rest of it is in the status; a log has one line for each event.
        let first = error.lines().next().unwrap_or_default();
        tracing::error!(error = first, "the policy from before stays in force");
        status.bad += 1;
        status.error = Some(error);
    }
}

fn stamp_of(path: &Path) -> Option<FileStamp> {
    // A folder does not tell that a file in it has changed.
    let it = std::fs::metadata(path).ok().filter(|it| it.is_file())?;
    let (changed, written) = ((it.ctime(), it.ctime_nsec()), (it.mtime(), it.mtime_nsec()));
    Some((it.dev(), it.ino(), it.size(), changed, written))
}

/// Watches until the daemon stops. Whoever [asks](Reload::ask) has the file loaded at once.
///
/// The file may be on another machine, and reading it may take a while: threads for what blocks do that.
/// Nothing that goes wrong in them ends the watching, and nobody who stops the daemon waits for them.
pub(crate) async fn watch(daemon: SharedDaemon, path: PathBuf, mut shutdown: ShutdownSignal) {
    let watching = async {
        let loader = Loader::new();
        let mut watcher = PolicyWatcher::new(path.clone());
        let mut looks = tokio::time::interval(EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let is_asked = tokio::select! {
                _ = looks.tick() => false,
                () = daemon.reload.requested.notified() => true,
            };
            let shared = SharedDaemon::clone(&daemon);
            let looked = spawn_blocking(move || {
                let news =
                    if is_asked { watcher.read(&shared) } else { watcher.poll_file(&shared) };
                (watcher, news)
            });
            let news;
            (watcher, news) = looked.await.unwrap_or_else(|error| {
                failed(&daemon, &loader::broken(error), false);
                (PolicyWatcher::new(path.clone()), None)
            });
            if let Some(news) = news {
                load(&daemon, &loader, news).await;
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = shutdown.wanted() => {}
    }
}

async fn load(daemon: &SharedDaemon, loader: &Loader, mut news: PendingReload) {
    let files = std::mem::take(&mut news.files);
    let parsed = loader.load(LOADING_MOST, move || load::parse(&files)).await;
    let shared = SharedDaemon::clone(daemon);
    let taken = spawn_blocking(move || news.take(&shared, parsed)).await;
    if let Err(error) = taken {
        failed(daemon, &loader::broken(error), true);
    }
}

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// A file that takes longer is given up. The largest ones take seconds.
const LOADING_MOST: Duration = Duration::from_secs(60);

/// A file that was written in the same tick of its clock looks the same; a second later it does not.
const LOOKS_ENOUGH: u8 = 3;
