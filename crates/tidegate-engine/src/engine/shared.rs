//! Decisions and edits over a store that answers later: they own what they need, are planned again
//! where the rules have changed meanwhile, and are completed whether or not they are waited for.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_core::{Timestamp, Wait};

use super::change::{Misfit, differences, numbered};
use super::decide::{PendingDecision, Verb, When};
use super::owned_requests::OwnedRequests;
use super::report::{Report, TicketEnd};
use super::ruleset::{Ruleset, RulesetEdit, RulesetSource};
use super::waits::WaitStep;
use super::{CheckError, EditError, StoreEngine};
use crate::edits::{Change, Edit};
use crate::history::History;
use crate::periods::Times;
use crate::plan::PlanTime;
use crate::request::Request;
use crate::store::answer::{BoxFuture, Submitted};
use crate::store::settlement::Settlement;
use crate::store::shared::{Control, SharedStore};
use crate::store::{Answer, DecidedElsewhere, Failure, Outage};
use tidegate_table::clock::Clock;
use tidegate_table::hash::KeyedHash;
use tidegate_table::locks::lock;

impl StoreEngine {
    /// The report of a decision that is on its way.
    #[cold]
    #[inline(never)]
    pub(super) fn finish_pending(
        &self,
        report: Report,
        pending: PendingDecision,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
    ) -> BoxFuture<Result<Report, CheckError>> {
        let (engine, requests) = (self.clone(), OwnedRequests::new(requests));
        let deciding = async move {
            let decided = engine.finish_decision(report, pending, requests, verb, when).await;
            (decided, engine)
        };
        if self.shared.store.shared().is_none() {
            return Box::pin(async move { deciding.await.0 });
        }
        let submitted = Submitted::new(
            Box::pin(deciding),
            |(decided, engine): (Result<Report, CheckError>, Self)| {
                let report = decided.ok()?;
                engine.leave_after(&report);
                // Its caller is gone, and could never settle it. A repeat has the hold of another.
                let id = Some(report).filter(|report| !report.body.is_repeat)?.hold()?;
                Some(Box::pin(async move {
                    let _ = engine.settle(id, Settlement::Cancel, None).await;
                }))
            },
            &self.shared.finisher,
        );
        Box::pin(async move { submitted.await.0 })
    }

    /// A decision that needs no limit, but the rules of a shared store: they have to be in force.
    #[inline]
    pub(super) fn if_in_force(
        &self,
        report: &Report,
        times: Times,
    ) -> Result<Option<PendingDecision>, CheckError> {
        if !self.is_shared() {
            return Ok(None);
        }
        self.known_if_in_force(report, times, None)
    }

    /// An error by the rules of a shared store: they have to be in force.
    #[cold]
    pub(super) fn error_if_in_force(
        &self,
        report: &Report,
        times: Times,
        error: CheckError,
    ) -> Result<Option<PendingDecision>, CheckError> {
        self.known_if_in_force(report, times, Some(error))
    }

    #[cold]
    fn known_if_in_force(
        &self,
        report: &Report,
        times: Times,
        error: Option<CheckError>,
    ) -> Result<Option<PendingDecision>, CheckError> {
        match (self.shared.store.shared(), error) {
            (None, None) => Ok(None),
            (None, Some(error)) => Err(error),
            (Some(store), error) => {
                let (version, is_allowed) = (report.ruleset().version, report.body.is_allowed);
                let found = store.if_in_force(version, is_allowed, times);
                let future = Box::pin(found.into_future());
                Ok(Some(PendingDecision { future, times, error }))
            }
        }
    }

    /// Waits for a decision, and plans again where the rules have changed meanwhile.
    async fn finish_decision(
        &self,
        mut report: Report,
        mut pending: PendingDecision,
        requests: OwnedRequests,
        verb: Verb,
        when: When,
    ) -> Result<Report, CheckError> {
        for _ in 0..MOST_PLANS {
            let PendingDecision { future, mut times, error } = pending;
            let decided = match (future.await, error) {
                (Ok(_), Some(error)) => return Err(error),
                (Ok(mut decided), None) => {
                    if let Some(elsewhere) = decided.elsewhere.take() {
                        times = elsewhere.times;
                        report.take_elsewhere(*elsewhere);
                    }
                    self.shared.local.tidy(times.now);
                    Ok(decided)
                }
                // What is wrong with the request by the rules known here is no matter of the store.
                (Err(Failure::Outage(_)), Some(error)) => return Err(error),
                (Err(Failure::Superseded | Failure::NotAdopted), error) => {
                    // Boxed: few decisions are planned again.
                    if let Err(outage) = Box::pin(self.catch_up()).await {
                        report.lose_ticket(outage);
                        report.set(Err(outage.into()))?;
                        return error.map_or(Ok(report), Err);
                    }
                    let ticket = report.body.ticket.take();
                    report = Report::new(&self.shared.rules);
                    report.body.ticket = ticket;
                    match requests.with(|it| self.plan_again(&mut report, it, verb, when))? {
                        Some(next) => pending = next,
                        None => return Ok(report),
                    }
                    continue;
                }
                (Err(error), _) => {
                    if let Failure::Outage(outage) = error {
                        report.lose_ticket(outage);
                    }
                    Err(error)
                }
            };
            let is_decided = decided.is_ok();
            report.set(decided)?;
            let is_denied = is_decided && !report.body.is_allowed && !report.body.is_repeat;
            if is_denied && !matches!(when, When::Ahead(_)) {
                Box::pin(self.correct_shared_wait(&mut report, &requests, verb, times)).await;
            }
            return Ok(report);
        }
        report.set(Err(Failure::Superseded))?;
        Ok(report)
    }

    fn plan_again(
        &self,
        report: &mut Report,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
    ) -> Result<Option<PendingDecision>, CheckError> {
        self.decide_into(report, requests, verb, when)
    }

    /// Corrects the wait of a denied request, by peeks at the changes ahead.
    async fn correct_shared_wait(
        &self,
        report: &mut Report,
        requests: &OwnedRequests,
        verb: Verb,
        times: Times,
    ) {
        if !report.may_change_ahead(times) {
            return;
        }
        let start = requests.with(|it| self.begin_wait_ahead(report, it, times));
        let Some((mut ahead, mut step)) = start else { return };
        loop {
            let at = match step {
                WaitStep::Over(wait) => {
                    report.body.wait_ahead = wait;
                    return;
                }
                WaitStep::Peek(at) => at,
            };
            let peeking = requests.with(|it| self.look_ahead_shared(it, verb.look(), at));
            let look = match peeking {
                Answer::Ready(look) => look,
                Answer::Pending(look) => look.await,
            };
            let Ok(look) = look else {
                report.body.wait_ahead = Some(Wait::Unknown);
                return;
            };
            step = requests.with(|it| self.go_on_waiting_ahead(&mut ahead, &look, it));
        }
    }

    fn look_ahead_shared(
        &self,
        requests: &[Request<'_>],
        look: Verb,
        at: Times,
    ) -> Answer<Result<Report, CheckError>> {
        let report = Report::new(&self.shared.rules);
        self.decide_early(report, requests, look, When::Ahead(at))
    }

    /// Takes over the rules that are in force, or puts the engine's own into force.
    pub(super) async fn catch_up(&self) -> Result<(), Outage> {
        let Some(store) = self.shared.store.shared() else { return Ok(()) };
        let seen = store.control();
        // Only one call proposes it: a later one could undo an edit that came between.
        let proposal = lock(&self.shared.proposal).take();
        let kept = proposal.clone();
        let is_new = seen.version != 0 && seen.version != self.shared.rules.load().version;
        if is_new && proposal.is_none() {
            self.install(&seen);
            return Ok(());
        }
        let times = self.by_the_clock().read_times();
        let own = Arc::clone(&self.shared.rules.load().policy);
        let hash = store.hash_of_keys().clone();
        let mut attempts = store.attempts(times, PlanTime::of(None));
        let edited = store.edit::<_, EditError>(move |control| {
            let policy = match &proposal {
                Some(policy) if control.gives_way_to(policy) => Arc::clone(policy),
                None if control.version == 0 => Arc::clone(&own),
                _ => return Ok((None, ())),
            };
            // It is in force elsewhere, or the policy that the program began with.
            let edit = Edit::policy(policy);
            let by = ControlEdit { actor: "start", times: attempts.next(), edit: &edit };
            let (after, _) = edited(control, &hash, by, &|_, _| Ok(()))?;
            Ok((after, ()))
        });
        match edited.await {
            Ok((control, ())) => {
                self.install(&control);
                Ok(())
            }
            Err(error) => {
                if kept.is_some() {
                    *lock(&self.shared.proposal) = kept;
                }
                Err(match error {
                    EditError::Outage(outage) => outage,
                    _ => Outage::Unavailable,
                })
            }
        }
    }

    /// Whether other engines, of this process or of others, may share its store.
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared.store.shared().is_some()
    }

    /// Takes over the rules that are in force in a store which other engines share, or puts the
    /// engine's own there. Decisions do so, too; a program calls this when it starts and from time to
    /// time, so that it knows of edits though it decides nothing.
    pub fn synchronize(&self) -> Answer<Result<(), Outage>> {
        let Some(store) = self.shared.store.shared() else { return Answer::Ready(Ok(())) };
        let times = self.by_the_clock().read_times();
        let looking = store.if_in_force(self.shared.rules.load().version, true, times);
        let engine = self.clone();
        self.submit_future(Box::pin(async move {
            match looking.await {
                Ok(_) => Ok(()),
                Err(Failure::Outage(outage)) => Err(outage),
                Err(_) => engine.catch_up().await,
            }
        }))
    }

    /// Puts the rules of a control into force here.
    pub(super) fn install(&self, control: &Arc<Control>) {
        let mut changes = lock(&self.shared.changes);
        let old = self.shared.rules.load_full();
        if old.version == control.version {
            return;
        }
        let Some(store) = self.shared.store.shared() else { return };
        let new = rules_of(control, store.hash_of_keys(), Some(&old));
        let misfits = changes.misfits(&old, &new);
        self.shared.rules.store(Arc::new(new));
        let made = changes.log.add(control.changes.iter());
        changes.retire(old);
        self.shared.waiting.wake_all();
        let observers = changes.observers();
        drop(changes);
        misfits.iter().for_each(Misfit::report);
        for change in &made {
            observers.iter().for_each(|observer| observer(change));
        }
    }

    /// The times of this handle's operations, whether or not the rules need both.
    pub(super) fn read_times(&self) -> Times {
        let clock = &self.shared.clock;
        match self.given {
            Some(now) => Times { now, wall: now },
            None => Times { now: clock.now(), wall: clock.wall() },
        }
    }

    /// Makes an edit in a shared store.
    pub(super) fn edit_shared(
        &self,
        store: &SharedStore,
        actor: Box<str>,
        edit: Edit,
    ) -> Answer<Result<Vec<Change>, EditError>> {
        let (engine, hash) = (self.clone(), store.hash_of_keys().clone());
        let times = self.read_times();
        let editing = Box::pin(async move {
            if engine.shared.store.shared().is_some_and(|it| it.control().version == 0) {
                engine.catch_up().await?;
            }
            let Some(store) = engine.shared.store.shared() else { return Ok(Vec::new()) };
            let mut attempts = store.attempts(times, PlanTime::of(engine.given));
            let own = engine.clone();
            let fits =
                move |old: &Ruleset, new: &Ruleset| lock(&own.shared.changes).check(old, new);
            let editing = store.edit::<_, EditError>(move |control| {
                if control.version == 0 {
                    // The records were lost since.
                    return Err(Outage::Unavailable.into());
                }
                edit.check_revision(&control.policy)?;
                let by = ControlEdit { actor: &actor, times: attempts.next(), edit: &edit };
                let (after, made) = edited(control, &hash, by, &fits)?;
                Ok((after, (made, control.history.superseded())))
            });
            let (control, (made, superseded)) = editing.await?;
            engine.install(&control);
            if is_long(superseded, control.history.superseded()) {
                engine.shorten_history(store, times.now);
            }
            Ok(made)
        });
        self.submit_future(editing)
    }
}

impl StoreEngine {
    /// Begins to shorten the history of the limits. Nothing waits for it.
    fn shorten_history(&self, store: &SharedStore, now: Timestamp) {
        let shortening = store.shorten(now.saturating_sub(SUPERSEDED_FOR));
        let engine = self.clone();
        let installing = Box::pin(async move {
            // If it fails, it is tried again after more edits.
            if let Ok(control) = shortening.await {
                engine.install(&control);
            }
        });
        drop(Submitted::new(installing, |()| None, &self.shared.finisher));
    }
}

impl Report {
    /// Takes over what came with a decision over records that engines share.
    fn take_elsewhere(&mut self, elsewhere: DecidedElsewhere) {
        let DecidedElsewhere { decisions, next_expiry, ticket, .. } = elsewhere;
        (self.body.decisions, self.body.next_expiry) = (decisions, next_expiry);
        self.body.local = None;
        if let Some(ticket) = ticket {
            self.end_ticket(TicketEnd::Known(ticket));
        }
    }
}

/// The result of an operation that was planned, if it could be.
pub(super) type Planning<T> = Answer<Result<Result<T, Failure>, CheckError>>;

impl StoreEngine {
    /// Plans an operation by the rules that are known here and applies it, again where the rules have
    /// changed meanwhile.
    pub(super) fn run_planned<T: Send + 'static>(
        &self,
        request: &Request<'_>,
        once: impl Fn(&Self, &Request<'_>) -> Planning<T> + Send + Sync + 'static,
    ) -> Answer<Result<T, CheckError>> {
        if !self.is_shared() {
            loop {
                match once(self, request) {
                    Answer::Ready(Ok(Err(Failure::Superseded | Failure::NotAdopted))) => {}
                    result => return result.map(|result| Ok(result??)),
                }
            }
        }
        let requests = OwnedRequests::new(std::slice::from_ref(request));
        let engine = self.clone();
        self.submit_future(Box::pin(async move {
            for _ in 0..MOST_PLANS {
                let result = match requests.with(|it| once(&engine, &it[0])) {
                    Answer::Ready(result) => result,
                    Answer::Pending(result) => result.await,
                };
                match result? {
                    Err(Failure::Superseded | Failure::NotAdopted) => engine.catch_up().await?,
                    result => return result.map_err(Into::into),
                }
            }
            Err(Outage::Unavailable.into())
        }))
    }

    /// Closes a round of a shared store, and takes over what is in force then.
    pub(super) fn close_shared_round(
        &self,
        domain: &str,
        times: Times,
    ) -> Answer<Result<u64, Outage>> {
        let (engine, domain): (Self, Box<str>) = (self.clone(), domain.into());
        self.submit_future(Box::pin(async move {
            let Some(store) = engine.shared.store.shared() else {
                return Err(Outage::Unavailable);
            };
            if store.control().version == 0 {
                engine.catch_up().await?;
            }
            let attempts = store.attempts(times, PlanTime::of(engine.given));
            let (control, closed) = store.close_round_of(domain, attempts).await?;
            engine.install(&control);
            Ok(closed)
        }))
    }

    /// Applies a function to a result, with a handle to the engine where the result is pending.
    pub(super) fn after<T: 'static, U>(
        &self,
        answer: Answer<T>,
        function: impl FnOnce(&Self, T) -> U + Send + 'static,
    ) -> Answer<U> {
        match answer {
            Answer::Ready(result) => Answer::Ready(function(self, result)),
            pending @ Answer::Pending(_) => {
                let engine = self.clone();
                pending.map(move |result| function(&engine, result))
            }
        }
    }

    /// Submits an operation, with a handle of its own to the engine.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Self) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let engine = self.clone();
        self.submit_future(Box::pin(async move {
            match operation(&engine) {
                Answer::Ready(result) => result,
                Answer::Pending(result) => result.await,
            }
        }))
    }

    /// Completes operations, although no caller waits for them: at once, or on a thread that runs while
    /// there are any.
    pub fn complete_in_background(&self, operations: impl Future<Output = ()> + Send + 'static) {
        drop(self.submit_future(Box::pin(operations)));
    }

    /// Submits an operation: the first poll does.
    pub(super) fn submit_future<T: Send + 'static>(&self, mut future: BoxFuture<T>) -> Answer<T> {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Answer::Ready(result);
        }
        Answer::Pending(Box::pin(Submitted::new(future, |_| None, &self.shared.finisher)))
    }
}

/// Who edits what, and when.
#[derive(Clone, Copy, Debug)]
struct ControlEdit<'a> {
    actor: &'a str,
    times: Times,
    edit: &'a Edit,
}

/// Whether the program can work with new rules in place of old ones.
type FitsProgram<'a> = &'a dyn Fn(&Ruleset, &Ruleset) -> Result<(), EditError>;

/// What is in force after an edit, and what it changed; `None` if it changed nothing.
fn edited(
    control: &Arc<Control>,
    hash: &KeyedHash,
    by: ControlEdit<'_>,
    fits: FitsProgram<'_>,
) -> Result<(Option<Control>, Vec<Change>), EditError> {
    let old = rules_of(control, hash, None);
    let ControlEdit { actor, times, edit } = by;
    let (policy, overlay) = edit.of(&old)?;
    let rounds = |domain: &str| control.rounds(domain);
    let source = RulesetSource { history: Arc::clone(&control.history), hash, rounds: &rounds };
    let how = RulesetEdit { times, effective: edit.effective };
    let new = Ruleset::new(policy, overlay, Some(&old), &source, how);
    fits(&old, &new)?;
    let last = control.changes.last();
    let made = numbered(last, actor, times.wall, differences(&old, &new));
    let is_same = made.is_empty()
        && new.adoption.rules.is_empty()
        && old.overlay == new.overlay
        && *old.policy == *new.policy;
    if is_same && control.version != 0 {
        return Ok((None, made));
    }
    let mut history = History::clone(&control.history);
    for rule in &new.adoption.rules {
        let in_force = history.without_forgotten(rule).in_force_at(times);
        history.insert(Arc::new(in_force));
    }
    if history.superseded() > MOST_SUPERSEDED {
        return Err(EditError::TooManyEdits);
    }
    let after = control.edited(new.policy, new.overlay, history, &made);
    Ok((Some(after), made))
}

/// The rules of a control, compiled.
fn rules_of(control: &Control, hash: &KeyedHash, old: Option<&Ruleset>) -> Ruleset {
    let rounds = |domain: &str| control.rounds(domain);
    let source = RulesetSource { history: Arc::clone(&control.history), hash, rounds: &rounds };
    // Nothing is new in them, so the time does not matter.
    let times = Times { now: Timestamp::ZERO, wall: Timestamp::ZERO };
    let edit = RulesetEdit { times, effective: None };
    let (policy, overlay) = (Arc::clone(&control.policy), control.overlay.clone());
    let mut rules = Ruleset::new(policy, overlay, old, &source, edit);
    rules.version = control.version;
    rules
}

/// How often a decision is planned: the rules may change while it is on its way.
const MOST_PLANS: usize = 10_000;

/// Whether an edit has made the history so long that it is time to shorten it: by the superseded
/// versions before and after it.
const fn is_long(before: usize, after: usize) -> bool {
    after >= SHORTENED_FROM && before / SHORTENED_EVERY < after / SHORTENED_EVERY
}

/// With so many superseded versions of limits the history is shortened, and again after so many more.
const SHORTENED_FROM: usize = 1_024;
const SHORTENED_EVERY: usize = 256;

/// For how long at least a superseded version is kept: settled holds can be refunded that long.
const SUPERSEDED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// How many versions of limits there may be that are no longer the newest of their rule.
const MOST_SUPERSEDED: usize = 1 << 16;
