//! The token file of a daemon: which clients there are, and what each of them may do.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use tidegate_core::Bucket;

use super::diagnostic::PolicyErrors;
use super::parse::tokens;

/// A token file that has been checked.
///
/// ```
/// use tidegate::policy::{Credential, Scope, TokenFile};
///
/// let file = TokenFile::parse("tokens.toml", br#"
///     [[token]]
///     name    = "gateway"
///     subject = "spiffe://example.org/gateway"
///     scopes  = ["check"]
///     domains = ["api"]
/// "#)?;
/// let [token] = file.tokens() else { panic!("one token") };
/// assert_eq!(token.credential(), &Credential::Subject("spiffe://example.org/gateway".into()));
/// assert!(token.scopes().contains(Scope::Check) && !token.scopes().contains(Scope::Settle));
/// # Ok::<(), tidegate::policy::PolicyErrors>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenFile {
    pub(super) tokens: Vec<Token>,
}

/// One entry of a token file: a credential, and what its holder may do.
///
/// Several entries may have the same name, so that a credential can be replaced by another one.
#[derive(Clone, Debug)]
pub struct Token {
    pub(super) name: Box<str>,
    pub(super) credential: Credential,
    pub(super) scopes: Scopes,
    pub(super) domains: Vec<Box<str>>,
    pub(super) attributes: Vec<RequiredAttribute>,
    pub(super) limit: Option<Bucket>,
    pub(super) until_ns: Option<u64>,
    pub(super) span: Range<usize>,
}

/// How a client proves that it may use a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    /// By a secret with this SHA-256.
    Sha256([u8; 32]),
    /// By a certificate with this subject: a URI or DNS name, or, without any, its common name.
    Subject(Box<str>),
    /// As this user of the local socket: a name, or `uid:N`.
    User(Box<str>),
    /// As a member of this group on the local socket: a name, or `gid:N`.
    Group(Box<str>),
}

/// An attribute that every request of a token must have, with one of some values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredAttribute {
    pub(super) name: Box<str>,
    pub(super) values: Vec<Box<str>>,
}

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Check requests, which charges them.
    Check,
    /// Reserve, commit, cancel and refund.
    Settle,
    /// Acquire, renew and release slots.
    Lease,
    /// Peek, explain, and read metrics.
    Read,
    /// Read everything in the admin API.
    Inspect,
    /// Use all of the admin API.
    Admin,
}

/// A set of scopes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl TokenFile {
    /// Parses a token file. The name is only for messages. All errors are reported at once.
    pub fn parse(file_name: &str, bytes: &[u8]) -> Result<Self, PolicyErrors> {
        tokens::parse(file_name, bytes)
    }

    /// The entries, in the order of the file.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }
}

impl Token {
    /// The name: that of the client, in logs and in the audit log. Reservations and idempotency keys
    /// belong to it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How a client proves that it may use the token.
    #[must_use]
    pub const fn credential(&self) -> &Credential {
        &self.credential
    }

    /// What its holder may do.
    #[must_use]
    pub const fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// The domains that it is for; empty: all of them.
    pub fn domains(&self) -> impl ExactSizeIterator<Item = &str> {
        self.domains.iter().map(|domain| &**domain)
    }

    /// The attributes that its requests must have.
    #[must_use]
    pub fn attributes(&self) -> &[RequiredAttribute] {
        &self.attributes
    }

    /// How many requests its holders may send.
    #[must_use]
    pub const fn limit(&self) -> Option<Bucket> {
        self.limit
    }

    /// When it ends: nanoseconds since 1970.
    #[must_use]
    pub const fn until_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// The bytes of the file that it is at, from its header on.
    #[must_use]
    pub const fn span(&self) -> &Range<usize> {
        &self.span
    }
}

/// Compares what they grant, wherever in the file they are.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, credential, scopes, domains, attributes, limit, until_ns, span: _ } = self;
        (name, credential, scopes) == (&other.name, &other.credential, &other.scopes)
            && (domains, attributes) == (&other.domains, &other.attributes)
            && (limit, until_ns) == (&other.limit, &other.until_ns)
    }
}

impl RequiredAttribute {
    /// The name of the attribute.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it may have this value.
    #[must_use]
    pub fn allows(&self, value: &str) -> bool {
        self.values.iter().any(|allowed| **allowed == *value)
    }

    /// The values that it may have.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &str> {
        self.values.iter().map(|value| &**value)
    }
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Check, Self::Settle, Self::Lease, Self::Read, Self::Inspect, Self::Admin];

    /// Its name in a token file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Settle => "settle",
            Self::Lease => "lease",
            Self::Read => "read",
            Self::Inspect => "inspect",
            Self::Admin => "admin",
        }
    }
}

impl Scopes {
    /// Every scope.
    #[must_use]
    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    /// Whether a scope is in it. Who may change everything may look at everything, so `admin`
    /// includes `inspect`.
    #[must_use]
    pub const fn contains(self, scope: Scope) -> bool {
        let wanted = match scope {
            Scope::Inspect => 1 << Scope::Inspect as u8 | 1 << Scope::Admin as u8,
            scope => 1 << scope as u8,
        };
        self.0 & wanted != 0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes that were given.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & (1 << *scope as u8) != 0)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | 1 << scope as u8))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or(ScopeError)
    }
}

/// The error of a text that names no scope.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ScopeError;

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the scopes are check, settle, lease, read, inspect and admin")
    }
}

tidegate_core::debug_as_displayed!(ScopeError);

impl std::error::Error for ScopeError {}

#[cfg(test)]
mod tests;
