//! A bot's webhook in front of an expensive agent: a user above the limit gets a notice, and the
//! message does not reach the agent.
//!
//! - [`Settings`] are read from the environment; invalid ones prevent the start;
//! - [`Limits`] are the numbers, as a [policy](tidegate::policy::Policy);
//! - [`MessageLimiter`] is the check: whether a user's message is allowed, how many are left, and
//!   whether it is a duplicate;
//! - [`Webhook`] connects it with Telegram and the agent;
//! - [`serve`] serves its routes, with bounds on connections.
#![forbid(unsafe_code)]

mod accepted;
mod access;
mod client;
mod limits;
mod message_limiter;
mod outbox;
mod server;
mod settings;
mod storage;
mod update;
mod webhook;

pub use accepted::{AcceptedMessage, open_messages};
pub use access::{Access, Secret};
pub use client::{Client, TrustError, client};
pub use limits::{Algorithm, Limits, LimitsError, UserLimit};
pub use message_limiter::{CheckResult, Claimed, MessageLimiter};
pub use server::serve;
pub use settings::{Redaction, SettingError, Settings, VARIABLES, Variable};
pub use storage::{Storage, opened};
pub use update::{Message, UpdateError, message_of};
pub use webhook::{PATH, ResumeError, TOO_MANY, Webhook};

/// The code of the guide, as doc tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guides/replace-a-webhook-limiter.md")]
    struct ReplaceAWebhookLimiter;
}
