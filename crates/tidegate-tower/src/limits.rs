use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use http::request::Parts;
use tidegate::Engine;
use tidegate::policy::{Limit, Policy, Rule};

use crate::{Attribute, AttributeError, KeySource, PolicyLayer};

/// Several named limits in front of a service, in one decision: a request is charged to all of them, or, if
/// one denies it, to none.
///
/// ```
/// use tidegate::Bucket;
/// use tidegate_tower::{ClientIp, Header, Limits};
///
/// let layer = Limits::new()
///     .limit("per-ip", ClientIp::peer(), Bucket::per_second(10).burst(20))
///     .limit("per-key", Header::new("x-api-key"), Bucket::per_minute(60))
///     .layer();
/// ```
///
/// It is a policy with a rule for each, without a file: what has to change while it runs, matches on
/// attributes, or is shared, is [a policy](PolicyLayer). Layers on top of each other are no such decision:
/// what the outer one has charged stays charged when the inner one denies.
#[derive(Clone, Default)]
#[must_use]
pub struct Limits {
    limits: Vec<NamedLimit>,
}

#[derive(Clone)]
struct NamedLimit {
    name: String,
    limit: Limit,
    key: Arc<dyn Attribute>,
}

impl Limits {
    /// No limit yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a limit, which counts by the key that `source` finds in a request. A request without one is
    /// denied: it has [no key](crate::DenialKind::NoKey).
    pub fn limit<K: fmt::Display + 'static>(
        mut self,
        name: &str,
        source: impl KeySource<K>,
        limit: impl Into<Limit>,
    ) -> Self {
        let key = KeyText { source, key: PhantomData };
        self.limits.push(NamedLimit { name: name.into(), limit: limit.into(), key: Arc::new(key) });
        self
    }

    /// The layer.
    ///
    /// # Panics
    ///
    /// If two limits have the same name, a name has characters that no rule's may have, or there is no
    /// limit.
    #[must_use]
    pub fn layer(self) -> PolicyLayer {
        let rules = self.limits.iter().map(|NamedLimit { name, limit, .. }| {
            let rule = Rule::builder(name, limit.clone()).key([name.as_str()]);
            rule.build().unwrap_or_else(|error| panic!("the limit `{name}`: {error}"))
        });
        let policy = Policy::new(rules.collect::<Vec<_>>());
        let policy = policy.unwrap_or_else(|errors| panic!("the limits: {errors}"));
        let layer = PolicyLayer::new(Engine::new(policy), Rule::DEFAULT_DOMAIN);
        let layer = layer.expect("there is at least one limit");
        self.limits
            .into_iter()
            .fold(layer, |layer, NamedLimit { name, key, .. }| layer.attribute(&name, key))
    }
}

/// A key as the text of an attribute.
struct KeyText<K, S> {
    source: S,
    key: PhantomData<fn() -> K>,
}

impl<K: fmt::Display + 'static, S: KeySource<K>> Attribute for KeyText<K, S> {
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError> {
        Ok(self.source.try_key(parts)?.map(|key| Cow::Owned(key.to_string())))
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.limits.iter().map(|limit| (&limit.name, &limit.limit));
        f.debug_map().entries(limits).finish()
    }
}
