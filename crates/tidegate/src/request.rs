use crate::policy::DescriptorNames;
use crate::policy::descriptor::small;
use crate::request_limit::RequestLimit;

/// A request for a decision: a domain, attributes, a cost.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub(crate) domain: &'a str,
    pub(crate) attributes: Attributes<'a>,
    pub(crate) cost: u64,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) note: Option<&'a str>,
    pub(crate) request_limit: Option<&'a RequestLimit>,
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
        Self { domain, attributes, cost: 1, idempotency_key: None, note: None, request_limit: None }
    }

    /// The same request at another cost. 0 is a peek: it charges nothing.
    #[must_use]
    pub const fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The same request under an idempotency key: if it was allowed and is repeated under the same
    /// key within 24 hours, it gets the same decision and is not charged again.
    #[must_use]
    pub const fn idempotency_key(self, key: &'a str) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }

    /// The same request with a note, which a file store writes together with the charge: both
    /// survive a crash, or neither does.
    #[must_use]
    pub const fn note(self, note: &'a str) -> Self {
        Self { note: Some(note), ..self }
    }

    /// The same request with its own limit, which applies in place of the rules of its domain.
    ///
    /// For engines whose policy [accepts such limits](crate::policy::Policy::with_request_limits).
    /// In an unknown domain it limits nothing.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    /// use tidegate::{Engine, Request, RequestLimit, WindowUnit};
    ///
    /// let policy = Policy::from_toml(r#"
    ///     [[rule]]
    ///     name   = "all-users"
    ///     domain = "edge"
    ///     window = { max = 1000, per = "1s" }
    /// "#)?;
    /// let engine = Engine::new(policy.with_request_limits());
    /// let limit = RequestLimit::new(1, WindowUnit::Year);
    /// let request = Request::new("edge", &[("user", "ada")]).request_limit(&limit);
    /// assert!(engine.check(&request).block()?.is_allowed());
    /// assert!(!engine.check(&request).block()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn request_limit(self, limit: &'a RequestLimit) -> Self {
        Self { request_limit: Some(limit), ..self }
    }

    /// The domain.
    #[must_use]
    pub const fn domain(&self) -> &'a str {
        self.domain
    }

    /// The attributes.
    #[must_use]
    pub const fn attributes(&self) -> Attributes<'a> {
        self.attributes
    }
}

/// The attributes of a request: names and values.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(pub(crate) &'a [(&'a str, &'a str)]);

impl<'a> Attributes<'a> {
    /// The value of an attribute; of a repeated name, the first.
    ///
    /// Where a rule needs [a descriptor of Envoy](crate::policy::DescriptorNames), other attributes
    /// are taken for one, with an entry for each of them in their order.
    #[inline]
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        if found.is_none() && is_of_descriptors(name) { self.as_entry(name) } else { found }
    }

    /// The value of a name that only descriptors have, in attributes that are not of one.
    #[cold]
    fn as_entry(&self, name: &str) -> Option<&'a str> {
        if self.are_of_descriptor() {
            return None;
        }
        if name == DescriptorNames::ENTRIES {
            return Some(small(self.0.len()));
        }
        let (position, key) = name.split_once('.')?;
        let index = position.parse::<usize>().ok()?.checked_sub(1)?;
        self.0.get(index).filter(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// Whether they are the entries of a descriptor.
    pub(crate) fn are_of_descriptor(&self) -> bool {
        self.0.iter().any(|(name, _)| *name == DescriptorNames::ENTRIES)
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().copied()
    }
}

/// Whether only descriptors have such a name: the number of entries, or one entry by its position.
#[inline]
pub(crate) fn is_of_descriptors(name: &str) -> bool {
    name.as_bytes().first().is_some_and(u8::is_ascii_digit) || name == DescriptorNames::ENTRIES
}
