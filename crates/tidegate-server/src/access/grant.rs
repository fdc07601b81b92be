use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate::policy::{RequiredAttribute, Scopes, Token};
use tidegate::{Bucket, DirectLimiter, Timestamp, hold::Owner};

/// What the holder of a credential may do.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(super) name: Box<str>,
    pub(super) scopes: Scopes,
    /// Empty: all domains.
    pub(super) domains: Vec<Box<str>>,
    pub(super) attributes: Vec<RequiredAttribute>,
    /// One for all tokens of a name.
    pub(super) limit: Option<Arc<DirectLimiter<Bucket>>>,
    /// Whose holds and idempotency keys its requests make; `None` may settle all of them.
    pub(super) owner: Option<Owner>,
    /// The entry of the token file; `None` for clients without a token.
    token: Option<Token>,
    is_revoked: AtomicBool,
}

impl Grant {
    /// The grant of a token, whose requests count against this limit.
    pub(super) fn of(token: &Token, limit: Option<Arc<DirectLimiter<Bucket>>>) -> Self {
        Self {
            name: token.name().into(),
            scopes: token.scopes(),
            domains: token.domains().map(Into::into).collect(),
            attributes: token.attributes().to_vec(),
            limit,
            owner: Some(Owner::new(token.name())),
            token: Some(token.clone()),
            is_revoked: AtomicBool::new(false),
        }
    }

    /// The grant of a client without a token, in every domain.
    pub(super) fn of_client(name: String, scopes: Scopes, owns_its_holds: bool) -> Self {
        Self {
            owner: owns_its_holds.then(|| Owner::new(&name)),
            name: name.into(),
            scopes,
            domains: Vec::new(),
            attributes: Vec::new(),
            limit: None,
            token: None,
            is_revoked: AtomicBool::new(false),
        }
    }

    /// Whether an entry of a token file grants the same.
    pub(super) fn is_of(&self, token: &Token) -> bool {
        self.token.as_ref() == Some(token)
    }

    /// Whether it is that of a token.
    pub(super) const fn is_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    /// Whether it has been revoked, or has ended by this time.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        let until_ns = self.token.as_ref().and_then(Token::until_ns);
        self.is_revoked() || until_ns.is_some_and(|it| it <= now.as_nanos())
    }
}
