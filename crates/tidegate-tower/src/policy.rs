use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::response;
use tidegate::policy::{Condition, KeyPart, Limit, Missing, Mode, Rule};
use tidegate::{Cooldown, Limiter, NoSuchDomain, StoreEngine};
use tidegate_proto::headers::Dialect;
use tower_layer::Layer;

use crate::gate::{Gate, GateConfig, GateKind};
use crate::limit::CostOf;
use crate::options::{GateOptions, option_methods};
use crate::{Attribute, ClientIp, host, method, path};
use decider::EngineDecider;
use hold::{SettleBy, UnsettledReports};

pub use hold::Unsettled;

mod decider;
mod hold;

/// A domain of an [`Engine`](tidegate::Engine) in front of a service: all rules that match a request make one
/// decision.
///
/// ```
/// use tidegate::policy::Policy;
/// use tidegate::Engine;
/// use tidegate_tower::{ClientIp, Header, PolicyLayer};
///
/// let engine = Engine::new(Policy::from_toml(r#"
///     [[rule]]
///     name   = "searches"
///     domain = "api"
///     match  = { path = "/search*" }
///     key    = ["ip"]
///     bucket = { rate = "10/s", burst = 20 }
///
///     [[rule]]
///     name   = "daily"
///     domain = "api"
///     key    = ["account"]
///     quota  = { max = 10000, per = "day" }
/// "#)?);
/// let layer = PolicyLayer::new(engine.clone(), "api")?
///     .usual_attributes(ClientIp::peer())
///     .attribute("account", Header::new("x-account"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Requests are [checked](StoreEngine::check), unless they are [settled later](Self::settle) or acquire
/// [slots](Self::slots).
#[derive(Clone)]
pub struct PolicyLayer {
    engine: StoreEngine,
    settings: PolicySettings,
    options: GateOptions,
}

/// How the engine is called.
#[derive(Clone)]
struct PolicySettings {
    domain: Arc<str>,
    attributes: Vec<(Arc<str>, Arc<dyn Attribute>)>,
    cost: Option<CostOf>,
    idempotency_key: Option<Arc<dyn Attribute>>,
    dialect: Dialect,
    verb: PolicyVerb,
    no_slot: Option<NoSlot>,
    unsettled: UnsettledReports,
}

/// The response to a request without a slot.
#[derive(Clone)]
struct NoSlot {
    detail: Cow<'static, str>,
    retry_after: Duration,
}

impl PolicySettings {
    /// Whether requests may have an attribute.
    fn supplies(&self, name: &str) -> bool {
        self.attributes.iter().any(|(supplied, _)| **supplied == *name)
    }

    /// Why requests would fail, or rules never apply, under these rules.
    fn misfits(&self, rules: &[Rule]) -> Vec<String> {
        let domain = &*self.domain;
        let own: Vec<&Rule> = rules.iter().filter(|rule| rule.domain() == domain).collect();
        if own.is_empty() {
            return vec![format!("the domain `{domain}` has no rule, and a layer applies it")];
        }
        let mut misfits: Vec<String> = own.iter().flat_map(|rule| self.missing_of(rule)).collect();
        let is_slots =
            |rule: &&&Rule| matches!(rule.limit(), Limit::Slots(_)) && rule.mode() == Mode::Enforce;
        match (self.verb.may_wait(), own.iter().find(is_slots)) {
            (false, Some(rule)) => misfits.push(format!(
                "the rule `{}` of `{domain}` has slots, and the layer does not acquire any",
                rule.name()
            )),
            (true, None) => misfits
                .push(format!("no rule of `{domain}` has slots, and the layer acquires them")),
            _ => {}
        }
        misfits
    }

    /// What a rule needs that the layer does not supply.
    fn missing_of(&self, rule: &Rule) -> Vec<String> {
        let missing = |name: &&str| !self.supplies(name);
        let of_key: BTreeSet<&str> =
            rule.key().parts().iter().map(KeyPart::attribute).filter(missing).collect();
        let of_cost = rule.cost().and_then(|cost| cost.attribute()).filter(missing);
        let matched = rule.conditions().iter().map(Condition::attribute);
        let matched: BTreeSet<&str> = matched.filter(missing).collect();
        let none = BTreeSet::new();
        let (mut needed, skipped) = match rule.missing() {
            Missing::Refuse => (of_key, none),
            Missing::Skip => (none, &of_key - &matched),
            Missing::Share => (none.clone(), none),
        };
        needed.extend(of_cost);
        let id = format!("the rule `{}` of `{}`", rule.name(), self.domain);
        let needs =
            |name| format!("{id} needs the attribute `{name}`, which the layer does not supply");
        let never = |name| {
            format!("{id} never applies: the layer does not supply `{name}`, which it matches on")
        };
        let skips = |name| {
            format!(
                "{id} never applies: the layer does not supply `{name}`, and requests without it are \
                 skipped (missing = \"skip\")"
            )
        };
        let never_applies = matched.into_iter().map(never).chain(skipped.into_iter().map(skips));
        needed.into_iter().map(needs).chain(never_applies).collect()
    }
}

#[derive(Clone)]
enum PolicyVerb {
    Check,
    Reserve(SettleBy),
    Acquire { max_wait: Option<Duration> },
}

impl PolicyVerb {
    /// Whether a decision may have to wait, whatever the store is.
    const fn may_wait(&self) -> bool {
        matches!(self, Self::Acquire { .. })
    }
}

/// What happens to the units held for a request, now that there is a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// Charges this many; `None` charges the [actual cost](crate::ActualCost) that the handler has
    /// set, or else all held units.
    Commit(Option<u64>),
    /// Releases all.
    Cancel,
    /// When the whole body has been sent, charges the actual cost that the handler has set by then,
    /// or else all held units. If the body breaks off, it charges the actual cost, or else nothing.
    AtEnd,
}

impl EngineDecider {
    /// Decides by an engine, which from now on rejects edits that do not fit the settings.
    fn new(engine: StoreEngine, settings: PolicySettings) -> Self {
        let settings = Arc::new(settings);
        let warn = |settings: &PolicySettings, reasons: &[String]| {
            for reason in reasons {
                let domain = &*settings.domain;
                tracing::warn!(domain, reason, "the layer and the policy do not fit");
            }
        };
        warn(&settings, &settings.misfits(engine.policy().rules()));
        engine.require(&settings, |settings, rules| settings.misfits(rules), warn);
        Self { engine, settings }
    }
}

impl PolicyLayer {
    /// A layer that applies the rules of a domain; an error if the policy has none.
    ///
    /// Once it is around a service, the engine rejects edits that would make it fail: those that remove
    /// the domain, need an attribute which the layer does not supply, or bring slots to a layer without
    /// [slots](Self::slots).
    pub fn new(engine: impl Into<StoreEngine>, domain: &str) -> Result<Self, NoSuchDomain> {
        let engine = engine.into();
        engine.domain(domain)?;
        let domain: Arc<str> = domain.into();
        let second = Cooldown::new(Duration::from_secs(1));
        let settings = PolicySettings {
            unsettled: UnsettledReports {
                domain: Arc::clone(&domain),
                observe: None,
                log: Arc::new(Limiter::new(second)),
            },
            domain,
            attributes: Vec::new(),
            cost: None,
            idempotency_key: None,
            dialect: Dialect::default(),
            verb: PolicyVerb::Check,
            no_slot: None,
        };
        Ok(Self { engine, settings, options: GateOptions::default() })
    }

    /// An attribute of every request, for rules to match or to key by. Of two with the same name
    /// the first counts.
    ///
    /// If a rule's key needs an attribute that the layer does not supply, requests get a 500, and
    /// the reason is logged. A rule that matches on one, or skips requests without one, never applies,
    /// which is logged, too. A later edit that needs one is rejected; one that another engine makes in
    /// a shared store is logged.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: impl Attribute) -> Self {
        self.settings.attributes.push((name.into(), Arc::new(value)));
        self
    }

    /// The attributes `ip`, `method`, `host` and `path`. The path is in its
    /// [normal form](tidegate::policy::normalized_path).
    #[must_use]
    pub fn usual_attributes(self, ip: ClientIp) -> Self {
        self.attribute("ip", ip)
            .attribute("method", method())
            .attribute("host", host())
            .attribute("path", path())
    }

    /// The cost of a request, in place of 1. A cost of 0 looks without charging or holding
    /// anything.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.cost = Some(Arc::new(cost));
        self
    }

    /// The idempotency key of a request, which may be repeated without another charge. It is scoped
    /// by the domain and the attributes.
    ///
    /// **A repeated key is served again, free of charge.** So keys must come from a trusted source,
    /// or the handler has to deduplicate them too. A header that any client can write is a way
    /// around the limit.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Attribute) -> Self {
        self.settings.idempotency_key = Some(Arc::new(key));
        self
    }

    /// The rate-limit headers of responses.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// In [shadow](Mode::Shadow) mode every request is served; denials are only logged and visible
    /// to the handler in its [`Admission`](crate::Admission). Clients notice nothing.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// Holds the cost when a request arrives, and settles it when there is a response.
    ///
    /// If the service fails, or its future is dropped because the client has disconnected, the hold
    /// is cancelled, unless the handler has set the actual cost by then. A reservation expires
    /// after its rules' `reserve_for`; one that is settled [at the end](Settle::AtEnd) of the body is
    /// renewed while the body is polled. What could not be charged is
    /// [reported](Self::on_unsettled).
    ///
    /// ```
    /// # use tidegate::policy::Policy;
    /// # use tidegate::Engine;
    /// use tidegate_tower::{Header, PolicyLayer, Settle};
    ///
    /// # let engine = Engine::new(Policy::from_toml(r#"
    /// #     [[rule]]
    /// #     name  = "tokens"
    /// #     key   = ["team"]
    /// #     quota = { max = 100000, per = "day" }
    /// # "#)?);
    /// let layer = PolicyLayer::new(engine, "default")?
    ///     .attribute("team", Header::new("x-team"))
    ///     .cost(|_| 4_000)
    ///     .settle(|response| match response.status.is_success() {
    ///         true => Settle::Commit(None),
    ///         false => Settle::Cancel,
    ///     });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn settle(
        mut self,
        settle: impl Fn(&response::Parts) -> Settle + Send + Sync + 'static,
    ) -> Self {
        self.settings.verb = PolicyVerb::Reserve(Arc::new(settle));
        self
    }

    /// Calls a function for usage that was not charged, because its reservation could not be
    /// [settled](Self::settle): for metrics. It should not block. It is logged as well, at most once a
    /// second.
    #[must_use]
    pub fn on_unsettled(
        mut self,
        observe: impl Fn(&Unsettled<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.settings.unsettled.observe = Some(Arc::new(observe));
        self
    }

    /// Acquires a [slot](StoreEngine::acquire) for every request, and waits in a fair queue if none is
    /// free. `max_wait` limits the wait; `None` uses the rule's.
    ///
    /// The slot is released when the response's body has been sent or dropped, and the handler has
    /// dropped the [`Permit`](crate::Permit) of its [`Admission`](crate::Admission).
    #[must_use]
    pub fn slots(mut self, max_wait: Option<Duration>) -> Self {
        self.settings.verb = PolicyVerb::Acquire { max_wait };
        self
    }

    /// The detail and the `Retry-After` of the `503` where no [slot](Self::slots) is free. Without
    /// it there is no `Retry-After`: the layer cannot know when a slot becomes free.
    #[must_use]
    pub fn no_slot(mut self, detail: impl Into<Cow<'static, str>>, retry_after: Duration) -> Self {
        self.settings.no_slot = Some(NoSlot { detail: detail.into(), retry_after });
        self
    }

    option_methods!();
}

impl<S> Layer<S> for PolicyLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        let mut settings = self.settings.clone();
        if self.options.mode == Mode::Shadow {
            settings.dialect = Dialect::None;
            // A request that would have to wait is served at once.
            if let PolicyVerb::Acquire { max_wait } = &mut settings.verb {
                *max_wait = Some(Duration::ZERO);
            }
        }
        let decider = Arc::new(EngineDecider::new(self.engine.clone(), settings));
        let options = self.options.clone();
        Gate::new(inner, GateConfig { decider, options, kind: GateKind::Layer })
    }
}

impl fmt::Debug for PolicyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyLayer")
            .field("domain", &self.settings.domain)
            .field("dialect", &self.settings.dialect)
            .field("mode", &self.options.mode)
            .finish_non_exhaustive()
    }
}
