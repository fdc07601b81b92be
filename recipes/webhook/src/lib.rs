//! A bot's webhook in front of an expensive agent: who writes too much is told so, and nothing of
//! it reaches the agent.
//!
//! - [`Settings`] are read from the environment, and stop the start where they are wrong;
//! - [`Limits`] are the numbers, as a [policy](tidegate::policy::Policy);
//! - [`Gate`] is the check: whether a message of a user may pass, how many are left, and whether
//!   the message has passed before;
//! - [`Webhook`] puts it between Telegram and the agent.
#![forbid(unsafe_code)]

mod access;
mod client;
mod limits;
mod message_limiter;
mod outbox;
mod settings;
mod storage;
mod update;
mod webhook;

pub use access::{Access, Secret};
pub use client::{Client, TrustError, client};
pub use limits::{Algorithm, Limits, LimitsError, UserLimit};
pub use message_limiter::{CheckResult, Claimed, MessageLimiter};
pub use settings::{Redaction, SettingError, Settings, VARIABLES, Variable};
pub use storage::{Storage, opened};
pub use update::{Message, UpdateError, message_of};
pub use webhook::{PATH, TOO_MANY, Webhook};
