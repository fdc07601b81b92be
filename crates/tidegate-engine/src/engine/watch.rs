//! Reloads of a policy file, in a program without a daemon.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tidegate_policy::policy::{LoadError, Policy, PolicyWatch, WatchedFile, YamlOptions};
use tidegate_table::locks::lock;

use super::{EditError, Engine, StoreEngine};
use crate::edits::{Change, Edit};

/// Watches a policy file, and puts it into force when it changes. Dropping it ends that.
#[derive(Debug)]
#[must_use = "dropping it ends the watching"]
pub struct PolicyWatcher {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Why a changed policy file was not put into force; the policy before it stays.
#[non_exhaustive]
pub enum ReloadError {
    /// The file cannot be read, or has errors.
    Load(LoadError),
    /// The engine did not accept the policy.
    Edit(EditError),
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Edit(error) => error.fmt(f),
        }
    }
}

tidegate_core::debug_as_displayed!(ReloadError);

impl std::error::Error for ReloadError {}

#[derive(Debug, Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Engine {
    /// An engine with the policy in a file, or with all policies in a folder.
    ///
    /// # Panics
    ///
    /// If there is no memory for an empty table.
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self, LoadError> {
        Policy::open(path).map(Self::new)
    }

    /// Puts a policy file into force whenever it changes, and reports each time what has changed, or why
    /// the policy before it stays: see [`StoreEngine::watch`].
    pub fn watch(
        &self,
        path: impl Into<PathBuf>,
        report: impl FnMut(Result<Vec<Change>, ReloadError>) + Send + 'static,
    ) -> io::Result<PolicyWatcher> {
        self.as_store_engine().watch(path, report)
    }
}

impl StoreEngine {
    /// Puts a policy file, or the policies in a folder, into force whenever they change, and reports each
    /// time what has changed, or why the policy before stays in force.
    ///
    /// A thread polls the path about once a second, so it does not matter how the file is changed; a
    /// half-written file is not loaded. An error is reported once. What was consumed stays consumed.
    ///
    /// ```
    /// use tidegate::Engine;
    ///
    /// # let path = std::env::temp_dir().join(format!("tidegate-watch-{}.toml", std::process::id()));
    /// # std::fs::write(&path, "[[rule]]\nname = 'all'\nwindow = { max = 3, per = '1h' }\n")?;
    /// let engine = Engine::open(&path)?;
    /// let watcher = engine.watch(&path, |reload| match reload {
    ///     Ok(changes) => println!("the policy has {} changes", changes.len()),
    ///     Err(error) => eprintln!("the policy stays as it was: {error}"),
    /// })?;
    /// # drop(watcher);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(
        &self,
        path: impl Into<PathBuf>,
        report: impl FnMut(Result<Vec<Change>, ReloadError>) + Send + 'static,
    ) -> io::Result<PolicyWatcher> {
        let stop = Arc::new(Stop::default());
        let mut watching = Watching {
            engine: self.by_the_clock(),
            watch: PolicyWatch::new(path),
            stop: Arc::clone(&stop),
            report,
        };
        let thread = thread::Builder::new().name("tidegate-policy".into());
        let thread = thread.spawn(move || watching.run())?;
        Ok(PolicyWatcher { stop, thread: Some(thread) })
    }
}

struct Watching<F> {
    engine: StoreEngine,
    watch: PolicyWatch,
    stop: Arc<Stop>,
    report: F,
}

impl<F: FnMut(Result<Vec<Change>, ReloadError>)> Watching<F> {
    fn run(&mut self) {
        loop {
            match self.watch.poll(self.engine.clock().now()) {
                WatchedFile::New { files, is_first } => {
                    let reloaded = Policy::load_files_with(&files, YamlOptions::default())
                        .map_err(|errors| ReloadError::Load(LoadError::Invalid(errors)))
                        .and_then(|parsed| self.apply(parsed.policy));
                    // The file that the engine began with changes nothing.
                    if !matches!(&reloaded, Ok(changes) if is_first && changes.is_empty()) {
                        (self.report)(reloaded);
                    }
                }
                WatchedFile::Unreadable { error, is_new: true } => {
                    let path = self.watch.path().display().to_string();
                    let error = LoadError::Unreadable { path, error };
                    (self.report)(Err(ReloadError::Load(error)));
                }
                _ => {}
            }
            let is_set = lock(&self.stop.is_set);
            let waited =
                self.stop
                    .changed
                    .wait_timeout_while(is_set, self.watch.poll_after(), |is_set| !*is_set);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }

    fn apply(&self, policy: Policy) -> Result<Vec<Change>, ReloadError> {
        self.engine.edit("file", Edit::policy(policy)).block().map_err(ReloadError::Edit)
    }
}

impl Drop for PolicyWatcher {
    fn drop(&mut self) {
        *lock(&self.stop.is_set) = true;
        self.stop.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the caller's function ends the watching; it was printed there.
            let _ = thread.join();
        }
    }
}
