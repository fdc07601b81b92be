//! What a report contains, in memory that the thread uses again for its next report.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::{Decision, Timestamp, Wait};

use super::{EarlyDenialReport, EvaluatedRule};
use crate::decision::{Decisions, INLINE};
use crate::engine::current_rules::{CurrentRules, GuardedRules};
use crate::engine::local::LocalFallback;
use crate::engine::planning::RuleHit;
use crate::engine::ruleset::Ruleset;
use crate::plan::TicketTurn;
use crate::store::{Durable, NewHold, TicketOutcome};

/// The contents of a report.
pub(in crate::engine) struct ReportBody {
    /// The rules that decided; none in a body without a report.
    pub(in crate::engine) rules: Option<GuardedRules>,
    pub(in crate::engine) evaluated: Vec<EvaluatedRule>,
    pub(in crate::engine) decisions: Decisions,
    pub(in crate::engine) is_allowed: bool,
    /// Whether anything else may have been written; see [`RecycledBody::plain_parts`].
    is_touched: bool,
    pub(in crate::engine) denial: Option<Box<EarlyDenialReport>>,
    pub(in crate::engine) is_outage: bool,
    pub(in crate::engine) is_repeat: bool,
    pub(in crate::engine) hold: Option<NewHold>,
    /// Whether it covers several requests.
    pub(in crate::engine) is_of_several: bool,
    /// Which rule applied to which of them.
    pub(in crate::engine) hits: Vec<RuleHit>,
    /// The wait, where limits change before the one that they have now is over.
    pub(in crate::engine) wait_ahead: Option<Wait>,
    /// When the next hold of a key concerned expires, as far as a shared store knows.
    pub(in crate::engine) next_expiry: Option<Timestamp>,
    /// What to decide by, should the store be unavailable.
    pub(in crate::engine) local: Option<Box<LocalFallback>>,
    /// The ticket of one that waits for a slot in a shared store.
    pub(in crate::engine) ticket: Option<Box<ReportTicket>>,
    /// Resolves when the decision is durable, where it has to be; the mutex makes a report `Sync`.
    durable: Option<Mutex<Durable>>,
}

/// All that a plain decision reads and writes of a body that is as new.
pub(in crate::engine) struct PlainParts<'a> {
    pub(in crate::engine) rules: &'a Ruleset,
    pub(in crate::engine) evaluated: &'a mut Vec<EvaluatedRule>,
    pub(in crate::engine) decisions: &'a mut Decisions,
    pub(in crate::engine) is_allowed: &'a mut bool,
}

/// The ticket of one that waits for a slot in a shared store.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct ReportTicket {
    pub(in crate::engine) turn: TicketTurn,
    /// The state whose record it was planned for.
    pub(in crate::engine) queue: Option<u64>,
    pub(in crate::engine) end: TicketEnd,
}

/// How the attempt of a waiter ended, as far as its ticket is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum TicketEnd {
    /// It did not reach the store.
    Unchanged,
    /// The store has done this.
    Known(TicketOutcome),
    /// The store was unavailable, or its answer was lost.
    Lost,
}

impl ReportTicket {
    pub(in crate::engine) const fn new(turn: TicketTurn) -> Self {
        Self { turn, queue: None, end: TicketEnd::Unchanged }
    }
}

/// A body in a box, which goes back to the thread that drops it: a report is a pointer to move, and
/// needs no allocation while a thread has one at a time.
///
/// A thread keeps a body of a size that is known when this is compiled, and with it the rules of its
/// last report, if they are small: while these are in force, no count of references changes. After a
/// batch it keeps some more for the next one, all with the same rules.
pub(in crate::engine) struct RecycledBody(Option<Box<ReportBody>>);

thread_local! {
    /// The body for this thread's next report.
    static SPARE: Cell<Option<Box<ReportBody>>> = const { Cell::new(None) };
    /// The bodies for reports at the same time.
    #[allow(clippy::vec_box, reason = "a body moves from here to a report as a pointer")]
    static MORE: RefCell<Vec<Box<ReportBody>>> = const { RefCell::new(Vec::new()) };
}

impl ReportBody {
    /// The memory of one, in bytes, with room for a few rules.
    pub(in crate::engine) const BYTES: usize =
        size_of::<Self>() + INLINE * (size_of::<EvaluatedRule>() + size_of::<Decision>());
}

impl RecycledBody {
    /// The contents where no rule matches.
    #[inline(always)]
    pub(in crate::engine) fn new(rules: &CurrentRules) -> Self {
        // A thread that is ending has no spare any more.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        Self(Some(match spare {
            Some(mut body) => {
                rules.renew(&mut body.rules);
                body
            }
            None => ReportBody::another(rules),
        }))
    }

    /// What a plain decision needs. Only what is written in any other way has to be cleared one by
    /// one when the body is used again.
    #[inline(always)]
    pub(in crate::engine) fn plain_parts(&mut self) -> Option<PlainParts<'_>> {
        let ReportBody { rules, evaluated, decisions, is_allowed, .. } = self.0.as_deref_mut()?;
        Some(PlainParts { rules: rules.as_deref()?, evaluated, decisions, is_allowed })
    }
}

impl Deref for RecycledBody {
    type Target = ReportBody;

    #[inline(always)]
    fn deref(&self) -> &ReportBody {
        self.0.as_deref().expect("only dropping takes it")
    }
}

impl DerefMut for RecycledBody {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut ReportBody {
        let body = self.0.as_deref_mut().expect("only dropping takes it");
        body.is_touched = true;
        body
    }
}

impl Drop for RecycledBody {
    #[inline]
    fn drop(&mut self) {
        let Some(mut body) = self.0.take() else { return };
        if body.clear()
            && let Ok(Some(before)) = SPARE.try_with(|spare| spare.replace(Some(body)))
        {
            before.keep();
        }
    }
}

impl ReportBody {
    /// A body for a report beside others.
    #[inline(never)]
    fn another(rules: &CurrentRules) -> Box<Self> {
        let more = MORE.try_with(|more| more.borrow_mut().pop()).ok().flatten();
        let mut body = more.unwrap_or_else(Self::boxed);
        rules.renew_counted(&mut body.rules);
        body
    }

    /// Keeps the body for reports beside others, if there are not too many.
    #[inline(never)]
    fn keep(self: Box<Self>) {
        // What is not kept, and the rules of others, are dropped when nothing is borrowed.
        let mut old = Vec::new();
        let _ = MORE.try_with(|more| {
            let mut more = more.borrow_mut();
            if more.len() == MOST_MORE {
                return;
            }
            let address = |body: &Self| body.rules.as_ref().map(|rules| Arc::as_ptr(rules).addr());
            if more.last().is_some_and(|last| address(last) != address(&self)) {
                old = more.iter_mut().map(|body| body.rules.take()).collect();
            }
            more.push(self);
        });
        drop(old);
    }

    #[cold]
    #[inline(never)]
    fn boxed() -> Box<Self> {
        Box::new(Self {
            rules: None,
            evaluated: Vec::with_capacity(INLINE),
            decisions: Decisions::with_capacity(INLINE),
            is_allowed: true,
            is_touched: false,
            denial: None,
            is_outage: false,
            is_repeat: false,
            hold: None,
            is_of_several: false,
            hits: Vec::new(),
            wait_ahead: None,
            next_expiry: None,
            local: None,
            ticket: None,
            durable: None,
        })
    }

    /// Sets what the report has to wait for before it may be returned.
    pub(in crate::engine) fn wait_for(&mut self, durable: Durable) {
        self.durable = Some(Mutex::new(durable));
    }

    /// Takes what the report has to wait for before it may be returned.
    pub(in crate::engine) fn take_durable(&mut self) -> Option<Durable> {
        Some(self.durable.take()?.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The rules that decided.
    #[inline(always)]
    pub(in crate::engine) fn ruleset(&self) -> &Ruleset {
        self.rules.as_ref().expect("a report has rules")
    }

    /// Makes it what [`boxed`](Self::boxed) returns, but for the rules; false if it is too large to
    /// be kept.
    #[inline(always)]
    fn clear(&mut self) -> bool {
        if self.rules.as_ref().is_some_and(|rules| !rules.is_small) {
            self.rules = None;
        }
        self.evaluated.clear();
        self.decisions.clear();
        self.is_allowed = true;
        !self.is_touched || self.clear_touched()
    }

    /// Clears what only the general path writes.
    #[inline(never)]
    fn clear_touched(&mut self) -> bool {
        self.is_touched = false;
        let Self { denial, is_outage, is_repeat, hold, is_of_several, .. } = self;
        (*denial, *hold) = (None, None);
        (*is_outage, *is_repeat, *is_of_several) = (false, false, false);
        let Self { hits, wait_ahead, next_expiry, local, ticket, durable, .. } = self;
        *hits = Vec::new();
        (*wait_ahead, *next_expiry, *local, *ticket) = (None, None, None, None);
        *durable = None;
        // What was allocated for more rules than usual is not kept.
        self.evaluated.capacity().max(self.decisions.capacity()) <= MOST_KEPT
    }
}

/// The most rules that a spare body has room for.
const MOST_KEPT: usize = 16;

/// The most bodies that a thread keeps besides the first: with it there are enough for a batch.
const MOST_MORE: usize = 15;
