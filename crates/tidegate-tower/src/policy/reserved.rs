use std::sync::Arc;

use http::response;
use tidegate::{Clock, Engine, HoldId, Store};

use super::Settle;
use crate::Bill;
use crate::body::{Ending, Settling};
use crate::gate::{Later, Reserved, Settled};

/// How units that were set aside are settled, once there is a response.
pub(super) type SettleBy = Arc<dyn Fn(&response::Parts) -> Settle + Send + Sync>;

/// Units that were set aside for a request.
pub(super) struct Hold<S: Store, C: Clock + Send + Sync + 'static> {
    engine: Engine<S, C>,
    id: HoldId,
    bill: Bill,
    settle: SettleBy,
    /// Whether nobody asks for the body of the response.
    is_head: bool,
    is_open: bool,
}

impl<S: Store, C: Clock + Send + Sync + 'static> Hold<S, C> {
    pub(super) fn new(engine: Engine<S, C>, id: HoldId, bill: Bill, settle: SettleBy) -> Self {
        Self { engine, id, bill, settle, is_head: false, is_open: true }
    }

    /// The same, if the response to the request has no body.
    pub(super) fn of_head(mut self, is_head: bool) -> Self {
        self.is_head = is_head;
        self
    }

    /// Charges so many units, or what was billed, or all.
    fn commit(&mut self, actual: Option<u64>) -> Option<Later<()>> {
        self.is_open = false;
        let actual = actual.or(self.bill.actual());
        let commit = Commit { engine: self.engine.clone(), id: self.id, actual, is_safe: false };
        if self.engine.answers_at_once() {
            // Dropping it commits.
            return None;
        }
        Some(Box::pin(commit.made()))
    }
}

/// A commit that is made even if nobody waits for it.
struct Commit<S: Store, C: Clock + Send + Sync + 'static> {
    engine: Engine<S, C>,
    id: HoldId,
    actual: Option<u64>,
    is_safe: bool,
}

impl<S: Store, C: Clock + Send + Sync + 'static> Commit<S, C> {
    /// Makes it, and waits until it is safe.
    async fn made(mut self) {
        // A reservation that has expired was given back before.
        let _ = self.engine.commit(self.id, self.actual).await;
        self.is_safe = true;
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> Drop for Commit<S, C> {
    fn drop(&mut self) {
        if !self.is_safe {
            // If it was made before, the reservation is gone, and nothing happens.
            drop(self.engine.commit(self.id, self.actual));
        }
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> Reserved for Hold<S, C> {
    fn settle(mut self: Box<Self>, response: &response::Parts) -> Settled {
        let settle = (self.settle)(response);
        let later = match settle {
            Settle::Commit(actual) => self.commit(actual),
            Settle::Cancel => {
                self.bill.forget();
                // Dropping it gives everything back.
                None
            }
            Settle::AtEnd if self.is_head => self.commit(None),
            Settle::AtEnd => return Settled::AtEnd(Ending::Settle(self)),
        };
        later.map_or(Settled::Done, Settled::Later)
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> Settling for Hold<S, C> {
    fn settle(mut self: Box<Self>) -> Option<Later<()>> {
        self.commit(None)
    }
}

/// Whoever goes without settling pays what was billed, or nothing.
impl<S: Store, C: Clock + Send + Sync + 'static> Drop for Hold<S, C> {
    fn drop(&mut self) {
        if self.is_open {
            // It is done when this returns; nobody has to wait until it is safe. A reservation that has
            // expired was given back before.
            drop(match self.bill.actual() {
                Some(actual) => self.engine.commit(self.id, Some(actual)),
                None => self.engine.cancel(self.id),
            });
        }
    }
}
