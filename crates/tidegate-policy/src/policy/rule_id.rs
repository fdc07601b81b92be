use std::fmt;

use super::Rule;

/// What names a rule in calls, errors and reports: its name, which is unique in its domain, and
/// the domain.
///
/// ```
/// use tidegate::policy::RuleId;
///
/// let search = RuleId::named("search").in_domain("api");
/// assert_eq!((search.domain(), search.name()), ("api", "search"));
/// assert_eq!(RuleId::named("search").domain(), "default");
/// assert_eq!(search.to_string(), "`search` of domain `api`");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId {
    pub(crate) domain: Box<str>,
    pub(crate) name: Box<str>,
}

impl RuleId {
    /// A rule of the domain [`default`](Rule::DEFAULT_DOMAIN).
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { domain: Rule::DEFAULT_DOMAIN.into(), name: name.into() }
    }

    /// The rule of that name in this domain.
    #[must_use]
    pub fn in_domain(self, domain: &str) -> Self {
        Self { domain: domain.into(), ..self }
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rule's domain.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }
}

/// `` `search` of domain `api` ``.
impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of domain `{}`", self.name, self.domain)
    }
}
