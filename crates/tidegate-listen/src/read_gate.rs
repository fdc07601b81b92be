//! Reads wait while connections hold more than their byte budget.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use crate::byte_budget::{BudgetKind, Victims};
use crate::permits::Permit;

/// Delays the reads of a connection while the budget for received bytes is exceeded.
#[derive(Debug, Default)]
pub struct ReadGate {
    pause: Option<Pin<Box<Sleep>>>,
    pauses: u32,
}

impl ReadGate {
    /// Ready when the connection may read.
    pub fn poll_open(&mut self, permit: &Permit, context: &mut Context<'_>) -> Poll<()> {
        while permit.is_over(BudgetKind::Received) {
            let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE)));
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
            self.pauses += 1;
            // Requests in work usually end soon; those that do not must not block all others.
            let is_stuck = self.pauses >= PAUSES_MAX;
            permit.relieve(
                BudgetKind::Received,
                if is_stuck { Victims::All } else { Victims::WithoutRequest },
            );
        }
        *self = Self::default();
        Poll::Ready(())
    }
}

/// How often a connection that waits looks again.
const PAUSE: Duration = Duration::from_millis(10);
/// How many pauses connections with a request in work are left alone.
const PAUSES_MAX: u32 = 100;
