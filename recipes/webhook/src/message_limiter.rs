use std::fmt;

use tidegate::{
    CheckError, Clock, Engine, HoldId, MemoryStore, Report, Request, SettleError, Store,
    SystemClock,
};

use crate::limits::{DOMAIN, USER};
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
pub struct MessageLimiter<S = MemoryStore, C = SystemClock> {
    engine: Engine<S, C>,
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
    /// One unit is held for it.
    Held(HoldId),
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
}

impl<S: Store, C: Clock + Send + Sync + 'static> MessageLimiter<S, C> {
    /// A limiter with an engine whose policy is that of [`Limits`](crate::Limits).
    #[must_use]
    pub fn new(engine: Engine<S, C>) -> Self {
        Self { engine }
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
        checked(message, self.engine.reserve(&request).await)
    }

    /// Commits the hold of a message, and returns whether this is the first claim.
    ///
    /// An outage of the store allows the message, and is logged.
    pub async fn claim(&self, checked: CheckResult) -> Claimed {
        match checked.charge {
            CheckedCharge::Held(hold) => match self.engine.commit_report(hold, None).await {
                Ok(done) if done.is_repeat => Claimed::Again,
                Ok(_) => Claimed::First,
                Err(SettleError::Gone | SettleError::Cancelled) => Claimed::Again,
                Err(error) => {
                    tracing::warn!("message allowed; it may not be counted: {error}");
                    Claimed::First
                }
            },
            CheckedCharge::Nothing if checked.allowed => Claimed::First,
            CheckedCharge::Nothing => Claimed::Again,
        }
    }
}

fn checked(message: &Message, result: Result<Report, CheckError>) -> CheckResult {
    let outage = |reason: &dyn fmt::Display| {
        let Message { user, update_id, .. } = message;
        tracing::warn!(user, update_id, "message allowed without being counted: {reason}");
        CheckResult { allowed: true, remaining: None, charge: CheckedCharge::Nothing }
    };
    match result {
        Ok(report) if report.is_outage() => outage(&"store unavailable"),
        Ok(report) => CheckResult {
            allowed: report.is_allowed(),
            remaining: report.remaining(),
            charge: report.hold().map_or(CheckedCharge::Nothing, CheckedCharge::Held),
        },
        Err(error) => outage(&error),
    }
}

impl<S: Store, C> fmt::Debug for MessageLimiter<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLimiter").field("engine", &self.engine).finish()
    }
}

#[cfg(test)]
mod tests;
