use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The governors and the host, each with a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Governors {
    /// Names and secrets.
    list: Vec<(String, SecretDigest)>,
    host: SecretDigest,
}

/// The SHA-256 of a secret, which is all that is kept of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SecretDigest([u8; 32]);

impl SecretDigest {
    fn of(secret: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
        Self(bytes)
    }

    /// 64 hexadecimal digits.
    pub(crate) fn to_text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses 64 hexadecimal digits.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
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
            check_name(name).map_err(|why| format!("the name of entry {number} {why}"))?;
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

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_plain) {
        return Err(format!("is not 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` or `.`"));
    }
    Ok(())
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
        let list = list.into_iter().map(|(name, secret)| (name, SecretDigest::of(&secret)));
        Ok(Self { list: list.collect(), host: SecretDigest::of(&host) })
    }

    /// Checks a governor who is to be added: the digest of the secret, or why not.
    pub(crate) fn candidate(&self, name: &str, secret: &str) -> Result<SecretDigest, String> {
        check_name(name).map_err(|why| format!("The name {why}."))?;
        check_secret(secret).map_err(|why| format!("The secret {why}."))?;
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!("The secret has less than {MIN_SECRET_BYTES} characters."));
        }
        let secret = SecretDigest::of(secret);
        self.check_new(name, secret)?;
        Ok(secret)
    }

    fn check_new(&self, name: &str, secret: SecretDigest) -> Result<(), String> {
        if self.list.len() >= MAX_GOVERNORS {
            return Err(format!("There are {MAX_GOVERNORS} governors, which is the maximum."));
        }
        let is_taken = |known: &(String, SecretDigest)| known.1 == secret && known.0 != name;
        if self.list.iter().any(is_taken) || self.host == secret {
            return Err(format!("`{name}` has a secret that is in use: choose another one."));
        }
        Ok(())
    }

    /// Adds a governor, unless there is one of that name.
    pub(crate) fn add(&mut self, name: &str, secret: SecretDigest) -> Result<(), String> {
        if !self.has(name) {
            self.check_new(name, secret)?;
            self.list.push((name.to_owned(), secret));
        }
        Ok(())
    }

    /// Whether this is the governor's secret.
    pub(crate) fn is_secret_of(&self, name: &str, secret: SecretDigest) -> bool {
        self.list.iter().any(|known| known.0 == name && known.1 == secret)
    }

    /// The caller with this secret. The time it takes does not depend on whether it is right.
    #[must_use]
    pub fn caller(&self, secret: &str) -> Option<Caller> {
        let secret = SecretDigest::of(secret);
        let is = |known: &SecretDigest| known.0.ct_eq(&secret.0);
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

/// The digest of an added governor's secret is in the ledger, so it must not be easy to guess.
const MIN_SECRET_BYTES: usize = 16;

const MAX_NAME_BYTES: usize = 64;
const MAX_GOVERNORS: usize = 10_000;

#[cfg(test)]
mod tests;
