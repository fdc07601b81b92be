use std::sync::Arc;

use http::response;
use tidegate::{Clock, Engine, HoldId, Store};

use super::Settle;
use crate::ActualCost;
use crate::body::{EndAction, SettleAtEnd};
use crate::gate::{HeldUnits, SettleOutcome};
use crate::later::Later;

/// How held units are settled, once there is a response.
pub(super) type SettleBy = Arc<dyn Fn(&response::Parts) -> Settle + Send + Sync>;

/// Units held for a request.
pub(super) struct RequestHold<S: Store, C: Clock + Send + Sync + 'static> {
    engine: Engine<S, C>,
    id: HoldId,
    actual_cost: ActualCost,
    settle: SettleBy,
    /// Whether the body of the response is not sent.
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

    /// The same, with whether the response has no body.
    pub(super) fn of_head(mut self, is_head: bool) -> Self {
        self.is_head = is_head;
        self
    }

    /// Charges this many units, or the actual cost, or all.
    fn commit(&mut self, actual: Option<u64>) -> Option<Later<()>> {
        self.is_open = false;
        let actual = actual.or(self.actual_cost.actual());
        let commit = BackgroundCommit {
            engine: self.engine.clone(),
            id: self.id,
            actual,
            is_durable: false,
        };
        if self.engine.is_immediate() {
            // Dropping it commits.
            return None;
        }
        Some(Box::pin(commit.run()))
    }
}

/// A commit that happens even if its future is dropped.
struct BackgroundCommit<S: Store, C: Clock + Send + Sync + 'static> {
    engine: Engine<S, C>,
    id: HoldId,
    actual: Option<u64>,
    is_durable: bool,
}

impl<S: Store, C: Clock + Send + Sync + 'static> BackgroundCommit<S, C> {
    /// Commits, and waits until the commit is durable.
    async fn run(mut self) {
        // A reservation that has expired was released before.
        let _ = self.engine.commit(self.id, self.actual).await;
        self.is_durable = true;
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> Drop for BackgroundCommit<S, C> {
    fn drop(&mut self) {
        if !self.is_durable {
            // If it was committed before, the reservation is gone and this does nothing.
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
                self.actual_cost.clear();
                // Dropping it cancels the hold.
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

/// Dropped without settling, it charges the actual cost, or nothing.
impl<S: Store, C: Clock + Send + Sync + 'static> Drop for RequestHold<S, C> {
    fn drop(&mut self) {
        if self.is_open {
            // It applies when this returns; waiting until it is durable is not needed. A
            // reservation that has expired was released before.
            match self.actual_cost.actual() {
                Some(actual) => drop(self.engine.commit(self.id, actual)),
                None => drop(self.engine.cancel(self.id, None)),
            }
        }
    }
}
