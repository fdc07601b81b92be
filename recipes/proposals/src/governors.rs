use std::fmt;
use std::str::FromStr;

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The governors and the host, each with a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Governors {
    /// Names and secrets.
    list: Vec<(String, String)>,
    host: String,
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A governor, by name.
    Governor(String),
    /// The game, which reports its rounds and requests tallies.
    Host,
}

/// The list of governors, without the host.
#[derive(Clone)]
pub(crate) struct GovernorList(Vec<(String, String)>);

impl FromStr for GovernorList {
    type Err = String;

    /// Parses `ada:secret,bob:other`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut list: Vec<(String, String)> = Vec::new();
        for one in text.split(',').map(str::trim) {
            // The entry may be only a secret, so it is not printed.
            let number = list.len() + 1;
            let (name, secret) = one.split_once(':').ok_or_else(|| {
                format!("entry {number} has no colon: write NAME:SECRET, separated by commas")
            })?;
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_plain) {
                return Err(format!(
                    "the name of entry {number} is not 1 to {MAX_NAME_BYTES} letters, digits, `-`, \
                     `_` or `.`"
                ));
            }
            check_secret(secret).map_err(|why| format!("the secret of `{name}` {why}"))?;
            if list.iter().any(|known| known.0 == name) {
                return Err(format!("`{name}` is listed twice"));
            }
            if list.iter().any(|known| known.1 == secret) {
                return Err(format!("`{name}` has the secret of another governor"));
            }
            list.push((name.to_owned(), secret.to_owned()));
        }
        if list.len() > MAX_GOVERNORS {
            return Err(format!("more than {MAX_GOVERNORS} governors"));
        }
        Ok(Self(list))
    }
}

/// Parses the secret of the host.
pub(crate) fn secret(text: &str) -> Result<String, String> {
    check_secret(text).map_err(|why| format!("the secret {why}"))?;
    Ok(text.to_owned())
}

fn check_secret(secret: &str) -> Result<(), &'static str> {
    if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("is empty or not printable ASCII without spaces");
    }
    Ok(())
}

impl Governors {
    /// The governors of a list such as `ada:secret,bob:other`, and the secret of the host.
    pub fn from_text(list: &str, host: &str) -> Result<Self, String> {
        Self::new(list.parse()?, secret(host)?)
    }

    /// These governors, and the host.
    pub(crate) fn new(GovernorList(list): GovernorList, host: String) -> Result<Self, String> {
        if list.iter().any(|known| known.1 == host) {
            return Err("the host has the secret of a governor: choose another one".into());
        }
        Ok(Self { list, host })
    }

    /// The caller with this secret. The time it takes does not depend on whether it is right.
    #[must_use]
    pub fn caller(&self, secret: &str) -> Option<Caller> {
        let is = |known: &str| known.as_bytes().ct_eq(secret.as_bytes());
        let mut found = 0_u64;
        for (number, (_, known)) in (1..).zip(&self.list) {
            found.conditional_assign(&number, is(known));
        }
        let is_host: Choice = is(&self.host);
        if bool::from(is_host) {
            return Some(Caller::Host);
        }
        let index = usize::try_from(found).ok()?.checked_sub(1)?;
        self.list.get(index).map(|(name, _)| Caller::Governor(name.clone()))
    }

    /// Their names, in the order of the list.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|(name, _)| name.as_str())
    }

    /// Whether there is a governor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// The number of governors.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.list.len() as u64
    }
}

impl fmt::Debug for Governors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl fmt::Debug for GovernorList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

const MAX_NAME_BYTES: usize = 64;
const MAX_GOVERNORS: usize = 10_000;

#[cfg(test)]
mod tests;
