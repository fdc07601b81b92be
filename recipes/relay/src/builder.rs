//! The builder of a relay.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::policy::Network;
use tidegate::{
    Bucket, Limiter,
    clock::{Clock, SystemClock},
};
use tidegate_listen::{Connections, PermitLimits, Warnings};
use tokio::sync::{Semaphore, watch};

use crate::blocks::{BlockBounds, Blocks, BlocksError};
use crate::origins::AllowedOrigins;
use crate::outbox::OutboxBounds;
use crate::registry::Registry;
use crate::relay::{Relay, RelayInner};

/// Builds a [`Relay`]. Every setting has a default.
///
/// ```
/// use tidegate::clock::ManualClock;
/// use tidegate::Bucket;
/// use tidegate_relay::Relay;
///
/// let relay = Relay::builder("relay.example")
///     .limit(Some(Bucket::per_second(1).burst(10)))
///     .clock(ManualClock::default())
///     .build()?;
/// assert_eq!(relay.connections(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct RelayBuilder<C = SystemClock> {
    host: String,
    limit: Option<Bucket>,
    clock: C,
    times: Times,
    bounds: Bounds,
    access: Access,
}

/// Who may connect, and what outlives a connection.
#[derive(Clone, Debug, Default)]
struct Access {
    bucket_life: BucketLife,
    origins: AllowedOrigins,
    folder: Option<PathBuf>,
    proxies: Vec<Network>,
}

/// How long the bucket of an address is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BucketLife {
    /// Until its client disconnects: coming back gives a full burst.
    #[default]
    Connection,
    /// Over reconnects of the authenticated address.
    Identity,
}

/// Time-outs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) authenticate_within: Duration,
    pub(crate) ping_every: Duration,
    pub(crate) pong_within: Duration,
    pub(crate) write_within: Duration,
}

/// Maximum numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) connections: usize,
    pub(crate) handshakes: usize,
    pub(crate) queue: OutboxBounds,
    /// Bytes in all queues.
    pub(crate) queued_bytes: usize,
}

/// Why a relay cannot be built.
#[non_exhaustive]
pub enum RelayError {
    /// The public host cannot be a part of addresses.
    Host {
        /// The given host.
        given: String,
    },
    /// A bound or a time is zero or too large.
    OutOfRange {
        /// The name of the setting.
        setting: &'static str,
    },
    /// The blocks in the folder cannot be used.
    Blocks(BlocksError),
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { given } => write!(f, "{given:?} is not a host: {HOST_RULE}"),
            Self::OutOfRange { setting } => write!(f, "{setting} is zero or too large"),
            Self::Blocks(error) => error.fmt(f),
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for RelayError {}

impl RelayBuilder {
    pub(crate) fn new(host: String) -> Self {
        Self {
            host,
            limit: Some(default_limit()),
            clock: SystemClock::new(),
            times: Times {
                authenticate_within: Duration::from_secs(10),
                ping_every: Duration::from_secs(25),
                pong_within: Duration::from_secs(7),
                write_within: Duration::from_secs(10),
            },
            bounds: Bounds {
                connections: 10_000,
                handshakes: 1_000,
                queue: OutboxBounds { messages: 256, bytes: 1 << 20 },
                queued_bytes: 256 << 20,
            },
            access: Access::default(),
        }
    }
}

impl<C> RelayBuilder<C> {
    /// The bucket of every connection; `None` is a relay without a limiter. The default is one
    /// message per second with a burst of 10.
    pub fn limit(mut self, limit: Option<Bucket>) -> Self {
        self.limit = limit;
        self
    }

    /// The clock of limits, challenges and envelopes.
    ///
    /// Socket time-outs use the runtime's clock.
    pub fn clock<D>(self, clock: D) -> RelayBuilder<D> {
        let Self { host, limit, clock: _, times, bounds, access } = self;
        RelayBuilder { host, limit, clock, times, bounds, access }
    }

    /// The time that a client has to authenticate, 10 s by default.
    pub fn authenticate_within(mut self, time: Duration) -> Self {
        self.times.authenticate_within = time;
        self
    }

    /// The interval of pings and the time to wait for a pong; 25 s and 7 s by default.
    pub fn ping(mut self, every: Duration, pong_within: Duration) -> Self {
        self.times.ping_every = every;
        self.times.pong_within = pong_within;
        self
    }

    /// The time that a client has to read one message, 10 s by default. A slower client is
    /// disconnected.
    pub fn write_within(mut self, time: Duration) -> Self {
        self.times.write_within = time;
        self
    }

    /// The maximum number of concurrent clients, 10 000 by default.
    pub fn max_connections(mut self, most: usize) -> Self {
        self.bounds.connections = most;
        self
    }

    /// The maximum number of connections that are not yet authenticated, 1 000 by default.
    pub fn max_handshakes(mut self, most: usize) -> Self {
        self.bounds.handshakes = most;
        self
    }

    /// The maximum that is queued for one slow client, 256 messages and 1 MiB by default. Messages
    /// beyond that are dropped.
    pub fn queue(mut self, messages: usize, bytes: usize) -> Self {
        self.bounds.queue = OutboxBounds { messages, bytes };
        self
    }

    /// How long buckets are kept, until their clients disconnect by default.
    pub fn bucket_life(mut self, bucket_life: BucketLife) -> Self {
        self.access.bucket_life = bucket_life;
        self
    }

    /// Web pages that may connect, besides those of the relay's own host; none by default.
    pub fn allowed_origins(mut self, origins: AllowedOrigins) -> Self {
        self.access.origins = origins;
        self
    }

    /// Keeps blocks in a folder, so that they survive the process. By default they are in memory.
    pub fn folder(mut self, folder: Option<PathBuf>) -> Self {
        self.access.folder = folder;
        self
    }

    /// Networks of proxies: each stands for many clients, so it has no share of handshakes.
    pub fn proxies(mut self, proxies: impl IntoIterator<Item = Network>) -> Self {
        self.access.proxies = proxies.into_iter().collect();
        self
    }

    fn checked(&self) -> Result<(), RelayError> {
        if !is_host(&self.host) {
            return Err(RelayError::Host { given: self.host.clone() });
        }
        let (times, bounds) = (&self.times, &self.bounds);
        let bounds = [
            ("max_connections", bounds.connections),
            ("max_handshakes", bounds.handshakes),
            ("queue", bounds.queue.messages),
            ("queue", bounds.queue.bytes),
        ];
        let times = [
            ("authenticate_within", times.authenticate_within),
            ("ping", times.ping_every),
            ("ping", times.pong_within),
            ("write_within", times.write_within),
        ];
        let bad_bound = bounds.iter().find(|(_, count)| !(1..=MOST).contains(count));
        let bad_time = times.iter().find(|(_, time)| time.is_zero() || *time > LONGEST);
        match bad_bound.map(|bad| bad.0).or(bad_time.map(|bad| bad.0)) {
            Some(setting) => Err(RelayError::OutOfRange { setting }),
            None => Ok(()),
        }
    }
}

impl<C: Clock + Clone + Send + Sync + 'static> RelayBuilder<C> {
    /// The relay, or the setting that is invalid.
    pub fn build(self) -> Result<Relay<C>, RelayError> {
        self.checked()?;
        let most = BlockBounds { per_client: MOST_BLOCKS_PER_CLIENT, total: MOST_BLOCKS };
        let blocks = match &self.access.folder {
            Some(folder) => Blocks::in_folder(folder, most).map_err(RelayError::Blocks)?,
            None => Blocks::in_memory(most),
        };
        // An address gets a quarter; the one that has waited longest makes room.
        let limits =
            PermitLimits::new(self.bounds.handshakes as u64).shared_by(self.access.proxies);
        let handshakes = Connections::default().listener("handshakes", limits);
        let limiter = self.limit.map(|limit| {
            let builder = Limiter::builder(limit).clock(self.clock.clone());
            builder.build().expect("the defaults of a limiter are valid")
        });
        Ok(Relay::new(RelayInner {
            host: self.host.into(),
            clock: self.clock,
            limiter,
            bucket_life: self.access.bucket_life,
            handshakes,
            origins: self.access.origins,
            blocks,
            registry: Registry::new(self.bounds.connections),
            queue_room: Arc::new(Semaphore::new(self.bounds.queued_bytes)),
            times: self.times,
            bounds: self.bounds,
            is_closing: watch::Sender::new(false),
            refusals: Warnings::new(),
        }))
    }
}

/// One message per second, ten at once.
fn default_limit() -> Bucket {
    Bucket::per_second(1).burst(10)
}

/// Whether a text can be the host part of an address.
pub(crate) fn is_host(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"@/\\\"'<>?#".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// The rule of [`is_host`], as text.
pub(crate) const HOST_RULE: &str =
    "expected a name such as relay.example or relay.example:8080, without scheme and path";

/// The largest bound that is useful on any machine.
const MOST: usize = 1 << 28;

/// The longest time-out that is useful.
const LONGEST: Duration = Duration::from_secs(86_400);

/// How many senders one client can block, and all clients together.
const MOST_BLOCKS_PER_CLIENT: usize = 1_000;
const MOST_BLOCKS: usize = 1_000_000;

/// The time that closing a connection may take.
pub(crate) const MAX_CLOSE_TIME: Duration = Duration::from_secs(2);
