use std::fmt;

use tidegate::{
    CheckError, Report, Request, SettleError, StoreEngine,
    hold::{Commit, CommitReport, HoldId},
};

use crate::limits::{DENIALS, DOMAIN, USER};
use crate::update::Message;

/// The check whether a user's message may reach the agent.
///
/// A message is checked, and then claimed. Telegram resends an update when the response got lost; a
/// repeated check returns the same result and charges nothing, and only one of the repeats can
/// claim the message. A message that is not claimed within ten minutes costs nothing.
///
/// ```
/// # use tidegate_webhook::{Claimed, Limits, Message, MessageLimiter};
/// # use tidegate::Engine;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limiter = MessageLimiter::new(Engine::new(Limits { max: 1, ..Limits::default() }.policy()?));
/// let message = Message { update_id: 7, user: 42, chat: 42 };
/// let checked = limiter.check(&message).await;
/// assert!(checked.allowed && checked.remaining == Some(0));
/// assert_eq!(limiter.claim(checked).await, Claimed::First);
///
/// // The same message again, and another one.
/// let again = limiter.check(&message).await;
/// assert!(again.allowed);
/// assert_eq!(limiter.claim(again).await, Claimed::Again);
/// assert!(!limiter.check(&Message { update_id: 8, ..message }).await.allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MessageLimiter {
    engine: StoreEngine,
}

/// The result of a check.
#[must_use]
#[derive(Debug)]
pub struct CheckResult {
    /// Whether the message is allowed.
    pub allowed: bool,
    /// How many more the user has after it; `None` if the user is unlimited or the store
    /// unavailable.
    pub remaining: Option<u64>,
    charge: CheckedCharge,
}

/// What a checked message holds.
#[derive(Clone, Copy, Debug)]
enum CheckedCharge {
    /// One unit is held for it, by this check or by an earlier one of the same message.
    Held { hold: HoldId, is_repeat: bool },
    /// Nothing: it was denied, or could not be counted.
    Nothing,
}

/// Whether a message is to be dispatched.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is: this is the first claim.
    First,
    /// It is not: it was claimed before, or denied.
    Again,
    /// It is not: what was held for it is released. It has to be checked again.
    Released,
}

impl MessageLimiter {
    /// A limiter with an engine whose policy is that of [`Limits`](crate::Limits).
    #[must_use]
    pub fn new(engine: impl Into<StoreEngine>) -> Self {
        Self { engine: engine.into() }
    }

    /// Decides whether a message is allowed, and holds one unit if so. A denied message costs
    /// nothing.
    ///
    /// An outage of the store allows the message, and is logged.
    pub async fn check(&self, message: &Message) -> CheckResult {
        let user = message.user.to_string();
        let name = format!("{user}:{}", message.update_id);
        let attributes = [(USER, user.as_str())];
        let request = Request::new(DOMAIN, &attributes).idempotency_key(&name);
        checked(message, self.engine.hold(&request).await)
    }

    /// Commits the hold of a message, and returns whether this is the first claim.
    ///
    /// An outage of the store allows the message, and is logged.
    pub async fn claim(&self, checked: CheckResult) -> Claimed {
        self.claim_noting(checked, "").await
    }

    /// [`claim`](Self::claim), with a note for the ledger of a file store: the first claim and its
    /// note are durable together, when this returns.
    pub async fn claim_noting(&self, checked: CheckResult, note: &str) -> Claimed {
        match checked.charge {
            CheckedCharge::Held { hold, .. } => match self.commit(hold, note).await {
                Ok(done) if done.is_repeat => Claimed::Again,
                Ok(_) => Claimed::First,
                Err(SettleError::Gone | SettleError::Cancelled) => Claimed::Released,
                Err(error) => {
                    tracing::warn!("message allowed; it may not be counted: {error}");
                    Claimed::First
                }
            },
            CheckedCharge::Nothing if checked.allowed => Claimed::First,
            CheckedCharge::Nothing => Claimed::Again,
        }
    }

    async fn commit(&self, hold: HoldId, note: &str) -> Result<CommitReport, SettleError> {
        match note {
            "" => self.engine.commit(hold, None).await,
            note => self.engine.commit(hold, Commit::held().note(note)).await,
        }
    }

    /// Whether an earlier check of the same message was claimed.
    pub async fn is_claimed(&self, checked: &CheckResult) -> bool {
        match checked.charge {
            // Only a hold that is neither claimed nor released can be extended.
            CheckedCharge::Held { hold, is_repeat: true } => {
                self.engine.renew(hold).await == Err(SettleError::Gone)
            }
            _ => false,
        }
    }

    /// Gives back what a check holds for a message that cannot be claimed now: it costs nothing.
    ///
    /// What an earlier check of the same message holds stays: that one may still claim it.
    pub async fn release(&self, checked: CheckResult) {
        if let CheckedCharge::Held { hold, is_repeat: false } = checked.charge
            && let Err(error) = self.engine.void(hold, None).await
        {
            // It expires by itself.
            tracing::warn!("a message that was not accepted stays counted for a while: {error}");
        }
    }

    /// Whether a denied message is denied for the first time. An outage of the store counts as the
    /// first time.
    pub async fn is_first_denial(&self, message: &Message) -> bool {
        let name = format!("{}:{}", message.user, message.update_id);
        let request = Request::new(DENIALS, &[]).idempotency_key(&name);
        match self.engine.hold(&request).await {
            Ok(report) => match report.hold() {
                // Its name is kept for a day, as long as Telegram resends updates.
                Some(hold) => !self.commit(hold, "").await.is_ok_and(|done| done.is_repeat),
                None => true,
            },
            Err(_) => true,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &StoreEngine {
        &self.engine
    }
}

fn checked(message: &Message, result: Result<Report, CheckError>) -> CheckResult {
    let outage = |reason: &dyn fmt::Display| {
        let Message { user, update_id, .. } = message;
        tracing::warn!(user, update_id, "message allowed without being counted: {reason}");
        CheckResult { allowed: true, remaining: None, charge: CheckedCharge::Nothing }
    };
    match result {
        Ok(report) if report.is_outage() && !report.details().is_local() => {
            outage(&"store unavailable")
        }
        Ok(report) => CheckResult {
            allowed: report.is_allowed(),
            remaining: report.remaining(),
            charge: report.hold().map_or(CheckedCharge::Nothing, |hold| CheckedCharge::Held {
                hold,
                is_repeat: report.is_repeat(),
            }),
        },
        Err(error) => outage(&error),
    }
}

impl fmt::Debug for MessageLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLimiter").field("engine", &self.engine).finish()
    }
}

#[cfg(test)]
mod tests;
