use crate::policy::DescriptorNames;
use crate::policy::descriptor::small;
use crate::request_limit::RequestLimit;

/// What somebody asks for: a domain, attributes, a cost.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub(crate) domain: &'a str,
    pub(crate) attributes: Attributes<'a>,
    pub(crate) cost: u64,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) note: Option<&'a str>,
    pub(crate) own_limit: Option<&'a RequestLimit>,
}

impl<'a> Request<'a> {
    /// A request of one unit in a domain.
    ///
    /// ```
    /// use tidegate::Request;
    ///
    /// let request = Request::new("api", &[("ip", "192.0.2.1"), ("method", "GET")]);
    /// assert_eq!(request.attributes().get("method"), Some("GET"));
    /// ```
    #[must_use]
    pub const fn new(domain: &'a str, attributes: &'a [(&'a str, &'a str)]) -> Self {
        let attributes = Attributes(attributes);
        Self { domain, attributes, cost: 1, idempotency_key: None, note: None, own_limit: None }
    }

    /// The same request at another cost. 0 is a look: it charges nothing.
    #[must_use]
    pub const fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The same request under a name: if it is sent again under the same name within 24 hours and
    /// was allowed, it gets the same answer and is not charged again.
    #[must_use]
    pub const fn idempotency_key(self, key: &'a str) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }

    /// The same request with a note, which a store on disk writes down together with what is charged:
    /// both survive a crash, or neither does.
    #[must_use]
    pub const fn note(self, note: &'a str) -> Self {
        Self { note: Some(note), ..self }
    }

    /// The same request with a limit of its own, which counts in place of the rules of its domain.
    ///
    /// For engines whose policy [takes such limits](crate::policy::Policy::with_own_limits). In a
    /// domain that the policy does not know it limits nothing.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    /// use tidegate::{Engine, OwnLimit, Request, Unit};
    ///
    /// let policy = Policy::from_toml(r#"
    ///     [[rule]]
    ///     name   = "everybody"
    ///     domain = "edge"
    ///     window = { max = 1000, per = "1s" }
    /// "#)?;
    /// let engine = Engine::new(policy.with_own_limits());
    /// let limit = OwnLimit::new(1, Unit::Year);
    /// let request = Request::new("edge", &[("user", "ada")]).own_limit(&limit);
    /// assert!(engine.check(&request).wait()?.is_allowed());
    /// assert!(!engine.check(&request).wait()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn own_limit(self, limit: &'a RequestLimit) -> Self {
        Self { own_limit: Some(limit), ..self }
    }

    /// The domain.
    #[must_use]
    pub const fn domain(&self) -> &'a str {
        self.domain
    }

    /// What is known about the request.
    #[must_use]
    pub const fn attributes(&self) -> Attributes<'a> {
        self.attributes
    }
}

/// What is known about a request: names and values.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(pub(crate) &'a [(&'a str, &'a str)]);

impl<'a> Attributes<'a> {
    /// The value of an attribute. The first one counts, should a name be there twice.
    ///
    /// Attributes that are not those of a descriptor of Envoy are taken for one, with an entry for each
    /// of them in their order, where a rule asks for [one](crate::policy::DescriptorNames).
    #[inline]
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        if found.is_none() && is_of_descriptors(name) { self.as_entry(name) } else { found }
    }

    /// What a name that only descriptors have stands for, where there is none.
    #[cold]
    fn as_entry(&self, name: &str) -> Option<&'a str> {
        if self.are_of_descriptor() {
            return None;
        }
        if name == DescriptorNames::ENTRIES {
            return Some(small(self.0.len()));
        }
        let (place, key) = name.split_once('.')?;
        let place = place.parse::<usize>().ok()?.checked_sub(1)?;
        self.0.get(place).filter(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// Whether they say which entry of a descriptor is where.
    pub(crate) fn are_of_descriptor(&self) -> bool {
        self.0.iter().any(|(name, _)| *name == DescriptorNames::ENTRIES)
    }

    /// All of them, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().copied()
    }
}

/// Whether a name can be one that only descriptors have: how many entries, or one by its place.
#[inline]
pub(crate) fn is_of_descriptors(name: &str) -> bool {
    name.as_bytes().first().is_some_and(u8::is_ascii_digit) || name == DescriptorNames::ENTRIES
}
