//! Watches the files of TLS, and reloads them when they change.
//!
//! It polls them by their paths about once a second, so it does not matter how they were changed: in
//! place, by renaming others over them, or by moving a link, as Kubernetes does. New contents are
//! loaded once two polls in a row have found the same. Files that cannot be used change nothing: the
//! previous ones stay in force. A certificate and its key may be replaced one after the other, so a
//! pair that does not match is an error only if it stays so for some seconds.

use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::clock::{Clock, MonotonicClock};
use tidegate_listen::ShutdownSignal;
use tidegate_listen::tls::TlsListener;
use tokio::task::spawn_blocking;

use crate::listener::Listener;
use crate::tls_files::{TlsContents, TlsError, TlsPaths};

/// The TLS of a listener with its files.
#[derive(Debug)]
pub(crate) struct WatchedTls {
    pub(crate) listener: Listener,
    pub(crate) paths: TlsPaths,
    pub(crate) tls: Arc<TlsListener>,
    status: Mutex<TlsStatus>,
    state: Mutex<WatchState>,
}

/// The status of reloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsStatus {
    /// The number of reloads that succeeded.
    pub(crate) ok: u64,
    /// The number of reloads that failed.
    pub(crate) failed: u64,
    /// The error of the files in their current form; `None` if they were loaded.
    pub(crate) error: Option<String>,
}

/// What the polls have found.
#[derive(Debug)]
struct WatchState {
    hash: RandomState,
    /// The hash of the contents that were loaded last, with or without errors.
    seen: Option<u64>,
    /// The hash of new contents, which are loaded if the next poll finds them again.
    pending: Option<u64>,
    /// How many polls have found a certificate and a key that do not match, or no file.
    odd_polls: u32,
    /// The stamps of the files with the contents that were seen, and how many polls found them.
    stamps: (Vec<FileStamp>, u32),
}

/// Metadata that changes with the content of a file.
type FileStamp = Option<[i64; 7]>;

impl WatchedTls {
    /// The TLS of a listener, which is loaded now.
    pub(super) fn load(
        listener: Listener,
        paths: TlsPaths,
        time: Duration,
    ) -> Result<Self, TlsError> {
        let contents = paths.read()?;
        let config = paths.config(&contents, listener)?;
        let hash = RandomState::new();
        let seen = Some(hash.hash_one(&contents));
        let state = WatchState { hash, seen, pending: None, odd_polls: 0, stamps: (Vec::new(), 0) };
        let tls = Arc::new(TlsListener::new(listener.name(), time, config));
        let (status, state) = (Mutex::default(), Mutex::new(state));
        let watched = Self { listener, paths, tls, status, state };
        watched.report_loaded();
        Ok(watched)
    }

    pub(crate) fn status(&self) -> TlsStatus {
        locked(&self.status).clone()
    }

    /// The seconds until the certificate expires; negative if it has.
    pub(crate) fn expires_in_secs(&self) -> i64 {
        let now = MonotonicClock.wall().as_nanos() / 1_000_000_000;
        self.tls.config().expires_at().saturating_sub(i64::try_from(now).unwrap_or(i64::MAX))
    }

    /// Why the files in their current form are not in force, or that they should be replaced.
    pub(crate) fn problem(&self) -> Option<String> {
        let listener = self.listener;
        match self.status().error {
            Some(error) => {
                let first = error.lines().next().unwrap_or_default();
                Some(format!("the previous certificate of {listener} is in force: {first}"))
            }
            None if self.expires_in_secs() <= 0 => {
                Some(format!("the certificate of {listener} has expired"))
            }
            None => None,
        }
    }

    /// Polls the files. Returns whether to poll again soon.
    pub(super) fn poll(&self) -> bool {
        let mut state = locked(&self.state);
        let stamps: Vec<FileStamp> = self.paths.all().map(stamp_of).collect();
        if stamps == state.stamps.0 && state.stamps.1 >= POLLS_ENOUGH {
            return false;
        }
        let contents = match self.paths.read() {
            Ok(contents) => contents,
            Err(error) => {
                (state.pending, state.stamps) = (None, (Vec::new(), 0));
                return self.odd(&mut state, &error, None);
            }
        };
        let content = state.hash.hash_one(&contents);
        if state.seen == Some(content) {
            (state.pending, state.odd_polls) = (None, 0);
            let polls = if state.stamps.0 == stamps { state.stamps.1 + 1 } else { 1 };
            state.stamps = (stamps, polls);
            // The files are back as they were.
            let mut status = locked(&self.status);
            if status.error.as_deref().is_some_and(|error| error.starts_with("cannot read")) {
                status.error = None;
            }
            return false;
        }
        if state.pending != Some(content) {
            state.pending = Some(content);
            return true;
        }
        self.reload(&mut state, content, &contents)
    }

    /// Loads contents that two polls have found. Returns whether to poll again soon.
    fn reload(&self, state: &mut WatchState, content: u64, contents: &TlsContents) -> bool {
        match self.paths.config(contents, self.listener) {
            Ok(config) => {
                self.tls.replace(config);
                (state.seen, state.pending, state.odd_polls) = (Some(content), None, 0);
                let mut status = locked(&self.status);
                status.ok += 1;
                status.error = None;
                drop(status);
                self.report_loaded();
                false
            }
            Err(error) if error.is_mismatch() => self.odd(state, &error, Some(content)),
            Err(error) => {
                self.failed(state, &error, Some(content));
                false
            }
        }
    }

    /// Counts a poll that found files on their way; too many in a row are an error. Returns whether to
    /// poll again soon.
    fn odd(&self, state: &mut WatchState, error: &TlsError, content: Option<u64>) -> bool {
        state.odd_polls += 1;
        if state.odd_polls < ODD_POLLS_MAX {
            return true;
        }
        self.failed(state, error, content);
        false
    }

    fn failed(&self, state: &mut WatchState, error: &TlsError, content: Option<u64>) {
        state.seen = content.or(state.seen);
        state.pending = None;
        let (listener, error) = (self.listener, error.to_string());
        let mut status = locked(&self.status);
        if status.error.as_ref() != Some(&error) {
            let first = error.lines().next().unwrap_or_default();
            tracing::error!(
                %listener, error = first,
                "TLS reload failed; the previous certificate stays in force"
            );
            status.failed += 1;
            status.error = Some(error);
        }
    }

    fn report_loaded(&self) {
        let (listener, config) = (self.listener, self.tls.config());
        let days = self.expires_in_secs().div_euclid(86_400);
        let needs_certificate = config.needs_client_certificate();
        tracing::info!(%listener, expires_in_days = days, needs_certificate, "TLS certificate loaded");
        if days < 0 {
            tracing::warn!(%listener, "the TLS certificate has expired; clients will reject it");
        } else if days < DAYS_FEW {
            tracing::warn!(%listener, expires_in_days = days, "the TLS certificate expires soon");
        }
        let now = config.expires_at() - self.expires_in_secs();
        if config.valid_from() > now {
            tracing::warn!(%listener, "the TLS certificate is not valid yet; clients will reject it");
        }
        if self.paths.is_key_exposed() {
            let file = self.paths.key.display();
            tracing::warn!(
                %listener, %file,
                "the private key can be read by other users of this machine: chmod 600"
            );
        }
    }
}

/// Watches the files until the daemon stops. They may be on another machine, so blocking threads
/// read them.
pub(super) async fn watch(all: Vec<Arc<WatchedTls>>, mut shutdown: ShutdownSignal) {
    let watching = async {
        let mut wait = POLL_EVERY;
        loop {
            tokio::time::sleep(wait).await;
            let polled = all.clone();
            let is_soon = spawn_blocking(move || {
                polled.iter().fold(false, |is_soon, watched| watched.poll() | is_soon)
            });
            wait = if is_soon.await.unwrap_or(false) { CONFIRM_AFTER } else { POLL_EVERY };
        }
    };
    tokio::select! {
        () = watching => {}
        () = shutdown.wanted() => {}
    }
}

fn stamp_of(path: &std::path::Path) -> FileStamp {
    let it = std::fs::metadata(path).ok()?;
    let [device, inode, size] = [it.dev(), it.ino(), it.size()].map(u64::cast_signed);
    let (changed, written) = ((it.ctime(), it.ctime_nsec()), (it.mtime(), it.mtime_nsec()));
    Some([device, inode, size, changed.0, changed.1, written.0, written.1])
}

/// No code under these locks can leave the data half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The interval between polls.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// The time between two polls that have to find the same new contents.
const CONFIRM_AFTER: Duration = Duration::from_millis(100);
/// Polls with the same stamps after which the contents are not read again: two writes in one tick of
/// the file system's clock have the same stamp.
const POLLS_ENOUGH: u32 = 3;
/// How many polls may find files that are being replaced: about three seconds.
const ODD_POLLS_MAX: u32 = 30;
/// A certificate that expires sooner is warned about.
const DAYS_FEW: i64 = 14;

#[cfg(test)]
mod tests;
