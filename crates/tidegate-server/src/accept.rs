//! The one accept loop that all protocols plug into.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate::policy::{Limit, Policy, Rule, Slots};
use tidegate::{Cooldown, Engine, Lease, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

use crate::daemon::SharedDaemon;
use crate::listener::Listener;
use crate::settings::Bounds;

/// Serves connections of one kind.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// Talks to somebody until they go, or are told to.
    ///
    /// When [`stopping`](Connection::stopping) says so, what has begun is brought to its end, and
    /// nothing else is begun.
    fn serve(&self, connection: Connection) -> impl Future<Output = ()> + Send;
}

/// Somebody who has connected, and has a place.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) io: PeerStream,
    pub(crate) peer: PeerId,
    pub(crate) shutdown: ShutdownSignal,
    /// Given back when it is dropped, with the connection.
    pub(crate) permit: Permit,
}

/// A place that is taken, and counted.
#[derive(Debug)]
pub(crate) struct Permit {
    listener: Listener,
    daemon: SharedDaemon,
    _lease: Lease,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.daemon.metrics.listener(self.listener).closed.add(1);
    }
}

/// Who has connected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PeerId {
    /// Somebody at an address.
    Address(SocketAddr),
    /// A process of this machine, as the kernel knows it.
    Process(UCred),
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Process(process) => write!(f, "user {}", process.uid()),
        }
    }
}

/// Tells when the daemon stops.
#[derive(Clone, Debug)]
pub(crate) struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Waits until the daemon stops.
    pub(crate) async fn wanted(&mut self) {
        // The sender lives for as long as anybody can be told.
        let _ = self.0.wait_for(|is_stopping| *is_stopping).await;
    }

    /// Whether the daemon stops.
    pub(crate) fn is_wanted(&self) -> bool {
        *self.0.borrow()
    }
}

/// Tells everybody that the daemon stops, and when all have gone.
#[derive(Debug)]
pub(crate) struct ShutdownTrigger(watch::Sender<bool>);

impl ShutdownTrigger {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn shutdown(&self) -> ShutdownSignal {
        ShutdownSignal(self.0.subscribe())
    }

    /// Tells everybody, and waits until all have gone, but no longer than this. True if they have.
    pub(crate) async fn stop(&self, grace: Duration) -> bool {
        self.0.send_replace(true);
        tokio::time::timeout(grace, self.0.closed()).await.is_ok()
    }
}

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What a connection is made of.
#[derive(Debug)]
pub(crate) enum PeerStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ListenSocket {
    async fn accept(&self) -> io::Result<(PeerStream, PeerId)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are small and whole: nothing is gained by waiting for more of them.
                stream.set_nodelay(true)?;
                Ok((PeerStream::Tcp(stream), PeerId::Address(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let process = stream.peer_cred()?;
                Ok((PeerStream::Unix(stream), PeerId::Process(process)))
            }
        }
    }
}

/// Accepts until the daemon stops. No error ends it: it tries again.
pub(crate) async fn accept(
    context: AcceptContext,
    socket: ListenSocket,
    protocol: impl Protocol,
    mut shutdown: ShutdownSignal,
) {
    let protocol = Arc::new(protocol);
    let listener = context.listener;
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = shutdown.wanted() => return,
        };
        let (io, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_of_one_connection(&error) {
                    if context.limits.may_warn().await {
                        tracing::error!(%listener, %error, "cannot accept connections");
                    }
                    // Descriptors or memory have run out: those who leave give some back.
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                }
                continue;
            }
        };
        let Some(permit) = context.take_permit(peer).await else { continue };
        let connection = Connection { io, peer, shutdown: shutdown.clone(), permit };
        let protocol = Arc::clone(&protocol);
        tokio::spawn(async move { protocol.serve(connection).await });
    }
}

/// Whether only the connection that was to be accepted has gone wrong.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NotConnected
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Interrupted
    )
}

/// The permits for connections: a bound in total and per peer; some are reserved for admins.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    engine: Engine,
}

impl ConnectionLimits {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let slots = |max| Limit::Slots(Slots::new(max).queue(0).expires(FOR_EVER));
        let rules = [
            Rule::new("peer", slots(bounds.connections_per_peer))
                .key(["peer"])
                .expect("a peer is an attribute"),
            Rule::new("all", slots(bounds.connections)),
            Rule::new("admins", slots(bounds.admin_connections)).domain(ADMIN),
            Rule::new("admin", slots(bounds.admin_connections.div_ceil(2)))
                .domain(ADMIN)
                .key(["peer"])
                .expect("a peer is an attribute"),
            Rule::new("users", slots(bounds.local_connections)).domain(LOCAL),
            Rule::new("user", slots(bounds.local_connections.div_ceil(2)))
                .domain(LOCAL)
                .key(["peer"])
                .expect("a peer is an attribute"),
            Rule::new("warnings", Limit::Cooldown(Cooldown::new(WARN_EVERY).expect("it is not 0")))
                .domain(WARNINGS),
        ];
        Self { engine: Engine::new(Policy::new(rules).expect("these rules are in order")) }
    }

    async fn take(&self, listener: Listener, peer: PeerId) -> Option<Lease> {
        let name = match peer {
            PeerId::Address(address) => one_peer(address.ip()).to_string(),
            PeerId::Process(process) => format!("user {}", process.uid()),
        };
        let attributes = [("peer", name.as_str())];
        let domain = match listener {
            Listener::Admin => ADMIN,
            Listener::Unix => LOCAL,
            Listener::Http | Listener::Grpc | Listener::Resp => Rule::DEFAULT_DOMAIN,
        };
        let request = Request::new(domain, &attributes);
        let permit = self.engine.acquire(&request, Some(Duration::ZERO)).await.ok();
        if permit.is_none() {
            self.warn(listener, &name).await;
        }
        permit
    }

    /// Says so, but not more often than anybody reads.
    async fn warn(&self, listener: Listener, peer: &str) {
        if self.may_warn().await {
            tracing::warn!(%listener, peer, "refused connections: there are too many");
        }
    }

    async fn may_warn(&self) -> bool {
        let may = self.engine.check(&Request::new(WARNINGS, &[])).await;
        may.is_ok_and(|report| report.is_allowed())
    }
}

/// The address under which somebody is counted: who has one address of IPv6 has a whole network of them.
fn one_peer(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let network = ip.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        ip => ip,
    }
}

/// What is behind a door: places, and somebody who counts.
#[derive(Debug)]
pub(crate) struct AcceptContext {
    pub(crate) listener: Listener,
    pub(crate) daemon: SharedDaemon,
    pub(crate) limits: ConnectionLimits,
}

impl AcceptContext {
    /// A place for somebody, or `None` if there is none for them.
    async fn take_permit(&self, peer: PeerId) -> Option<Permit> {
        let metrics = self.daemon.metrics.listener(self.listener);
        let Some(lease) = self.limits.take(self.listener, peer).await else {
            metrics.refused.add(1);
            return None;
        };
        metrics.accepted.add(1);
        Some(Permit { listener: self.listener, daemon: Arc::clone(&self.daemon), _lease: lease })
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }
}

/// The domain of places that are kept for admins.
const ADMIN: &str = "admin";

/// The domain of places for users of this machine, who are how admins come.
const LOCAL: &str = "local";

/// The domain of warnings about connections that were refused.
const WARNINGS: &str = "warnings";
const WARN_EVERY: Duration = Duration::from_secs(1);

/// A task that ends gives its place back, however it ends, so none has to come back by itself.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long to wait after an error that has nothing to do with one connection.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
