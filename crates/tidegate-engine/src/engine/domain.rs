use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::StoreEngine;
use super::ruleset::{CompiledDomain, Ruleset};
use crate::request::{Domain, Request};

/// The policy has no rule in a domain, which would limit nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct NoSuchDomain {
    domain: Box<str>,
    known: Vec<Box<str>>,
}

impl fmt::Display for NoSuchDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the policy has no rule in the domain `{}`; its domains are: ", self.domain)?;
        match &*self.known {
            [] => f.write_str("none"),
            known => f.write_str(&known.join(", ")),
        }
    }
}

tidegate_core::debug_as_displayed!(NoSuchDomain);

impl std::error::Error for NoSuchDomain {}

impl StoreEngine {
    /// A domain for frequent requests; an error if the policy has no rule in it.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::policy::Policy;
    ///
    /// let engine = Engine::new(Policy::from_toml(r#"
    ///     [[rule]]
    ///     name   = "searches"
    ///     domain = "api"
    ///     key    = ["user"]
    ///     bucket = { rate = "10/s", burst = 20 }
    /// "#)?);
    /// let api = engine.domain("api")?;
    /// assert!(engine.check(&api.request(&[("user", "ada")]))?.is_allowed());
    /// assert!(engine.domain("apis").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn domain(&self, name: &str) -> Result<Domain, NoSuchDomain> {
        let rules = self.shared.rules.load();
        let has_rules = |domain: &&CompiledDomain| !domain.rules.is_empty();
        let known = || rules.domains.iter().filter(has_rules).map(CompiledDomain::name);
        if !known().any(|known| known == name) {
            let known = known().map(Box::from).collect();
            return Err(NoSuchDomain { domain: name.into(), known });
        }
        let engine: Arc<dyn Any + Send + Sync> = Arc::clone(&self.shared) as _;
        Ok(Domain { engine, name: name.into(), found: AtomicU64::new(0) })
    }

    /// The number of a request's domain.
    #[inline(always)]
    pub(super) fn domain_number(&self, rules: &Ruleset, request: &Request<'_>) -> Option<usize> {
        match request.prepared {
            Some(domain)
                if std::ptr::addr_eq(&raw const *domain.engine, &raw const *self.shared) =>
            {
                domain.number(rules)
            }
            _ => rules.domain_number(request.domain),
        }
    }

    /// The domain of requests that are all of one. Without any there is nothing to decide.
    pub(super) fn domain_of<'r>(
        &self,
        rules: &'r Ruleset,
        requests: &[Request<'_>],
    ) -> Option<&'r CompiledDomain> {
        let number = requests.first().and_then(|request| self.domain_number(rules, request));
        number.map(|number| &rules.domains[number])
    }
}

impl Domain {
    #[inline(always)]
    fn number(&self, rules: &Ruleset) -> Option<usize> {
        let found = self.found.load(Ordering::Relaxed);
        if found >> 32 == rules.version & LOW {
            return usize::try_from(found & LOW).ok()?.checked_sub(1);
        }
        self.find(rules)
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

const LOW: u64 = u32::MAX as u64;
