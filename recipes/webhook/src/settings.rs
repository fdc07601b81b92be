//! Settings from the environment. An invalid value prevents the start.

mod reader;
mod variables;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::Uri;
use tidegate::policy::Policy;

pub use reader::SettingError;
pub use variables::{Redaction, VARIABLES, Variable};

use crate::access::{Access, Secret};
use crate::limits::{Algorithm, Limits, UserLimit};
use crate::storage::Storage;
use crate::webhook::MAX_BODY_BYTES;
use reader::{VariableReader, whole};
use variables as var;

/// The settings of a webhook.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Access control.
    pub access: Access,
    /// The limits as a policy.
    pub policy: Policy,
    /// Where counts are stored.
    pub storage: Storage,
    /// The URL of the agent.
    pub agent_url: Uri,
    /// The maximum number of concurrent calls of the agent.
    pub agent_calls: u64,
    /// How many more may be queued.
    pub agent_queue: u64,
    /// The total size of all messages that are accepted and not answered.
    pub agent_queue_bytes: u64,
    /// The time-out of one call.
    pub agent_longest: Duration,
    /// The time-out of a reply.
    pub reply_longest: Duration,
    /// How long accepted messages may take after a stop signal.
    pub grace: Duration,
    chat: Chat,
}

/// The chat API.
#[derive(Clone, Debug)]
struct Chat {
    base: String,
    token: Secret,
}

impl Settings {
    /// The settings in an environment, or the first invalid one.
    pub fn from_env(read: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingError> {
        let reader = VariableReader { read };
        let milliseconds = |text: &str| within(text, MOST_MS).map(Duration::from_millis);
        let token = reader.parsed(var::TOKEN, |text| is_token(text).then(|| Secret::new(text)))?;
        let base = reader.parsed(var::API_BASE, |text| {
            let base = text.trim_end_matches('/');
            is_base(base).then(|| base.to_owned())
        })?;
        Ok(Self {
            listen: reader.parsed(var::LISTEN, |text| text.parse().ok())?,
            access: access(&reader)?,
            policy: policy(&reader)?,
            storage: reader.parsed(var::STORE, Storage::from_text)?,
            agent_url: reader.parsed(var::AGENT_URL, url)?,
            agent_calls: reader.parsed(var::AGENT_CALLS, |text| within(text, MOST_CALLS))?,
            agent_queue: reader.parsed(var::AGENT_QUEUE, |text| within(text, MOST_WAITING))?,
            agent_queue_bytes: reader.parsed(var::AGENT_QUEUE_BYTES, |text| {
                within(text, MOST_BYTES).filter(|bytes| *bytes >= MAX_BODY_BYTES as u64)
            })?,
            agent_longest: reader.parsed(var::AGENT_TIMEOUT, milliseconds)?,
            reply_longest: reader.parsed(var::REPLY_TIMEOUT, milliseconds)?,
            grace: reader.parsed(var::GRACE, milliseconds)?,
            chat: Chat { base, token },
        })
    }

    /// Whether the bot's token is sent in clear text.
    #[must_use]
    pub fn is_token_in_the_clear(&self) -> bool {
        self.chat.base.starts_with("http:")
    }

    /// The URL of replies. It contains the token.
    pub(crate) fn send_message(&self) -> Uri {
        let Chat { base, token } = &self.chat;
        let address = format!("{base}/bot{}/sendMessage", token.reveal());
        address.parse().expect("both parts were validated")
    }
}

fn access<F>(reader: &VariableReader<F>) -> Result<Access, SettingError>
where
    F: Fn(&str) -> Option<OsString>,
{
    let secret = |text: &str| is_secret(text).then(|| Secret::new(text));
    let secret = match reader.parsed(var::AUTH, on_or_off)? {
        Switch::On => Some(reader.parsed(var::SECRET, secret)?),
        Switch::Off if reader.optional(var::SECRET, secret)?.is_some() => {
            return Err(reader.wrong(var::AUTH));
        }
        Switch::Off => None,
    };
    let users = reader.optional(var::ALLOWED, |text| {
        text.split(',').map(|user| positive(user.trim())).collect::<Option<BTreeSet<_>>>()
    })?;
    Ok(Access { secret, users })
}

fn policy<F>(reader: &VariableReader<F>) -> Result<Policy, SettingError>
where
    F: Fn(&str) -> Option<OsString>,
{
    let limits = Limits {
        max: reader.parsed(var::MAX, |text| within(text, MOST_MESSAGES))?,
        per: reader
            .parsed(var::WINDOW, |text| Some(Duration::from_millis(within(text, MOST_MS)?)))?,
        algorithm: reader.parsed(var::ALGORITHM, |text| match text {
            "window" => Some(Algorithm::Window),
            "sliding" => Some(Algorithm::Sliding),
            "bucket" => Some(Algorithm::Bucket),
            _ => None,
        })?,
        users: reader.optional(var::USERS, users)?.unwrap_or_default(),
    };
    limits.policy().map_err(|error| {
        let variable = if error.user().is_some() { var::USERS } else { var::MAX };
        reader.wrong_because(variable, &error)
    })
}

/// `123=100,456=unlimited`
fn users(text: &str) -> Option<Vec<UserLimit>> {
    let user = |entry: &str| {
        let (user, max) = entry.split_once('=')?;
        let max = match max.trim() {
            "unlimited" => None,
            max => Some(within(max, MOST_MESSAGES)?),
        };
        Some(UserLimit { user: positive(user.trim())?, max })
    };
    text.split(',').map(user).collect()
}

enum Switch {
    On,
    Off,
}

fn on_or_off(text: &str) -> Option<Switch> {
    match text {
        "on" => Some(Switch::On),
        "off" => Some(Switch::Off),
        _ => None,
    }
}

fn positive(text: &str) -> Option<u64> {
    within(text, u64::MAX)
}

fn within(text: &str, most: u64) -> Option<u64> {
    whole(text).filter(|number| (1..=most).contains(number))
}

/// The form of a secret that Telegram accepts.
fn is_secret(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=256).contains(&text.len()) && text.bytes().all(is_plain)
}

fn is_token(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_-".contains(&byte);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(is_plain)
}

fn url(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    // A user name and a password would not be sent.
    let is_plain = !uri.authority()?.as_str().contains('@');
    (is_web && is_plain && uri.host().is_some_and(|host| !host.is_empty())).then_some(uri)
}

fn is_base(text: &str) -> bool {
    !text.contains(['?', '#']) && url(text).is_some()
}

/// The largest maximum of a window.
const MOST_MESSAGES: u64 = u32::MAX as u64;

/// A leap year.
const MOST_MS: u64 = 366 * 86_400_000;

const MOST_CALLS: u64 = 10_000;
const MOST_WAITING: u64 = 1_000_000;
const MOST_BYTES: u64 = 1 << 40;

#[cfg(test)]
mod tests;
