//! Replaces intents: those of a commit that has an outcome, and those of other writers.

use std::time::Duration;

use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;

use crate::batch::{Job, Times};
use crate::cache::Seen;
use crate::commands::is_redirection;
use crate::driver::{Driver, Event, local_ns};
use crate::frame::Cell;
use crate::intent::Intent;
use crate::locks::lock;
use crate::servers::CommandFailure;
use crate::settle::{Laid, Left, Withdrawal, Withdrawn, finish, visit, withdraw};

/// A commit that has an outcome, whose intents are being replaced.
pub(super) struct Settling {
    laid: Laid,
    /// All keys that no other transaction may use until then.
    keys: Vec<RecordKey>,
    pub(super) end: End,
    attempts: u32,
    /// When it began, by the local clock.
    began_ns: u64,
}

impl Settling {
    pub(super) fn new(laid: Laid, keys: Vec<RecordKey>, end: End) -> Self {
        Self { laid, keys, end, attempts: 0, began_ns: local_ns() }
    }
}

/// How it ends.
pub(super) enum End {
    Commit,
    Withdraw { jobs: Vec<Job>, how: Withdrawal, failure: Option<Outage> },
}

/// The intents of a commit were replaced, as far as it goes.
pub(in crate::driver) struct Settled {
    stamp: u64,
    result: Result<(bool, Left), CommandFailure>,
}

/// An intent of another writer was replaced, or not.
pub(in crate::driver) struct Visited {
    key: RecordKey,
    /// By the local clock.
    began_ns: u64,
    result: Result<Cell, CommandFailure>,
}

impl Driver {
    /// Replaces the intents of a commit.
    pub(super) fn settle(&mut self, stamp: u64, settling: Settling) {
        let servers = self.lanes.servers(self.at_least_ms());
        let laid = settling.laid.clone();
        let how = match settling.end {
            End::Commit => None,
            End::Withdraw { how, .. } => Some(how),
        };
        let pause = match settling.attempts {
            0 => Duration::ZERO,
            attempts => Duration::from_millis(10 << attempts.min(6)),
        };
        self.several.settling.insert(stamp, settling);
        self.events.push(Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let result = match how {
                None => finish(&servers, &laid).await.map(|left| (true, left)),
                Some(how) => match withdraw(&servers, &laid, how).await {
                    Withdrawn { failure: Some(failure), is_certain: false, .. } => Err(failure),
                    Withdrawn { is_certain, left, .. } => Ok((is_certain, left)),
                },
            };
            Event::Settled(Settled { stamp, result })
        }));
    }

    /// Values that expire do so no earlier than this, in milliseconds since 1970.
    fn at_least_ms(&self) -> u64 {
        let kept_longer = self.inbox.settings.kept_longer;
        Times { now_ms: self.now_ms(), kept_longer }.after(Duration::ZERO)
    }

    /// The intents of a commit are replaced, or cannot be for now.
    pub(in crate::driver) fn settled(&mut self, settled: Settled) {
        let Settled { stamp, result } = settled;
        let Some(mut settling) = self.several.settling.remove(&stamp) else { return };
        let (is_certain, left) = match result {
            Ok(result) => result,
            Err(failure) => {
                self.note_failure(&failure);
                settling.attempts += 1;
                if settling.attempts < MOST_ATTEMPTS {
                    return self.settle(stamp, settling);
                }
                // Who meets the intents settles them.
                (false, Left::new())
            }
        };
        {
            let at_ns = settling.began_ns;
            let mut known = lock(&self.inbox.known);
            for key in &settling.keys {
                self.busy.remove(key);
                known.cache.remove(key);
            }
            for (key, cell) in left {
                known.cache.insert(key, Seen { cell, at_ns });
            }
        }
        if let End::Withdraw { jobs, failure, .. } = settling.end {
            let failure = failure.or((!is_certain).then_some(Outage::Unknown));
            self.end_jobs(jobs, failure);
        }
    }

    /// Settles the group of an intent of another writer; until then nothing else is done at its key.
    pub(in crate::driver) fn meet(&mut self, key: RecordKey, intent: Intent) {
        lock(&self.inbox.known).cache.remove(&key);
        if self.several.visits.len() >= MOST_VISITS {
            // It is read again.
            return;
        }
        self.several.visits.insert(key);
        self.busy.insert(key);
        self.inbox.counters.intents_met.add(1);
        let servers = self.lanes.servers(self.at_least_ms());
        let began_ns = local_ns();
        self.events.push(Box::pin(async move {
            let result = visit(&servers, &key, intent).await;
            if result.is_err() {
                tokio::time::sleep(VISIT_AGAIN).await;
            }
            Event::Visited(Visited { key, began_ns, result })
        }));
    }

    pub(in crate::driver) fn visited(&mut self, visited: Visited) {
        let Visited { key, began_ns, result } = visited;
        self.several.visits.remove(&key);
        self.busy.remove(&key);
        match result {
            Ok(cell) => {
                lock(&self.inbox.known).cache.insert(key, Seen { cell, at_ns: began_ns });
            }
            Err(failure) => self.note_failure(&failure),
        }
    }

    fn note_failure(&mut self, CommandFailure(error): &CommandFailure) {
        self.complain(|| tracing::warn!(error, "cannot settle a commit over several servers"));
        if is_redirection(error) {
            self.refresh_soon(0);
        }
    }
}

/// How many intents of other writers are settled at once.
const MOST_VISITS: usize = 64;

/// How often it is attempted to settle a commit.
const MOST_ATTEMPTS: u32 = 6;

/// How long after a failure an intent is read again.
const VISIT_AGAIN: Duration = Duration::from_millis(20);
