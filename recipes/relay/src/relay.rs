//! The relay: the state that connections share, and its routes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tidegate::{
    Bucket, Limiter,
    clock::{Clock, SystemClock},
};
use tidegate_listen::{PeerId, Permits, Warnings};
use tidegate_tower::{ClientIp, UpgradeGuard};
use tokio::sync::{Semaphore, watch};

use crate::blocks::Blocks;
use crate::builder::{Bounds, BucketLife, RelayBuilder, Times};
use crate::connection;
use crate::origins::AllowedOrigins;
use crate::registry::Registry;

/// A relay of envelopes between clients, with one bucket per connected address.
///
/// Clones are handles of the same relay.
///
/// ```no_run
/// use std::future::pending;
/// use tidegate_listen::{ListenSocket, PermitLimits};
/// use tidegate_relay::{Relay, serve};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let relay = Relay::builder("relay.example").build()?;
/// let socket = ListenSocket::bind("127.0.0.1:8080").await?;
/// serve(socket, PermitLimits::new(10_000), relay.router(), pending()).await;
/// # Ok(())
/// # }
/// ```
pub struct Relay<C = SystemClock> {
    shared: Arc<RelayInner<C>>,
}

/// The state that all connections of a relay share.
pub(crate) struct RelayInner<C> {
    pub(crate) host: Box<str>,
    pub(crate) clock: C,
    pub(crate) limiter: Option<Limiter<str, Bucket, C>>,
    pub(crate) bucket_life: BucketLife,
    /// For connections that are not yet authenticated.
    pub(crate) handshakes: Permits,
    pub(crate) origins: AllowedOrigins,
    pub(crate) blocks: Blocks,
    pub(crate) registry: Registry,
    /// Bytes that may still be queued for all clients.
    pub(crate) queue_room: Arc<Semaphore>,
    pub(crate) times: Times,
    pub(crate) bounds: Bounds,
    /// Becomes true when the relay shuts down. Every connection holds a receiver.
    pub(crate) is_closing: watch::Sender<bool>,
    pub(crate) refusals: Warnings,
}

impl Relay {
    /// A relay with this public host: it is part of its clients' addresses and of what they sign.
    pub fn builder(public_host: impl Into<String>) -> RelayBuilder {
        RelayBuilder::new(public_host.into())
    }
}

impl<C: Clock + Clone + Send + Sync + 'static> Relay<C> {
    pub(crate) fn new(shared: RelayInner<C>) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Both routes: `GET /ws` and `GET /health`.
    pub fn router(&self) -> Router {
        self.ws().merge(self.health())
    }

    /// Both routes, with a guard in front of `/ws`: a reconnect gives a full burst, so reconnects
    /// of an address are limited. `/health` is not limited.
    ///
    /// ```
    /// use tidegate_relay::{Relay, RelayError};
    /// use tidegate_tower::{ClientIp, UpgradeGuard};
    ///
    /// let relay = Relay::builder("relay.example").build()?;
    /// let routes = relay.guarded(&UpgradeGuard::default(), ClientIp::peer());
    /// # Ok::<(), RelayError>(())
    /// ```
    pub fn guarded<G>(&self, guard: &UpgradeGuard<IpAddr, G>, client: ClientIp) -> Router
    where
        G: Clock + Send + Sync + 'static,
    {
        self.ws().route_layer(guard.layer(client)).merge(self.health())
    }

    /// `GET /ws` alone, so that other layers can be added without affecting `/health`.
    pub fn ws(&self) -> Router {
        Router::new().route("/ws", get(upgrade::<C>)).with_state(self.clone())
    }

    /// `GET /health` alone: the numbers of connected clients, buckets and blocks, as JSON.
    pub fn health(&self) -> Router {
        Router::new().route("/health", get(health::<C>)).with_state(self.clone())
    }

    /// The number of authenticated clients.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.registry.len()
    }

    /// The number of addresses with a bucket.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.shared.limiter.as_ref().map_or(0, Limiter::len)
    }

    /// The number of blocks, of all clients.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.shared.blocks.len()
    }

    /// How many blocks were refused since the start: their clients had as many as they may.
    #[must_use]
    pub fn blocks_refused(&self) -> u64 {
        self.shared.blocks.refused()
    }

    /// How many blocks were dropped since the start, to make room for those of clients with fewer.
    #[must_use]
    pub fn blocks_dropped(&self) -> u64 {
        self.shared.blocks.dropped()
    }

    /// Closes all connections (1001) and accepts no more; returns when all are closed.
    ///
    /// A client that does not reply to the close is abandoned after two seconds; one that does not
    /// read is abandoned when its write times out.
    pub async fn close(&self) {
        self.shared.is_closing.send_replace(true);
        self.shared.is_closing.closed().await;
        self.shared.blocks.sync();
    }
}

impl<C> Clone for Relay<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C> fmt::Debug for Relay<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("host", &self.shared.host)
            .field("limiter", &self.shared.limiter)
            .field("connections", &self.shared.registry.len())
            .finish_non_exhaustive()
    }
}

/// Integers only, as existing monitors of such relays expect.
async fn health<C: Clock + Clone + Send + Sync + 'static>(relay: State<Relay<C>>) -> Response {
    let counts = [
        ("blocks", relay.blocks() as u64),
        ("blocks_dropped", relay.blocks_dropped()),
        ("blocks_refused", relay.blocks_refused()),
        ("buckets", relay.buckets() as u64),
        ("connections", relay.connections() as u64),
    ];
    Json(BTreeMap::from(counts)).into_response()
}

/// Upgrades a request, if the number of unauthenticated connections allows it.
async fn upgrade<C: Clock + Clone + Send + Sync + 'static>(
    State(relay): State<Relay<C>>,
    extensions: Extensions,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let shared = relay.shared;
    // Subscribed before the check: closing the relay waits for this receiver.
    let closing = ShutdownSignal(shared.is_closing.subscribe());
    if closing.has_begun() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the relay is going away\n").into_response();
    }
    if !shared.origins.allow(&headers, &shared.host) {
        let text = "this web page may not connect: its origin is not allowed\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let peer = extensions.get::<PeerId>().copied();
    // Without the accept loop all peers are one.
    let counted = peer.unwrap_or_else(|| PeerId::Address(([0, 0, 0, 0], 0).into()));
    let Ok(permit) = shared.handshakes.take(counted) else {
        if let Some(left_out) = shared.refusals.next() {
            tracing::warn!(left_out, "connection refused: too many are not authenticated");
        }
        let text = "too many connections in progress; try again\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], text).into_response();
    };
    upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_WRITE_BUFFER_BYTES)
        .on_upgrade(move |socket| {
            connection::run(shared, socket, permit, ConnectionInfo { peer, closing })
        })
}

/// The facts about a connection at its start.
pub(crate) struct ConnectionInfo {
    pub(crate) peer: Option<PeerId>,
    pub(crate) closing: ShutdownSignal,
}

/// Signals that the relay shuts down. The relay waits until all of these are dropped.
pub(crate) struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the relay shuts down.
    pub(crate) async fn begins(&mut self) {
        // An error would mean that the relay is gone.
        let _ = self.0.wait_for(|is_closing| *is_closing).await;
    }
}

/// The maximum size of a message on a socket; a larger one ends the connection.
pub(crate) const MAX_MESSAGE_BYTES: usize = 131_072;

/// The read buffer of a connection.
const READ_BUFFER_BYTES: usize = 4_096;

/// The maximum size of a socket's write buffer: the largest message and many pongs. A client that
/// sends pings and never reads would otherwise fill memory with pongs.
const MAX_WRITE_BUFFER_BYTES: usize = 262_144;
