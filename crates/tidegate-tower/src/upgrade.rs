use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tidegate::policy::RuleId;
use tidegate::{
    Bucket, Decision, LimitError, Limiter, Rate, Verdict, Wait,
    clock::{Clock, MonotonicClock},
    limiter::BuildError,
};
use tower_layer::Layer;

use crate::denial::Denial;
use crate::gate::{Admitted, Decider, Gate, GateConfig, GateDecision, GateKind};
use crate::limit::reason;
use crate::options::{GateOptions, option_methods};
use crate::{ClientIp, KeySource, Peer};

/// One bucket per address, before a WebSocket exists: denies floods of connection attempts before
/// memory is spent on them.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::any};
/// use tidegate::Rate;
/// use tidegate_tower::{ClientIp, UpgradeGuard};
///
/// // One attempt per 6 s and address, 20 at once; idle addresses are forgotten within 5 minutes.
/// let guard = UpgradeGuard::new(Rate::one_every(Duration::from_secs(6)), 20, Duration::from_secs(300))?;
/// let app: Router = Router::new()
///     .route("/ws", any(|| async { "an upgrade" }))
///     .route_layer(guard.layer(ClientIp::peer()))
///     .route("/healthz", any(|| async { "not limited" }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`UpgradeGuard::default`] has these numbers. Clones are handles of the same guard, so one guard
/// can protect several endpoints.
///
/// A bucket that is not full is never dropped, so an address cannot get a fresh one by waiting
/// until others fill the table. Nothing runs in the background.
///
/// Keys of other types have the same guard:
///
/// ```
/// use std::time::Duration;
/// use tidegate::Rate;
/// use tidegate_tower::{Header, UpgradeGuard};
///
/// // A proxy in front has verified the account.
/// let guard = UpgradeGuard::builder(Rate::per_minute(10), 5).keys::<String>().build()?;
/// let layer = guard.layer_by(Header::new("x-account"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UpgradeGuard<K: ?Sized = IpAddr, C = MonotonicClock> {
    limiter: Arc<Limiter<K, Bucket, C>>,
}

/// Builds an [`UpgradeGuard`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::Rate;
/// use tidegate_tower::UpgradeGuard;
///
/// let guard = UpgradeGuard::builder(Rate::one_every(Duration::from_secs(6)), 20)
///     .evict_every(Duration::from_secs(60))
///     .max_keys(1 << 16)
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct GuardBuilder<K: ?Sized = IpAddr, C = MonotonicClock> {
    rate: Rate,
    burst: u64,
    evict_every: Duration,
    max_keys: usize,
    clock: C,
    keys: PhantomData<fn(&K)>,
}

impl<K: ?Sized, C> GuardBuilder<K, C> {
    /// Idle keys are forgotten within this time, 5 minutes by default.
    pub fn evict_every(self, evict_every: Duration) -> Self {
        Self { evict_every, ..self }
    }

    /// The maximum number of keys with a bucket of their own, 2^20 by default: about 40 MiB. Beyond
    /// it new keys share counters that over-count.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Another clock.
    pub fn clock<D>(self, clock: D) -> GuardBuilder<K, D> {
        let Self { rate, burst, evict_every, max_keys, clock: _, keys } = self;
        GuardBuilder { rate, burst, evict_every, max_keys, clock, keys }
    }

    /// Keys of another type than addresses.
    pub fn keys<L: ?Sized>(self) -> GuardBuilder<L, C> {
        let Self { rate, burst, evict_every, max_keys, clock, keys: _ } = self;
        GuardBuilder { rate, burst, evict_every, max_keys, clock, keys: PhantomData }
    }
}

impl<K: ?Sized + Hash, C: Clock + Send + Sync + 'static> GuardBuilder<K, C> {
    /// The guard, or the setting that is invalid.
    pub fn build(self) -> Result<UpgradeGuard<K, C>, GuardError> {
        let bucket = Bucket::try_new(self.rate, self.burst).map_err(GuardError::Limit)?;
        let limiter = Limiter::builder(bucket)
            .clock(self.clock)
            .evict_every(self.evict_every)
            .max_keys(self.max_keys)
            .build()
            .map_err(GuardError::Table)?;
        Ok(UpgradeGuard { limiter: Arc::new(limiter) })
    }
}

impl<K: ?Sized, C> fmt::Debug for GuardBuilder<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardBuilder")
            .field("rate", &self.rate)
            .field("burst", &self.burst)
            .field("evict_every", &self.evict_every)
            .field("max_keys", &self.max_keys)
            .finish_non_exhaustive()
    }
}

/// An invalid guard.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardError {
    /// The rate or the burst is zero, or cannot be represented.
    Limit(LimitError),
    /// The interval after which idle addresses are forgotten is zero, or allocation failed.
    Table(BuildError),
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(error) => error.fmt(f),
            Self::Table(error) => error.fmt(f),
        }
    }
}

tidegate::debug_as_displayed!(GuardError);

impl std::error::Error for GuardError {}

impl UpgradeGuard {
    /// A guard with this refill rate that allows `burst` attempts of one address at once and
    /// forgets idle addresses within `evict_every`.
    pub fn new(rate: Rate, burst: u64, evict_every: Duration) -> Result<Self, GuardError> {
        Self::builder(rate, burst).evict_every(evict_every).build()
    }

    /// A guard with other settings, clocks or keys.
    pub fn builder(rate: Rate, burst: u64) -> GuardBuilder {
        GuardBuilder {
            rate,
            burst,
            evict_every: Duration::from_secs(300),
            max_keys: MOST_KEYS,
            clock: MonotonicClock,
            keys: PhantomData,
        }
    }
}

impl Default for UpgradeGuard {
    /// One attempt per 6 s and address, 20 at once, idle addresses forgotten within 5 minutes.
    fn default() -> Self {
        let rate = Rate::one_every(Duration::from_secs(6));
        Self::new(rate, 20, Duration::from_secs(300)).expect("the defaults are valid")
    }
}

impl<C: Clock + Send + Sync + 'static> UpgradeGuard<IpAddr, C> {
    /// A guard with this clock.
    pub fn with_clock(
        rate: Rate,
        burst: u64,
        evict_every: Duration,
        clock: C,
    ) -> Result<Self, GuardError> {
        UpgradeGuard::builder(rate, burst).evict_every(evict_every).clock(clock).build()
    }

    /// The guard as a layer. Every request that reaches it counts as an attempt, an upgrade or not:
    /// put it before the routes that upgrade.
    #[must_use]
    pub fn layer(&self, client: ClientIp) -> GuardLayer {
        GuardLayer::new(AddressDecider { guard: self.clone(), client })
    }
}

impl<K, C> UpgradeGuard<K, C>
where
    K: Hash + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    /// The guard as a layer, by any key of the request. A request without a key is denied.
    #[must_use]
    pub fn layer_by(&self, source: impl KeySource<K>) -> GuardLayer {
        GuardLayer::new(KeyDecider { guard: self.clone(), source })
    }
}

impl<K: ?Sized + Hash, C: Clock + Send + Sync + 'static> UpgradeGuard<K, C> {
    /// Whether a key may connect. An allowed attempt is charged.
    ///
    /// The key is used unchanged; [`ClientIp`] truncates a v6 address to its /64, and maps
    /// v4-mapped v6 addresses to v4.
    #[must_use]
    pub fn allow(&self, key: impl Borrow<K>) -> bool {
        self.limiter.allow(key.borrow())
    }

    /// [`allow`](Self::allow), with the wait.
    pub fn check(&self, key: impl Borrow<K>) -> Decision {
        self.limiter.check(key.borrow())
    }

    /// The number of keys in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.limiter.len()
    }

    /// Whether the table has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets keys that are idle now, without waiting for the interval or for calls. Buckets that
    /// are not full stay.
    pub fn evict_idle(&self) {
        self.limiter.evict_idle();
    }

    /// Stops background work, and returns when it has stopped.
    ///
    /// There is none: idle keys leave as calls arrive. May be called any number of times; the
    /// guard keeps working.
    pub fn close(&self) {
        self.limiter.close();
    }
}

impl<K: ?Sized, C> Clone for UpgradeGuard<K, C> {
    fn clone(&self) -> Self {
        Self { limiter: Arc::clone(&self.limiter) }
    }
}

impl<K: ?Sized, C> fmt::Debug for UpgradeGuard<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradeGuard").field("limiter", &self.limiter).finish()
    }
}

/// An [`UpgradeGuard`] as a layer.
#[derive(Clone)]
pub struct GuardLayer {
    decider: Arc<dyn Decider>,
    options: GateOptions,
}

impl GuardLayer {
    fn new(decider: impl Decider) -> Self {
        Self { decider: Arc::new(decider), options: GateOptions::default() }
    }

    option_methods!();
}

impl<S> Layer<S> for GuardLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        let (decider, options) = (Arc::clone(&self.decider), self.options.clone());
        Gate::new(inner, GateConfig { decider, options, kind: GateKind::Guard })
    }
}

impl fmt::Debug for GuardLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardLayer").finish_non_exhaustive()
    }
}

/// Decides by the client's address.
struct AddressDecider<C> {
    guard: UpgradeGuard<IpAddr, C>,
    client: ClientIp,
}

impl<C: Clock + Send + Sync + 'static> Decider for AddressDecider<C> {
    fn decide(&self, parts: &mut Parts) -> GateDecision {
        let Some(address) = self.client.address(parts).ok().flatten() else { return unknown() };
        let decision = self.guard.check(self.client.counted(address));
        decided(decision, || address.to_string())
    }
}

/// Decides by any key.
struct KeyDecider<K: ?Sized, C, S> {
    guard: UpgradeGuard<K, C>,
    source: S,
}

impl<K, C, S> Decider for KeyDecider<K, C, S>
where
    K: Hash + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
    S: KeySource<K>,
{
    fn decide(&self, parts: &mut Parts) -> GateDecision {
        let Some(key) = self.source.try_key(parts).ok().flatten() else { return unknown() };
        // The key may be a secret; the peer is not.
        let remote = || match Peer::of(&parts.extensions) {
            Some(Peer(peer)) => peer.ip().to_canonical().to_string(),
            None => "unknown".to_owned(),
        };
        decided(self.guard.check(key), remote)
    }
}

/// The denial of an attempt without a key. It does not touch the table.
fn unknown() -> GateDecision {
    tracing::warn!(remote = "unknown", "rate_limited");
    GateDecision::Now(Err(Box::new(Denial::limit_exceeded("the client is unknown", Wait::Never))))
}

fn decided(decision: Decision, remote: impl FnOnce() -> String) -> GateDecision {
    GateDecision::Now(match decision.verdict() {
        Verdict::Allow { .. } => Ok(Admitted::default()),
        Verdict::Deny { wait } => {
            tracing::warn!(remote = remote(), "rate_limited");
            Err(Box::new(Denial {
                rules: vec![RuleId::named("upgrade-guard")],
                decision: Some(decision),
                ..Denial::limit_exceeded(reason(wait), wait)
            }))
        }
    })
}

/// The maximum number of keys with their own bucket: about 40 MiB.
const MOST_KEYS: usize = 1 << 20;
