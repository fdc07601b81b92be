//! Watches the token file, and closes connections whose token or certificate has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::StoreEngine;
use tidegate::policy::TokenFile;
use tidegate_listen::ShutdownSignal;
use tokio::task::spawn_blocking;

use super::AccessControl;
use crate::file_watch::FileWatch;
use crate::load::TOKEN_FILE_BYTES_MAX;

/// The token file as it was loaded at the start.
#[derive(Clone, Debug)]
pub(crate) struct LoadedTokens {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

/// Watches the token file until the daemon stops. A file with errors, or a missing one, changes
/// nothing: the previous tokens stay in force.
pub(crate) async fn watch(
    access: Arc<AccessControl>,
    loaded: LoadedTokens,
    mut shutdown: ShutdownSignal,
) {
    let name = loaded.path.display().to_string();
    let mut watch = FileWatch::new(loaded.path, TOKEN_FILE_BYTES_MAX, loaded.content);
    loop {
        let pause = if watch.is_pending() { CONFIRM_AFTER } else { POLL_EVERY };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.wanted() => return,
        }
        let (access, name) = (Arc::clone(&access), name.clone());
        let polled = spawn_blocking(move || {
            poll(&access, &name, &mut watch);
            watch
        });
        let Ok(returned) = polled.await else {
            tracing::error!("the token file is no longer watched: restart the daemon");
            return;
        };
        watch = returned;
    }
}

fn poll(access: &AccessControl, name: &str, watch: &mut FileWatch) {
    let parsed = match watch.poll() {
        None => return,
        Some(Ok(content)) => TokenFile::parse(name, &content).map_err(|error| error.to_string()),
        Some(Err(error)) => Err(format!("cannot read {name}: {error}")),
    };
    match parsed {
        Ok(file) => {
            access.replace(&file);
            access.status.loaded();
            tracing::info!(file = name, tokens = file.tokens().len(), "token file loaded");
        }
        Err(error) => {
            tracing::error!(
                file = name,
                "token file not loaded; the previous tokens stay in force:\n{error}"
            );
            access.status.failed(error);
        }
    }
}

/// Closes connections whose token or certificate has ended, until the daemon stops.
pub(crate) async fn close_ended(
    access: Arc<AccessControl>,
    engine: StoreEngine,
    mut shutdown: ShutdownSignal,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_EVERY) => access.close_ended(engine.clock().wall()),
            () = shutdown.wanted() => return,
        }
    }
}

/// A revoked token has no connection after two seconds.
const POLL_EVERY: Duration = Duration::from_millis(500);
const CONFIRM_AFTER: Duration = Duration::from_millis(100);
