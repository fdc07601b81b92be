use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tidegate::{
    Bucket, BuildError, Clock, Decision, LimitError, Limiter, MonotonicClock, Rate, Verdict,
};
use tower_layer::Layer;

use crate::ClientIp;
use crate::denial::Denial;
use crate::gate::{Admitted, Decider, Gate, GateConfig, GateDecision, GateKind};
use crate::limit::reason;
use crate::options::{GateOptions, option_methods};

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
/// let guard = UpgradeGuard::new(Rate::one_every(Duration::from_secs(6))?, 20, Duration::from_secs(300))?;
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
pub struct UpgradeGuard<C = MonotonicClock> {
    limiter: Arc<Limiter<IpAddr, Bucket, C>>,
}

/// An invalid guard.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl std::error::Error for GuardError {}

impl UpgradeGuard {
    /// A guard with this refill rate that allows `burst` attempts of one address at once and
    /// forgets idle addresses within `evict_every`.
    pub fn new(rate: Rate, burst: u64, evict_every: Duration) -> Result<Self, GuardError> {
        Self::with_clock(rate, burst, evict_every, MonotonicClock)
    }
}

impl Default for UpgradeGuard {
    /// One attempt per 6 s and address, 20 at once, idle addresses forgotten within 5 minutes.
    fn default() -> Self {
        let rate = Rate::one_every(Duration::from_secs(6)).expect("6 s is a valid period");
        Self::new(rate, 20, Duration::from_secs(300)).expect("the defaults are valid")
    }
}

impl<C: Clock + Send + Sync + 'static> UpgradeGuard<C> {
    /// A guard with this clock.
    pub fn with_clock(
        rate: Rate,
        burst: u64,
        evict_every: Duration,
        clock: C,
    ) -> Result<Self, GuardError> {
        let bucket = Bucket::new(rate, burst).map_err(GuardError::Limit)?;
        let limiter = Limiter::builder(bucket)
            .clock(clock)
            .evict_every(evict_every)
            .max_keys(MOST_ADDRESSES)
            .build()
            .map_err(GuardError::Table)?;
        Ok(Self { limiter: Arc::new(limiter) })
    }

    /// Whether an address may connect. An allowed attempt is charged.
    ///
    /// The address is used unchanged; [`ClientIp`] truncates a v6 address to its /64, and maps
    /// v4-mapped v6 addresses to v4.
    #[must_use]
    pub fn allow(&self, address: IpAddr) -> bool {
        self.limiter.allow(&address)
    }

    /// [`allow`](Self::allow), with the wait.
    pub fn check(&self, address: IpAddr) -> Decision {
        self.limiter.check(&address)
    }

    /// The number of addresses in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.limiter.len()
    }

    /// Whether the table has no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stops background work, and returns when it has stopped.
    ///
    /// There is none: idle addresses leave as calls arrive. May be called any number of times; the
    /// guard keeps working.
    pub fn close(&self) {
        self.limiter.close();
    }

    /// The guard as a layer. Every request that reaches it counts as an attempt, an upgrade or not:
    /// put it before the routes that upgrade.
    #[must_use]
    pub fn layer(&self, client: ClientIp) -> GuardLayer {
        let decider = Arc::new(GuardDecider { guard: self.clone(), client });
        GuardLayer { decider, options: GateOptions::default() }
    }
}

impl<C> Clone for UpgradeGuard<C> {
    fn clone(&self) -> Self {
        Self { limiter: Arc::clone(&self.limiter) }
    }
}

impl<C> fmt::Debug for UpgradeGuard<C> {
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

struct GuardDecider<C> {
    guard: UpgradeGuard<C>,
    client: ClientIp,
}

impl<C: Clock + Send + Sync + 'static> Decider for GuardDecider<C> {
    fn decide(&self, parts: &mut Parts) -> GateDecision {
        let Some(address) = self.client.address(parts) else {
            tracing::warn!(remote = "unknown", "rate_limited");
            return GateDecision::Now(Err(Box::new(Denial::no_key())));
        };
        let decision = self.guard.check(self.client.counted(address));
        GateDecision::Now(match decision.verdict() {
            Verdict::Allow { .. } => Ok(Admitted::default()),
            Verdict::Deny { wait } => {
                tracing::warn!(remote = address.to_string(), "rate_limited");
                Err(Box::new(Denial {
                    rules: vec!["upgrade-guard".into()],
                    decision: Some(decision),
                    ..Denial::limit_exceeded(reason(wait), wait)
                }))
            }
        })
    }
}

/// The maximum number of addresses with their own bucket: about 40 MiB. Beyond it new addresses
/// share counters that over-count.
const MOST_ADDRESSES: usize = 1 << 20;
