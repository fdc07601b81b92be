//! Loads policy files on blocking threads, with a time-out, and survives panics there.

use std::sync::Arc;
use std::time::Duration;

use tidegate::policy::{LoadError, Parsed};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// Loads files, with a bound on the time and on the number of loads at once.
#[derive(Debug)]
pub(super) struct Loader {
    /// One for each load that has not ended, timed out or not.
    permits: Arc<Semaphore>,
}

impl Loader {
    pub(super) fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(MOST_AT_ONCE)) }
    }

    /// The result of a load; an error if it times out or panics.
    pub(super) async fn load(
        &self,
        most: Duration,
        work: impl FnOnce() -> Result<Parsed, LoadError> + Send + 'static,
    ) -> Result<Parsed, LoadError> {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let why = "earlier loads have not ended: restart the daemon".into();
            return Err(LoadError::Failed { why });
        };
        let working = spawn_blocking(move || {
            let loaded = work();
            drop(permit);
            loaded
        });
        match tokio::time::timeout(most, working).await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => Err(broken(error)),
            Err(_) => {
                let why = format!("it takes longer than {} seconds", most.as_secs());
                Err(LoadError::Failed { why })
            }
        }
    }
}

/// The error of a thread that panicked.
pub(super) fn broken(error: JoinError) -> LoadError {
    let message = error.try_into_panic().ok().and_then(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
    });
    let message = message.unwrap_or_else(|| "it was cancelled".into());
    LoadError::Failed { why: format!("a bug in tidegate: {message}") }
}

/// The most loads at once: one, and those that timed out.
const MOST_AT_ONCE: usize = 3;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn describe(loaded: Result<Parsed, LoadError>) -> String {
        loaded.expect_err("no policy").to_string()
    }

    #[tokio::test]
    async fn a_panic_and_an_endless_load_are_errors() {
        let loader = Loader::new();
        let panicked = loader.load(Duration::MAX, || panic!("byte {} is odd", 7)).await;
        assert!(describe(panicked).ends_with("a bug in tidegate: byte 7 is odd"));
        let mut ends = Vec::new();
        for _ in 0..MOST_AT_ONCE {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            let endless = loader.load(Duration::ZERO, move || {
                let _ = ended.recv();
                Err(LoadError::Failed { why: "it has ended".into() })
            });
            assert!(describe(endless.await).contains("takes longer than 0 seconds"));
        }
        let one_more = loader.load(Duration::MAX, || unreachable!("there is no permit")).await;
        assert!(describe(one_more).contains("restart the daemon"));
        drop(ends);
        let all = u32::try_from(MOST_AT_ONCE).unwrap();
        let _free =
            loader.permits.acquire_many(all).await.expect("ended loads return their permits");
    }
}
