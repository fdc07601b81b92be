use std::sync::Arc;

use tidegate::policy::{Scope, Scopes};
use tidegate::{Request, Timestamp, Verdict, hold::HoldId};

use super::denial::AccessDenial;
use super::grant::Grant;

/// The client of a request, and what it may do.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    /// `None`: everything.
    grant: Option<Arc<Grant>>,
}

impl Principal {
    /// A client where no credentials are needed, or the owner of the daemon.
    pub(crate) const fn open() -> Self {
        Self { grant: None }
    }

    pub(super) const fn of(grant: Arc<Grant>) -> Self {
        Self { grant: Some(grant) }
    }

    /// A client with a certificate, where there are no tokens.
    pub(super) fn certificate(subject: &str) -> Self {
        // No token has such a name.
        let name = format!("certificate {subject}");
        Self::of(Arc::new(Grant::of_client(name, Scopes::all(), true)))
    }

    /// A user of the local socket without a token.
    pub(super) fn user(name: &str, scopes: Scopes, owns_its_holds: bool) -> Self {
        let name = format!("user {name}");
        Self::of(Arc::new(Grant::of_client(name, scopes, owns_its_holds)))
    }

    pub(super) const fn grant(&self) -> Option<&Arc<Grant>> {
        self.grant.as_ref()
    }

    /// Whether its token has been revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.is_revoked())
    }

    /// Whether its token has been revoked, or has ended by this time.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.is_over(now))
    }

    /// Whether it has no credentials, because none are needed.
    pub(crate) const fn is_open(&self) -> bool {
        self.grant.is_none()
    }

    /// Its name: that of its token, certificate or user.
    pub(crate) fn name(&self) -> Option<&str> {
        self.grant.as_ref().map(|grant| &*grant.name)
    }

    /// What it is, for the audit log.
    pub(crate) fn describe(&self) -> String {
        match &self.grant {
            None => "client".into(),
            Some(grant) if grant.is_token() => format!("token {}", grant.name),
            Some(grant) => grant.name.to_string(),
        }
    }

    /// Whether it may do something in some domain.
    pub(crate) fn may(&self, scope: Scope) -> Result<(), AccessDenial> {
        match &self.grant {
            Some(grant) if !grant.scopes.contains(scope) => Err(AccessDenial::Scope(scope)),
            _ => Ok(()),
        }
    }

    /// Whether it may do something in all domains, whatever the attributes are.
    pub(crate) fn may_everywhere(&self, scope: Scope) -> Result<(), AccessDenial> {
        self.may(scope)?;
        match &self.grant {
            Some(grant) if !grant.domains.is_empty() => Err(AccessDenial::Domain),
            Some(grant) => match &*grant.attributes {
                [first, ..] => Err(AccessDenial::Attribute(first.name().into())),
                [] => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Whether it may do something in a domain.
    pub(crate) fn may_in(&self, scope: Scope, domain: &str) -> Result<(), AccessDenial> {
        self.may(scope)?;
        match &self.grant {
            Some(grant) if !grant.domains.is_empty() => {
                let is_known = grant.domains.iter().any(|known| **known == *domain);
                if is_known { Ok(()) } else { Err(AccessDenial::Domain) }
            }
            _ => Ok(()),
        }
    }

    /// The request as one of this client, if it may send it.
    pub(crate) fn request<'a>(
        &self,
        scope: Scope,
        request: Request<'a>,
    ) -> Result<Request<'a>, AccessDenial> {
        self.may_in(scope, request.domain())?;
        self.may_send(request.attributes().iter())?;
        let owner = self.grant.as_ref().and_then(|grant| grant.owner);
        Ok(owner.map_or(request, |owner| request.owner(owner)))
    }

    /// Whether a request with these attributes may be one of its.
    pub(crate) fn may_send<'a>(
        &self,
        attributes: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Result<(), AccessDenial> {
        for required in self.grant.iter().flat_map(|grant| &grant.attributes) {
            let mut values = attributes.clone().filter(|(name, _)| *name == required.name());
            // All of them: which one a rule reads is for the rule to say.
            let is_allowed = match values.next() {
                Some((_, first)) => {
                    required.allows(first) && values.all(|(_, value)| required.allows(value))
                }
                None => false,
            };
            if !is_allowed {
                return Err(AccessDenial::Attribute(required.name().into()));
            }
        }
        Ok(())
    }

    /// Whether it may settle or renew a hold.
    pub(crate) fn hold(&self, scope: Scope, id: HoldId) -> Result<(), AccessDenial> {
        self.may(scope)?;
        match self.grant.as_ref().and_then(|grant| grant.owner) {
            Some(owner) if !owner.owns(id) => Err(AccessDenial::Owner),
            _ => Ok(()),
        }
    }

    /// Charges requests to the limit of its token.
    pub(crate) fn charge(&self, requests: u64) -> Result<(), AccessDenial> {
        let limit = self.grant.as_ref().and_then(|grant| grant.limit.as_ref());
        match limit.map(|limit| limit.check_n(requests.max(1)).verdict()) {
            Some(Verdict::Deny { wait }) => Err(AccessDenial::Limit(wait)),
            Some(Verdict::Allow { .. }) | None => Ok(()),
        }
    }
}
