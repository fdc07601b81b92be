use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Debt;

use super::rule_builder::RuleBuilder;
use super::text::TextError;
use super::words::Words;
use super::{Condition, CostTable, Grant, Key, Limit, Metadata, Override, RuleId, Share};
use crate::attributes::Attributes;

/// A rule: which requests it matches, their key, and the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub(crate) id: RuleId,
    /// All of them must hold; without any the rule applies to its whole domain.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) cost: Option<CostTable>,
    pub(crate) deny: Option<Box<str>>,
    pub(crate) mode: Mode,
    pub(crate) group: Option<Box<str>>,
    pub(crate) overrides: Vec<Override>,
    /// `None` is the default of the limit: see [`Rule::without_store`].
    pub(crate) on_error: Option<OnError>,
    pub(crate) missing: Missing,
    pub(crate) empty: Empty,
    /// `None`: the store's default for the limit.
    pub(crate) durability: Option<Durability>,
    pub(crate) reserve_for: Duration,
    pub(crate) charging: Charging,
    pub(crate) quota_mode: bool,
    /// Names of rules of its domain.
    pub(crate) replaces: Vec<Box<str>>,
    pub(crate) effective: Effective,
    /// Never empty.
    pub(crate) metadata: Option<Arc<Metadata>>,
}

impl Rule {
    /// The default time for which a reservation holds units.
    pub const DEFAULT_RESERVE_FOR: Duration = Duration::from_secs(600);

    /// The domain of rules and requests without one.
    pub const DEFAULT_DOMAIN: &str = "default";

    /// Builds a rule for all requests of the domain `default`, with one key for all.
    ///
    /// ```
    /// use tidegate::policy::{Limit, Policy, Rule};
    /// use tidegate::Bucket;
    ///
    /// let limit = Limit::Bucket(Bucket::per_second(10).burst(20));
    /// let rule = Rule::builder("search", limit)
    ///     .domain("api")
    ///     .matching("path", ["/search/*"])
    ///     .key(["ip"])
    ///     .build()?;
    /// let policy = Policy::new([rule])?;
    /// assert_eq!(policy.rules()[0].name(), "search");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(name: &str, limit: impl Into<Limit>) -> RuleBuilder {
        RuleBuilder::new(name, limit.into())
    }

    /// A rule for all requests of the domain `default`, with one key for all.
    pub(crate) fn new(name: &str, limit: Limit) -> Self {
        Self {
            id: RuleId::named(name),
            conditions: Vec::new(),
            key: Key::default(),
            limit,
            cost: None,
            deny: None,
            mode: Mode::default(),
            group: None,
            overrides: Vec::new(),
            on_error: None,
            missing: Missing::default(),
            empty: Empty::default(),
            durability: None,
            reserve_for: Self::DEFAULT_RESERVE_FOR,
            charging: Charging::default(),
            quota_mode: false,
            replaces: Vec::new(),
            effective: Effective::default(),
            metadata: None,
        }
    }

    /// The same rule with these overrides in place of its own. A bucket among them that has no debt gets
    /// that of a postpaid rule, or it would forgive what the rule books. For the engine.
    #[doc(hidden)]
    #[must_use]
    pub fn with_overrides(self, mut overrides: Vec<Override>) -> Self {
        if let (Charging::Postpaid, Limit::Bucket(own)) = (self.charging, &self.limit) {
            for given in &mut overrides {
                if let Grant::Limit(Limit::Bucket(bucket)) = &mut given.grant
                    && bucket.debt() == Debt::Nothing
                {
                    // A debt without a bound fits every bucket.
                    let with = |debt| bucket.with_debt(debt);
                    *bucket = with(own.debt()).or_else(|_| with(Debt::All)).unwrap_or(*bucket);
                }
            }
        }
        Self { overrides, ..self }
    }

    /// Whether an override fits the rule: it names attributes of its key, and its limit differs in
    /// numbers only.
    #[doc(hidden)]
    #[must_use]
    pub fn takes(&self, given: &Override) -> bool {
        let is_in_key = |condition: &Condition| {
            self.key.parts.iter().any(|part| part.attribute() == condition.attribute())
        };
        let is_alike = match &given.grant {
            Grant::Unlimited => true,
            Grant::Limit(given) => given.is_like(&self.limit),
        };
        is_alike && given.key.iter().all(is_in_key)
    }

    /// Whether the limit of an override would forgive what the rule books: it is postpaid, and the limit
    /// is a bucket without the debt that the rule's has.
    pub(crate) fn loses_debt_to(&self, given: &Limit) -> bool {
        let debts = match (&self.limit, given) {
            (Limit::Bucket(own), Limit::Bucket(given)) => Some((own.debt(), given.debt())),
            _ => None,
        };
        self.charging == Charging::Postpaid
            && debts.is_some_and(|(own, given)| own != Debt::Nothing && given == Debt::Nothing)
    }

    /// Whether it uses an attribute: in its conditions, its key or its costs.
    #[doc(hidden)]
    #[must_use]
    pub fn reads(&self, attribute: &str) -> bool {
        self.conditions.iter().any(|it| &*it.attribute == attribute)
            || self.key.parts.iter().any(|part| part.attribute() == attribute)
            || self.cost.as_ref().is_some_and(|cost| &*cost.by == attribute)
    }

    /// What names it in calls, errors and reports.
    #[must_use]
    pub const fn id(&self) -> &RuleId {
        &self.id
    }

    /// Its name, unique in its domain.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.id.name
    }

    /// The domain it belongs to.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.id.domain
    }

    /// The conditions on a request; all must hold.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The constraint.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The costs of requests, if the rule has its own.
    #[must_use]
    pub const fn cost(&self) -> Option<&CostTable> {
        self.cost.as_ref()
    }

    /// The reason in its denials.
    #[must_use]
    pub fn deny_reason(&self) -> Option<&str> {
        self.deny.as_deref()
    }

    /// What responses say about the rule; never empty.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn metadata(&self) -> Option<&Arc<Metadata>> {
        self.metadata.as_ref()
    }

    /// The group it is in.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// Other limits for some keys; the first that matches applies.
    #[must_use]
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// Whether denials are enforced.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether it is in shadow mode.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// The decision when the store is unavailable. By default a quota denies, because it stands for
    /// money, and any other limit allows.
    #[must_use]
    pub fn without_store(&self) -> OnError {
        let by_limit = match self.limit {
            Limit::Quota(..) => OnError::Deny,
            _ => OnError::Allow,
        };
        self.on_error.unwrap_or(by_limit)
    }

    /// What happens to a request that lacks an attribute of the key.
    #[must_use]
    pub const fn missing(&self) -> Missing {
        self.missing
    }

    /// What happens to a request whose attribute of the key is empty.
    #[must_use]
    pub const fn empty(&self) -> Empty {
        self.empty
    }

    /// How durable charges are; `None`: the store's default for the limit.
    #[must_use]
    pub const fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// How durable its charges are on a durable store: quotas are synced, unless the rule sets
    /// another durability.
    #[doc(hidden)]
    #[must_use]
    pub fn durability_on_disk(&self) -> Durability {
        self.durability.unwrap_or(match self.limit {
            Limit::Quota(..) => Durability::Fsync,
            _ => Durability::Memory,
        })
    }

    /// How long reservations hold units.
    #[must_use]
    pub const fn reserve_for(&self) -> Duration {
        self.reserve_for
    }

    /// Which requests it charges.
    #[must_use]
    pub const fn charging(&self) -> Charging {
        self.charging
    }

    /// Whether it is in Envoy's quota mode.
    #[must_use]
    pub const fn is_in_quota_mode(&self) -> bool {
        self.quota_mode
    }

    /// The rules of its domain that do not apply where it does.
    pub fn replaces(&self) -> impl Iterator<Item = &str> {
        self.replaces.iter().map(|name| &**name)
    }

    /// From when an edit applies.
    #[must_use]
    pub const fn effective(&self) -> Effective {
        self.effective
    }

    /// Whether a request of its domain meets all conditions.
    #[must_use]
    pub fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(attributes))
    }
}

/// Why a rule could not be built: what is wrong, and what to write instead.
#[derive(Clone, PartialEq, Eq)]
pub struct RuleError(TextError);

impl From<TextError> for RuleError {
    fn from(error: TextError) -> Self {
        Self(error)
    }
}

impl RuleError {
    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to write instead.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

tidegate_core::debug_as_displayed!(RuleError);

impl Error for RuleError {}

/// Whether denials are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A denial denies the request.
    #[default]
    Enforce,
    /// A denial is counted and reported, and the request is allowed.
    Shadow,
}

impl Words for Mode {
    const WORDS: &'static [&'static str] = &[Self::Enforce.name(), Self::Shadow.name()];
    const VALUES: &'static [Self] = &[Self::Enforce, Self::Shadow];
}

impl Mode {
    /// Its name in policies, responses and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

/// The decision on a request when the store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is allowed.
    Allow,
    /// It is denied.
    Deny,
    /// The process decides by itself, with this share of the limit. For buckets, windows and sliding
    /// windows.
    Local(Share),
}

/// Which requests a rule charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charging {
    /// Those that are allowed.
    #[default]
    Allowed,
    /// Denied ones as well: a window counts all of their cost, past its maximum, and other limits
    /// what remains.
    Refused,
    /// All, and in full, whatever is left: for costs that are known only afterwards. A request is
    /// allowed if at least one whole unit was left before.
    Postpaid,
}

impl Charging {
    /// The name of it, as an explanation has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Postpaid => "postpaid",
        }
    }

    /// How far a bucket may be overdrawn where its rule does not say.
    pub(crate) const fn default_debt_of_buckets(self) -> Debt {
        match self {
            Self::Postpaid => Debt::All,
            Self::Allowed | Self::Refused => Debt::Nothing,
        }
    }
}

/// What happens to a request without an attribute that the key needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// It is denied.
    #[default]
    Refuse,
    /// The rule does not apply to it.
    Skip,
    /// All such requests share one key.
    Share,
}

impl Words for Missing {
    const WORDS: &'static [&'static str] = &["refuse", "skip", "share"];
    const VALUES: &'static [Self] = &[Self::Refuse, Self::Skip, Self::Share];
}

/// What happens to a request with an empty text for an attribute of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Empty {
    /// An empty text is a key like any other.
    #[default]
    Accept,
    /// The request is an error, and no rule is charged: an identity that could not be determined
    /// must not share a key with others.
    Reject,
}

impl Words for Empty {
    const WORDS: &'static [&'static str] = &["accept", "reject"];
    const VALUES: &'static [Self] = &[Self::Accept, Self::Reject];
}

/// How durable a charge is before the decision is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It is in memory.
    Memory,
    /// The operating system has it.
    Flush,
    /// The disk has it.
    Fsync,
}

impl Words for Durability {
    const WORDS: &'static [&'static str] = &["memory", "flush", "fsync"];
    const VALUES: &'static [Self] = &[Self::Memory, Self::Flush, Self::Fsync];
}

/// When an edit of the limit takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effective {
    /// At once.
    #[default]
    Now,
    /// With the next window, period or round of each key.
    Next,
}

impl Words for Effective {
    const WORDS: &'static [&'static str] = &["now", "next"];
    const VALUES: &'static [Self] = &[Self::Now, Self::Next];
}
