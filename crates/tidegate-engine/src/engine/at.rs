//! The engine's verbs at a given time.

use std::fmt;

use tidegate_core::Timestamp;

use super::decide::{Verb, When};
use super::{
    CheckError, Commit, CommitReport, Edited, Engine, Enrolment, Explanation, Note, Refund, Report,
    RuleUsage, SettleError,
};
use crate::plan::Settlement;
use crate::request::Request;
use crate::store::{HoldId, NowOrLater, Outage};
use tidegate_policy::policy::{Policy, Rule};

/// The verbs of an [`Engine`] at a given time, which is also the time of day.
///
/// ```
/// use tidegate::policy::Policy;
/// use tidegate::{Engine, Request, Timestamp};
///
/// let engine = Engine::new(Policy::from_toml(r#"
///     [[rule]]
///     name     = "once-a-minute"
///     key      = ["user"]
///     cooldown = "60s"
/// "#)?);
/// let ada = Request::new("default", &[("user", "ada")]);
/// assert!(engine.at(Timestamp::from_secs(1_000)).check(&ada).block()?.is_allowed());
/// assert!(!engine.at(Timestamp::from_secs(1_059)).check(&ada).block()?.is_allowed());
/// assert!(engine.at(Timestamp::from_secs(1_060)).check(&ada).block()?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Each does what the engine's verb of that name does. Waits ([`Engine::acquire`],
/// [`Engine::until_ready`]) follow the engine's clock alone. Times of both kinds may be mixed when
/// they come from the same clock.
#[must_use = "it does nothing by itself"]
pub struct EngineAt<'e> {
    engine: &'e Engine,
    now: Timestamp,
}

impl Engine {
    /// The engine's verbs at a given time, which is also the time of day.
    #[inline]
    pub const fn at(&self, now: Timestamp) -> EngineAt<'_> {
        EngineAt { engine: self, now }
    }
}

/// Decisions.
impl<'e> EngineAt<'e> {
    /// [`Engine::check`].
    #[inline]
    pub fn check(&self, request: &Request<'_>) -> NowOrLater<'e, Result<Report, CheckError>> {
        self.engine.check_when(request, Some(self.now))
    }

    /// [`Engine::check_together`].
    pub fn check_together(
        &self,
        requests: &[Request<'_>],
    ) -> NowOrLater<'e, Result<Report, CheckError>> {
        self.decide(requests, Verb::Check)
    }

    /// [`Engine::check_many`].
    pub fn check_many(
        &self,
        requests: &[Request<'_>],
    ) -> Vec<NowOrLater<'e, Result<Report, CheckError>>> {
        self.engine.check_each(requests, When::At(self.now))
    }

    /// [`Engine::peek`].
    pub fn peek(&self, request: &Request<'_>) -> NowOrLater<'e, Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Peek)
    }

    /// [`Engine::reserve`].
    pub fn reserve(&self, request: &Request<'_>) -> NowOrLater<'e, Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Reserve)
    }

    /// [`Engine::explain`].
    pub fn explain(
        &self,
        request: &Request<'_>,
    ) -> NowOrLater<'e, Result<Explanation, CheckError>> {
        self.engine.explain_when(request, Some(self.now))
    }

    /// [`Engine::usage`].
    pub fn usage(
        &self,
        request: &Request<'_>,
    ) -> NowOrLater<'e, Result<Vec<RuleUsage>, CheckError>> {
        self.engine.usage_when(request, Some(self.now))
    }

    #[inline]
    fn decide(
        &self,
        requests: &[Request<'_>],
        verb: Verb,
    ) -> NowOrLater<'e, Result<Report, CheckError>> {
        self.engine.decide(requests, verb, When::At(self.now))
    }
}

/// Settlements, keys and rounds.
impl<'e> EngineAt<'e> {
    /// [`Engine::commit`].
    pub fn commit<'c>(
        &self,
        id: HoldId,
        commit: impl Into<Commit<'c>>,
    ) -> NowOrLater<'e, Result<CommitReport, SettleError>> {
        self.engine.commit_when(id, commit.into(), Some(self.now))
    }

    /// [`Engine::cancel`].
    pub fn cancel<'n>(
        &self,
        id: HoldId,
        note: impl Into<Note<'n>>,
    ) -> NowOrLater<'e, Result<u64, SettleError>> {
        self.engine.settle(id, (Settlement::Cancel, note.into().0), Some(self.now))
    }

    /// [`Engine::void`].
    pub fn void<'n>(
        &self,
        id: HoldId,
        note: impl Into<Note<'n>>,
    ) -> NowOrLater<'e, Result<u64, SettleError>> {
        self.engine.settle(id, (Settlement::Void, note.into().0), Some(self.now))
    }

    /// [`Engine::refund_hold`].
    pub fn refund_hold<'r>(
        &self,
        id: HoldId,
        refund: impl Into<Refund<'r>>,
    ) -> NowOrLater<'e, Result<u64, SettleError>> {
        self.engine.refund_hold_when(id, refund.into(), Some(self.now))
    }

    /// [`Engine::refund`].
    pub fn refund(&self, request: &Request<'_>) -> NowOrLater<'e, Result<u64, CheckError>> {
        self.engine.refund_when(request, Some(self.now))
    }

    /// [`Engine::renew`].
    pub fn renew(&self, id: HoldId) -> NowOrLater<'e, Result<Timestamp, SettleError>> {
        self.engine.renew_when(id, Some(self.now))
    }

    /// [`Engine::enrol`].
    pub fn enrol(&self, request: &Request<'_>) -> NowOrLater<'e, Result<Enrolment, CheckError>> {
        self.engine.enrol_when(request, Some(self.now))
    }

    /// [`Engine::forget`].
    pub fn forget(&self, request: &Request<'_>) -> NowOrLater<'e, Result<bool, CheckError>> {
        self.engine.forget_when(request, Some(self.now))
    }

    /// [`Engine::close_round`].
    pub fn close_round<'n>(
        &self,
        domain: &str,
        note: impl Into<Note<'n>>,
    ) -> NowOrLater<'e, Result<u64, Outage>> {
        self.engine.close_round_when(domain, note.into(), Some(self.now))
    }
}

/// Edits.
impl<'e> EngineAt<'e> {
    /// [`Engine::replace_policy`].
    pub fn replace_policy(&self, actor: &str, policy: Policy) -> Edited<'e> {
        self.engine.replace_policy_when(actor, policy, Some(self.now))
    }

    /// [`Engine::replace_rule`].
    pub fn replace_rule(&self, actor: &str, rule: Rule) -> Edited<'e> {
        self.engine.replace_rule_when(actor, rule, Some(self.now))
    }
}

impl Clone for EngineAt<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for EngineAt<'_> {}

impl fmt::Debug for EngineAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineAt").field("now", &self.now).finish_non_exhaustive()
    }
}
