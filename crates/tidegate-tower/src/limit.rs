use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use http::request::Parts;
use tidegate::policy::{Mode, RuleId};
use tidegate::{Decision, Limiter, Wait, clock::Clock, limiter::KeyedLimit};
use tidegate_proto::headers::{Dialect, LimitFields};
use tower_layer::Layer;

use crate::denial::{Denial, headers_of_one};
use crate::gate::{Admitted, AfterResponse, Decider, Gate, GateConfig, GateDecision, GateKind};
use crate::options::{GateOptions, option_methods};
use crate::{Admission, AttributeError, KeySource};

/// One [`Limiter`] in front of a service.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{Bucket, Limiter};
/// use tidegate_tower::{Dialect, Header, LimitLayer};
///
/// let limiter: Arc<Limiter<String>> = Arc::new(Limiter::new(Bucket::per_second(10).burst(20)));
/// let layer = LimitLayer::new(Arc::clone(&limiter), Header::new("x-api-key"))
///     .name("api")
///     .cost(|parts| if parts.uri.path().starts_with("/export") { 10 } else { 1 })
///     .dialect(Dialect::XRateLimit);
/// // The limiter can be queried and changed while it is in use.
/// limiter.set_limit(Bucket::per_second(20).burst(40));
/// ```
///
/// A request without a key is denied, unless [`serve_without_key`](Self::serve_without_key) is set.
#[derive(Clone)]
pub struct LimitLayer {
    limit: Arc<dyn ErasedLimiter>,
    settings: LimitSettings,
    options: GateOptions,
}

/// What happens to a request without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutKey {
    Denied,
    Served,
}

/// The cost of a request.
pub(crate) type CostOf = Arc<dyn Fn(&Parts) -> u64 + Send + Sync>;

#[derive(Clone)]
struct LimitSettings {
    name: Arc<str>,
    dialect: Dialect,
    cost: Option<CostOf>,
    without_key: WithoutKey,
}

impl LimitLayer {
    /// A layer that charges every request to the key that `source` finds in it.
    ///
    /// The limiter may be shared: pass an [`Arc`] to keep a handle.
    pub fn new<K, A, C, H>(
        limiter: impl Into<Arc<Limiter<K, A, C, H>>>,
        source: impl KeySource<K>,
    ) -> Self
    where
        K: Hash + 'static,
        A: KeyedLimit,
        C: Clock + Send + Sync + 'static,
        H: BuildHasher + Send + Sync + 'static,
    {
        let settings = LimitSettings {
            name: "default".into(),
            dialect: Dialect::default(),
            cost: None,
            without_key: WithoutKey::Denied,
        };
        let limit = Arc::new(KeyedLimiter { limiter: limiter.into(), source });
        Self { limit, settings, options: GateOptions::default() }
    }

    /// The limit's name in headers and denials, in place of `default`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.settings.name = name.into();
        self
    }

    /// The cost of a request, in place of 1. A cost of 0 looks without charging.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.cost = Some(Arc::new(cost));
        self
    }

    /// The rate-limit headers of responses.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// In [shadow](Mode::Shadow) mode every request is served; denials charge nothing, as always,
    /// and are only logged and visible to the handler in its [`Admission`]. Clients notice nothing.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// Serves requests without a key, unlimited, instead of denying them.
    #[must_use]
    pub fn serve_without_key(mut self) -> Self {
        self.settings.without_key = WithoutKey::Served;
        self
    }

    option_methods!();
}

impl<S> Layer<S> for LimitLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        let mut settings = self.settings.clone();
        if self.options.mode == Mode::Shadow {
            settings.dialect = Dialect::None;
        }
        let decider = Arc::new(LimitDecider { limit: Arc::clone(&self.limit), settings });
        let options = self.options.clone();
        Gate::new(inner, GateConfig { decider, options, kind: GateKind::Layer })
    }
}

impl fmt::Debug for LimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer")
            .field("name", &self.settings.name)
            .field("dialect", &self.settings.dialect)
            .field("mode", &self.options.mode)
            .finish_non_exhaustive()
    }
}

/// A limiter with its source of keys, of any types.
trait ErasedLimiter: Send + Sync + 'static {
    /// The decision about a request; `None` without a key.
    fn check(&self, parts: &Parts, cost: u64) -> Result<Option<Decision>, AttributeError>;
}

struct KeyedLimiter<K, A: KeyedLimit, C, H, Q> {
    limiter: Arc<Limiter<K, A, C, H>>,
    source: Q,
}

impl<K, A, C, H, Q> ErasedLimiter for KeyedLimiter<K, A, C, H, Q>
where
    K: Hash + 'static,
    A: KeyedLimit,
    C: Clock + Send + Sync + 'static,
    H: BuildHasher + Send + Sync + 'static,
    Q: KeySource<K>,
{
    fn check(&self, parts: &Parts, cost: u64) -> Result<Option<Decision>, AttributeError> {
        let key = self.source.try_key(parts)?;
        Ok(key.map(|key| self.limiter.check_n(&key, cost)))
    }
}

struct LimitDecider {
    limit: Arc<dyn ErasedLimiter>,
    settings: LimitSettings,
}

impl Decider for LimitDecider {
    fn decide(&self, parts: &mut Parts) -> GateDecision {
        let LimitSettings { name, dialect, cost, without_key } = &self.settings;
        let cost = cost.as_ref().map_or(1, |cost| cost(parts));
        let decision = match self.limit.check(parts, cost) {
            Ok(Some(decision)) => decision,
            Ok(None) => {
                return GateDecision::Now(match without_key {
                    WithoutKey::Denied => Err(Box::new(Denial::no_key())),
                    WithoutKey::Served => Ok(Admitted::default()),
                });
            }
            Err(error) => return GateDecision::Now(Err(Box::new(Denial::of_attribute(&error)))),
        };
        let headers = headers_of_one(*dialect, || LimitFields::new(name, &decision));
        if decision.is_allowed() {
            let admission = Admission { decision: Some(decision), ..Admission::default() };
            admission.insert_into(&mut parts.extensions);
            return GateDecision::Now(Ok(Admitted { headers, after: AfterResponse::Nothing }));
        }
        let wait = decision.retry_after().unwrap_or(Wait::Unknown);
        GateDecision::Now(Err(Box::new(Denial {
            rules: vec![RuleId::named(name)],
            decision: Some(decision),
            headers,
            ..Denial::limit_exceeded(reason(wait), wait)
        })))
    }
}

/// The reason of a denial, as text.
pub(crate) const fn reason(wait: Wait) -> &'static str {
    match wait {
        Wait::After(_) => "too many requests: retry later",
        Wait::Never => "the request costs more than the limit ever allows",
        Wait::Unknown => "too many requests: the wait is unknown",
    }
}
