//! What a report contains, in memory that the thread uses again for its next report.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use tidegate_core::{Decision, Timestamp, Wait};

use super::{EarlyDenialReport, EvaluatedRule};
use crate::any_limit::{Decisions, INLINE};
use crate::engine::current_rules::{CurrentRules, GuardedRules};
use crate::engine::local::LocalFallback;
use crate::engine::planning::RuleHit;
use crate::engine::ruleset::Ruleset;
use crate::plan::TicketTurn;
use crate::store::{NewHold, TicketOutcome};

/// The contents of a report.
pub(in crate::engine) struct ReportBody {
    /// The rules that decided; none in a body without a report.
    pub(in crate::engine) rules: Option<GuardedRules>,
    pub(in crate::engine) evaluated: Vec<EvaluatedRule>,
    pub(in crate::engine) decisions: Decisions,
    pub(in crate::engine) denial: Option<Box<EarlyDenialReport>>,
    pub(in crate::engine) is_allowed: bool,
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
/// A thread keeps one body, of a size that is known when this is compiled, and with it the rules of
/// its last report, if they are small: while these are in force, no count of references changes.
pub(in crate::engine) struct RecycledBody(Option<Box<ReportBody>>);

thread_local! {
    /// The body for this thread's next report.
    static SPARE: Cell<Option<Box<ReportBody>>> = const { Cell::new(None) };
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
        let mut body = spare.unwrap_or_else(ReportBody::boxed);
        rules.renew(&mut body.rules);
        Self(Some(body))
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
        self.0.as_deref_mut().expect("only dropping takes it")
    }
}

impl Drop for RecycledBody {
    #[inline]
    fn drop(&mut self) {
        let Some(mut body) = self.0.take() else { return };
        // What was allocated for more rules than usual is not kept.
        if body.evaluated.capacity().max(body.decisions.capacity()) <= MOST_KEPT {
            body.clear();
            let _ = SPARE.try_with(|spare| spare.set(Some(body)));
        }
    }
}

impl ReportBody {
    #[cold]
    #[inline(never)]
    fn boxed() -> Box<Self> {
        Box::new(Self {
            rules: None,
            evaluated: Vec::with_capacity(INLINE),
            decisions: Decisions::with_capacity(INLINE),
            denial: None,
            is_allowed: true,
            is_outage: false,
            is_repeat: false,
            hold: None,
            is_of_several: false,
            hits: Vec::new(),
            wait_ahead: None,
            next_expiry: None,
            local: None,
            ticket: None,
        })
    }

    /// The rules that decided.
    #[inline(always)]
    pub(in crate::engine) fn ruleset(&self) -> &Ruleset {
        self.rules.as_ref().expect("a report has rules")
    }

    /// Makes it what [`boxed`](Self::boxed) returns, but for the rules.
    #[inline(always)]
    fn clear(&mut self) {
        let Self { rules, evaluated, decisions, denial, hold, .. } = self;
        if rules.as_ref().is_some_and(|rules| !rules.is_small) {
            *rules = None;
        }
        evaluated.clear();
        decisions.clear();
        (*denial, *hold) = (None, None);
        let Self { is_allowed, is_outage, is_repeat, is_of_several, .. } = self;
        (*is_allowed, *is_outage, *is_repeat, *is_of_several) = (true, false, false, false);
        let Self { hits, wait_ahead, next_expiry, local, ticket, .. } = self;
        *hits = Vec::new();
        (*wait_ahead, *next_expiry, *local, *ticket) = (None, None, None, None);
    }
}

/// The most rules that a spare body has room for.
const MOST_KEPT: usize = 16;
