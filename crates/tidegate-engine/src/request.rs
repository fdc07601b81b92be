use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_policy::Attributes;

use crate::hold_id::Owner;
use crate::request_limit::RequestLimit;

/// A request for a decision: a domain, attributes, a cost.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub(crate) domain: &'a str,
    /// The domain of an engine, if it was looked up.
    pub(crate) prepared: Option<&'a Domain>,
    pub(crate) attributes: Attributes<'a>,
    pub(crate) cost: u64,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) note: Option<&'a str>,
    pub(crate) owner: Option<Owner>,
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
        Self::with_attributes(domain, Attributes::new(attributes))
    }

    /// A request of one unit in a domain, with attributes that are more than a list.
    #[must_use]
    pub const fn with_attributes(domain: &'a str, attributes: Attributes<'a>) -> Self {
        Self {
            domain,
            prepared: None,
            attributes,
            cost: 1,
            idempotency_key: None,
            note: None,
            owner: None,
            request_limit: None,
        }
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

    /// The same request of one of several clients: its idempotency key is apart from the same key of other
    /// owners, and its reservation or lease is [known](Owner::owns) to be this owner's.
    ///
    /// Whether another client may settle it is for the caller to decide.
    #[must_use]
    pub const fn owner(self, owner: Owner) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// The same request with its own limit, which applies in place of the rules of its domain.
    ///
    /// For engines whose policy [accepts such limits](tidegate_policy::policy::Policy::with_request_limits).
    /// In an unknown domain it limits nothing.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    /// use tidegate::policy::{RequestLimit, WindowUnit};
    /// use tidegate::{Engine, Request};
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
    /// assert!(engine.check(&request)?.is_allowed());
    /// assert!(!engine.check(&request)?.is_allowed());
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

/// A domain of an engine, for frequent requests: it is looked up once per policy.
///
/// It follows changes of the policy, also when the domain is removed and added again.
#[derive(Debug)]
pub struct Domain {
    /// The engine, which is kept: no other one can have its address.
    pub(crate) engine: Arc<dyn Any + Send + Sync>,
    pub(crate) name: Box<str>,
    /// The version of the rules that the domain was looked up in, and the domain's number in them;
    /// the lower half is one more than the number, or 0 where there is no such domain.
    pub(crate) found: AtomicU64,
}

impl Domain {
    /// A request of one unit in this domain.
    #[must_use]
    pub fn request<'a>(&'a self, attributes: &'a [(&'a str, &'a str)]) -> Request<'a> {
        Request { prepared: Some(self), ..Request::new(&self.name, attributes) }
    }
}
