use std::fmt;

use tidegate::{
    CheckError, Clock, Engine, HoldId, MemoryStore, Report, Request, SettleError, Store,
    SystemClock,
};

use crate::limits::{DOMAIN, USER};
use crate::update::Message;

/// The check: may this message of this user reach the agent?
///
/// A message is checked, and then claimed. Telegram sends an update again when the answer to it got
/// lost; such a message gets the same answer again and is not charged again, and only one of those
/// who got the answer can claim it. What was checked and is not claimed within ten minutes has cost
/// nothing.
///
/// ```
/// # use tidegate_webhook::{Claimed, Gate, Limits, Message};
/// # use tidegate::Engine;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let gate = Gate::new(Engine::new(Limits { max: 1, ..Limits::default() }.policy()?));
/// let message = Message { update_id: 7, user: 42, chat: 42 };
/// let checked = gate.check(&message).await;
/// assert!(checked.allowed && checked.remaining == Some(0));
/// assert_eq!(gate.claim(checked).await, Claimed::First);
///
/// // The same message once more, and another one.
/// let again = gate.check(&message).await;
/// assert!(again.allowed);
/// assert_eq!(gate.claim(again).await, Claimed::Again);
/// assert!(!gate.check(&Message { update_id: 8, ..message }).await.allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MessageLimiter<S = MemoryStore, C = SystemClock> {
    engine: Engine<S, C>,
}

/// What the check has found.
#[must_use]
#[derive(Debug)]
pub struct CheckResult {
    /// Whether the message may go on.
    pub allowed: bool,
    /// How many more the user has after it; `None` where nobody counts, or nobody could.
    pub remaining: Option<u64>,
    ticket: CheckedCharge,
}

/// What a message that was checked has in its hands.
#[derive(Clone, Copy, Debug)]
enum CheckedCharge {
    /// One unit is set aside for it.
    Held(HoldId),
    /// Nothing: it was refused, or nobody could count it.
    Nothing,
}

/// Whether a message is to be passed on.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is: nobody has done so before.
    First,
    /// It has been, when it came before; or it was refused.
    Again,
}

impl<S: Store, C: Clock + Send + Sync + 'static> MessageLimiter<S, C> {
    /// A gate with an engine whose policy is one of [`Limits`](crate::Limits).
    #[must_use]
    pub fn new(engine: Engine<S, C>) -> Self {
        Self { engine }
    }

    /// Asks whether a message may pass, and sets one unit aside if so. What is refused costs
    /// nothing.
    ///
    /// A store that cannot answer lets it pass, and the log says so.
    pub async fn check(&self, message: &Message) -> CheckResult {
        let user = message.user.to_string();
        let name = format!("{user}:{}", message.update_id);
        let attributes = [(USER, user.as_str())];
        let request = Request::new(DOMAIN, &attributes).idempotency_key(&name);
        checked(message, self.engine.reserve(&request).await)
    }

    /// Charges what was set aside for a message, and reports whether it is the first to be.
    ///
    /// A store that cannot answer lets it pass, and the log says so.
    pub async fn claim(&self, checked: CheckResult) -> Claimed {
        match checked.ticket {
            CheckedCharge::Held(hold) => match self.engine.commit(hold, None).await {
                Ok(_) => Claimed::First,
                Err(SettleError::Gone) => Claimed::Again,
                Err(error) => {
                    tracing::warn!("perhaps not counted, and let through: {error}");
                    Claimed::First
                }
            },
            CheckedCharge::Nothing if checked.allowed => Claimed::First,
            CheckedCharge::Nothing => Claimed::Again,
        }
    }
}

fn checked(message: &Message, answer: Result<Report, CheckError>) -> CheckResult {
    let outage = |reason: &dyn fmt::Display| {
        let Message { user, update_id, .. } = message;
        tracing::warn!(user, update_id, "not counted, and let through: {reason}");
        CheckResult { allowed: true, remaining: None, ticket: CheckedCharge::Nothing }
    };
    match answer {
        Ok(report) if report.is_outage() => outage(&"the store cannot answer"),
        Ok(report) => CheckResult {
            allowed: report.is_allowed(),
            remaining: report.remaining(),
            ticket: report.hold().map_or(CheckedCharge::Nothing, CheckedCharge::Held),
        },
        Err(error) => outage(&error),
    }
}

impl<S: Store, C> fmt::Debug for MessageLimiter<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("engine", &self.engine).finish()
    }
}

#[cfg(test)]
mod tests;
