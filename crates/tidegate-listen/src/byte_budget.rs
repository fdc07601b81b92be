//! The byte budgets: how much all connections together may hold.
//!
//! Bytes are counted when they arrive or are ready to be sent, not when they are announced. Above
//! the budget for received bytes no connection reads, and the connections that hold the most are
//! closed until the rest is within the budget. So a flood closes its own connections first, and a
//! budget is never exceeded by more than one read of each thread.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use crate::permits::Permit;

/// What a budget bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetKind {
    /// What is being received: unfinished requests, streams and their state.
    Received,
    /// Responses that are not sent yet.
    Unsent,
}

impl BudgetKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Received, Self::Unsent];

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Unsent => "unsent",
        }
    }
}

/// Which connections may be closed for a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// Those without a request in work.
    WithoutRequest,
    /// All of them.
    All,
}

/// The bounds of the two budgets, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteBudgets {
    /// What all connections together may hold of what is being received.
    pub received_bytes: usize,
    /// What all connections together may hold of responses that are not sent yet.
    pub unsent_bytes: usize,
}

impl Default for ByteBudgets {
    /// 64 MiB each.
    fn default() -> Self {
        Self { received_bytes: 64 << 20, unsent_bytes: 64 << 20 }
    }
}

/// The bytes that all connections hold, and their bound.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    max: usize,
    used: AtomicUsize,
}

impl ByteBudget {
    pub(crate) const fn new(max: usize) -> Self {
        Self { max, used: AtomicUsize::new(0) }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How many bytes are held beyond the bound.
    pub(crate) fn excess(&self) -> usize {
        self.used().saturating_sub(self.max)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

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
