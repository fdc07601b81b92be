//! The byte budgets: how much all connections together may hold.
//!
//! Bytes are counted when they arrive or are ready to be sent, not when they are announced. Above
//! the budget for received bytes no connection reads, and the connections that hold the most are
//! closed until the rest is within the budget. So a flood closes its own connections first, and a
//! budget is never exceeded by more than one read of each thread.

use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// Those without a request in work. A request that waits in a queue is none: it may stay there
    /// for long.
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
