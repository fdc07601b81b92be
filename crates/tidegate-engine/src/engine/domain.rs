use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::CheckError;
use super::report::Report;
use super::ruleset::Ruleset;
use super::{Engine, Verb};
use crate::request::Request;
use crate::store::Answer;

/// A domain of an engine, for frequent requests: it is looked up once per policy.
///
/// It follows changes of the policy, also when the domain is added or removed.
pub struct PreparedDomain {
    engine: Engine,
    name: Box<str>,
    /// The version of the rules that the domain was looked up in, and the domain's number in them;
    /// the lower half is one more than the number, or 0 where there is no such domain.
    found: AtomicU64,
}

impl Engine {
    /// A domain for frequent requests.
    #[must_use]
    pub fn domain(&self, name: &str) -> PreparedDomain {
        PreparedDomain { engine: self.clone(), name: name.into(), found: AtomicU64::new(0) }
    }
}

impl PreparedDomain {
    /// A request of one unit in this domain.
    #[must_use]
    pub fn request<'a>(&'a self, attributes: &'a [(&'a str, &'a str)]) -> Request<'a> {
        Request::new(&self.name, attributes)
    }

    /// [`Engine::check`] of a request in this domain, whatever domain it names.
    #[inline]
    pub fn check(&self, request: &Request<'_>) -> Answer<Result<Report, CheckError>> {
        self.engine.check_in(self, request)
    }

    /// [`Engine::peek`] of a request in this domain.
    pub fn peek(&self, request: &Request<'_>) -> Answer<Result<Report, CheckError>> {
        self.engine.decide_in(self, std::slice::from_ref(request), Verb::Peek, self.engine.when())
    }

    /// [`Engine::reserve`] of a request in this domain.
    pub fn reserve(&self, request: &Request<'_>) -> Answer<Result<Report, CheckError>> {
        self.engine.decide_in(
            self,
            std::slice::from_ref(request),
            Verb::Reserve,
            self.engine.when(),
        )
    }

    #[cold]
    fn find(&self, rules: &Ruleset) -> Option<usize> {
        let number = rules.domain_number(&self.name);
        let plus_1 = number.map_or(0, |number| number as u64 + 1);
        if plus_1 <= LOW {
            self.found.store(((rules.version & LOW) << 32) | plus_1, Ordering::Relaxed);
        }
        number
    }
}

/// Finds the number of a domain in a set of rules.
pub(super) trait FindDomain {
    fn number(&self, rules: &Ruleset) -> Option<usize>;
}

/// A domain by its name.
pub(super) struct DomainName<'a>(&'a str);

impl<'a> DomainName<'a> {
    /// The domain of requests that are all of one. Without any there is nothing to decide, in
    /// whatever domain.
    #[inline(always)]
    pub(super) fn of(requests: &[Request<'a>]) -> Self {
        Self(requests.first().map_or("", |request| request.domain))
    }
}

impl FindDomain for DomainName<'_> {
    #[inline(always)]
    fn number(&self, rules: &Ruleset) -> Option<usize> {
        rules.domain_number(self.0)
    }
}

impl FindDomain for PreparedDomain {
    #[inline(always)]
    fn number(&self, rules: &Ruleset) -> Option<usize> {
        let found = self.found.load(Ordering::Relaxed);
        if found >> 32 == rules.version & LOW {
            return usize::try_from(found & LOW).ok()?.checked_sub(1);
        }
        self.find(rules)
    }
}

impl fmt::Debug for PreparedDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedDomain").field("name", &self.name).finish_non_exhaustive()
    }
}

const LOW: u64 = u32::MAX as u64;
