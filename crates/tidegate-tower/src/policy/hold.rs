use std::sync::Arc;

use http::response;
use tidegate::{Clock, Engine, HoldId, Store};

use super::Settle;
use crate::ActualCost;
use crate::body::{EndAction, SettleAtEnd};
use crate::gate::{HeldUnits, Later, SettleOutcome};

/// How units that were set aside are settled, once there is a response.
pub(super) type SettleBy = Arc<dyn Fn(&response::Parts) -> Settle + Send + Sync>;

/// Units that were set aside for a request.
pub(super) struct RequestHold<S: Store, C: Clock + Send + Sync + 'static> {
    engine: Engine<S, C>,
    id: HoldId,
    actual_cost: ActualCost,
    settle: SettleBy,
    /// Whether nobody asks for the body of the response.
    is_head: bool,
    is_open: bool,
}

impl<S: Store, C: Clock + Send + Sync + 'static> RequestHold<S, C> {
    pub(super) fn new(
        engine: Engine<S, C>,
        id: HoldId,
        actual_cost: ActualCost,
        settle: SettleBy,
    ) -> Self {
        Self { engine, id, actual_cost, settle, is_head: false, is_open: true }
    }

    /// The same, if the response to the request has no body.
    pub(super) fn of_head(mut self, is_head: bool) -> Self {
        self.is_head = is_head;
        self
    }

    /// Charges so many units, or what was billed, or all.
    fn commit(&mut self, actual: Option<u64>) -> Option<Later<()>> {
        self.is_open = false;
        let actual = actual.or(self.actual_cost.actual());
        let commit =
            BackgroundCommit { engine: self.engine.clone(), id: self.id, actual, is_safe: false };
        if self.engine.answers_at_once() {
            // Dropping it commits.
            return None;
        }
        Some(Box::pin(commit.made()))
    }
}

/// A commit that is made even if nobody waits for it.
struct BackgroundCommit<S: Store, C: Clock + Send + Sync + 'static> {
    engine: Engine<S, C>,
    id: HoldId,
    actual: Option<u64>,
    is_safe: bool,
}

impl<S: Store, C: Clock + Send + Sync + 'static> BackgroundCommit<S, C> {
    /// Makes it, and waits until it is safe.
    async fn made(mut self) {
        // A reservation that has expired was given back before.
        let _ = self.engine.commit(self.id, self.actual).await;
        self.is_safe = true;
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> Drop for BackgroundCommit<S, C> {
    fn drop(&mut self) {
        if !self.is_safe {
            // If it was made before, the reservation is gone, and nothing happens.
            drop(self.engine.commit(self.id, self.actual));
        }
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> HeldUnits for RequestHold<S, C> {
    fn settle(mut self: Box<Self>, response: &response::Parts) -> SettleOutcome {
        let settle = (self.settle)(response);
        let later = match settle {
            Settle::Commit(actual) => self.commit(actual),
            Settle::Cancel => {
                self.actual_cost.forget();
                // Dropping it gives everything back.
                None
            }
            Settle::AtEnd if self.is_head => self.commit(None),
            Settle::AtEnd => return SettleOutcome::AtEnd(EndAction::Settle(self)),
        };
        later.map_or(SettleOutcome::Done, SettleOutcome::Later)
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> SettleAtEnd for RequestHold<S, C> {
    fn settle(mut self: Box<Self>) -> Option<Later<()>> {
        self.commit(None)
    }
}

/// Whoever goes without settling pays what was billed, or nothing.
impl<S: Store, C: Clock + Send + Sync + 'static> Drop for RequestHold<S, C> {
    fn drop(&mut self) {
        if self.is_open {
            // It is done when this returns; nobody has to wait until it is safe. A reservation that has
            // expired was given back before.
            drop(match self.actual_cost.actual() {
                Some(actual) => self.engine.commit(self.id, Some(actual)),
                None => self.engine.cancel(self.id),
            });
        }
    }
}
