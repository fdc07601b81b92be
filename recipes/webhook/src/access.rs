use std::collections::BTreeSet;
use std::fmt;

use axum::http::HeaderMap;
use subtle::ConstantTimeEq;

/// A secret that is never printed, neither in a log nor in an error.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether bytes are this secret. The time it takes reveals only whether the lengths are equal.
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(bytes).into()
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Access control: who may send updates, and which users are served.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The secret that Telegram sends with every update; `None`: any client may send updates.
    pub secret: Option<Secret>,
    /// The users whose messages are processed; `None`: all users.
    pub users: Option<BTreeSet<u64>>,
}

impl Access {
    /// Whether a request comes from Telegram.
    #[must_use]
    pub fn is_telegram(&self, headers: &HeaderMap) -> bool {
        let Some(secret) = &self.secret else { return true };
        let mut given = headers.get_all(SECRET_HEADER).iter();
        // Two headers would be ambiguous.
        match (given.next(), given.next()) {
            (Some(given), None) => secret.is(given.as_bytes()),
            _ => false,
        }
    }

    /// Whether a user's messages are processed.
    #[must_use]
    pub fn is_allowed(&self, user: u64) -> bool {
        self.users.as_ref().is_none_or(|users| users.contains(&user))
    }
}

const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";

#[cfg(test)]
mod tests;
