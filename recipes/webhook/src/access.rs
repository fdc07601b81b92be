use std::collections::BTreeSet;
use std::fmt;

use axum::http::HeaderMap;
use subtle::ConstantTimeEq;

/// Something that nobody may see: not in a log, not in an error.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether bytes are this secret. How long it takes tells nothing but whether the lengths are
    /// the same.
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

/// Who may send updates, and whose messages are looked at.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// What Telegram sends along with every update; `None`: anybody may send updates.
    pub secret: Option<Secret>,
    /// The users whose messages are looked at; `None`: those of everybody.
    pub users: Option<BTreeSet<u64>>,
}

impl Access {
    /// Whether a request comes from Telegram.
    #[must_use]
    pub fn is_telegram(&self, headers: &HeaderMap) -> bool {
        let Some(secret) = &self.secret else { return true };
        let mut given = headers.get_all(SECRET_HEADER).iter();
        // Of two headers nobody could say which one counts.
        match (given.next(), given.next()) {
            (Some(given), None) => secret.is(given.as_bytes()),
            _ => false,
        }
    }

    /// Whether a user's messages are looked at.
    #[must_use]
    pub fn is_welcome(&self, user: u64) -> bool {
        self.users.as_ref().is_none_or(|users| users.contains(&user))
    }
}

const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";

#[cfg(test)]
mod tests;
