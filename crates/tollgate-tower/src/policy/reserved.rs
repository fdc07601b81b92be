use std::sync::Arc;

use http::response;
use tollgate::{Answer, Clock, Engine, HoldId, Store};

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
        if self.engine.answers_at_once() {
            told(self.engine.commit(self.id, actual));
            return None;
        }
        let (engine, id) = (self.engine.clone(), self.id);
        Some(Box::pin(async move {
            let _ = engine.commit(id, actual).await;
        }))
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
            told(match self.bill.actual() {
                Some(actual) => self.engine.commit(self.id, Some(actual)),
                None => self.engine.cancel(self.id),
            });
        }
    }
}

/// Waits for the answer. A reservation that has expired is given back already.
fn told<T>(answer: Answer<'_, Result<u64, T>>) {
    let _ = answer.wait();
}
