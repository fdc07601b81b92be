//! The accept loop of all listeners, and the permits of connections.

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

/// A protocol that serves connections.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// Serves the connection until the peer closes it or shutdown begins.
    ///
    /// At [`shutdown`](Connection::shutdown), requests that have begun are finished, and no others
    /// are started.
    fn serve(&self, connection: Connection) -> impl Future<Output = ()> + Send;
}

/// A connection with its permit.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) io: PeerStream,
    pub(crate) peer: PeerId,
    pub(crate) shutdown: ShutdownSignal,
    /// Returned when it is dropped, with the connection.
    pub(crate) permit: Permit,
}

/// The right to be connected, counted in the metrics.
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

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PeerId {
    /// A peer at an address.
    Address(SocketAddr),
    /// A local process, with the credentials that the kernel reports.
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

/// Signals that the daemon stops.
#[derive(Clone, Debug)]
pub(crate) struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Waits until the daemon stops.
    pub(crate) async fn wanted(&mut self) {
        // The sender outlives all receivers that matter.
        let _ = self.0.wait_for(|is_stopping| *is_stopping).await;
    }

    /// Whether the daemon is stopping.
    pub(crate) fn is_wanted(&self) -> bool {
        *self.0.borrow()
    }
}

/// Sends the shutdown signal, and waits until all receivers are dropped.
#[derive(Debug)]
pub(crate) struct ShutdownTrigger(watch::Sender<bool>);

impl ShutdownTrigger {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn shutdown(&self) -> ShutdownSignal {
        ShutdownSignal(self.0.subscribe())
    }

    /// Signals shutdown, and waits at most this long until all receivers are dropped. True if they
    /// are.
    pub(crate) async fn stop(&self, grace: Duration) -> bool {
        self.0.send_replace(true);
        tokio::time::timeout(grace, self.0.closed()).await.is_ok()
    }
}

/// The socket of a listener.
#[derive(Debug)]
pub(crate) enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The byte stream of a connection.
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
                // Responses are small and written whole: waiting for more data gains nothing.
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

/// Accepts connections until the daemon stops. No error ends the loop.
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
                    // Out of descriptors or memory: connections that close free some.
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

/// Whether the error concerns only the connection that was to be accepted.
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
                .expect("`peer` is a valid attribute"),
            Rule::new("all", slots(bounds.connections)),
            Rule::new("admins", slots(bounds.admin_connections)).domain(ADMIN),
            Rule::new("admin", slots(bounds.admin_connections.div_ceil(2)))
                .domain(ADMIN)
                .key(["peer"])
                .expect("`peer` is a valid attribute"),
            Rule::new("users", slots(bounds.local_connections)).domain(LOCAL),
            Rule::new("user", slots(bounds.local_connections.div_ceil(2)))
                .domain(LOCAL)
                .key(["peer"])
                .expect("`peer` is a valid attribute"),
            Rule::new(
                "warnings",
                Limit::Cooldown(Cooldown::new(WARN_EVERY).expect("the cooldown is not zero")),
            )
            .domain(WARNINGS),
        ];
        Self { engine: Engine::new(Policy::new(rules).expect("the rules are valid")) }
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

    /// Warns of refused connections, at most once per [`WARN_EVERY`].
    async fn warn(&self, listener: Listener, peer: &str) {
        if self.may_warn().await {
            tracing::warn!(%listener, peer, "connections refused: too many");
        }
    }

    async fn may_warn(&self) -> bool {
        let may = self.engine.check(&Request::new(WARNINGS, &[])).await;
        may.is_ok_and(|report| report.is_allowed())
    }
}

/// The address under which a peer is counted: of IPv6 the /64 network, which one peer usually has
/// whole.
fn one_peer(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let network = ip.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        ip => ip,
    }
}

/// What the accept loop of a listener needs: its name, the daemon and the permits.
#[derive(Debug)]
pub(crate) struct AcceptContext {
    pub(crate) listener: Listener,
    pub(crate) daemon: SharedDaemon,
    pub(crate) limits: ConnectionLimits,
}

impl AcceptContext {
    /// A permit for the peer, or `None` if there is none left.
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

/// The domain of permits that are reserved for admins.
const ADMIN: &str = "admin";

/// The domain of permits for the local socket, which admins use too.
const LOCAL: &str = "local";

/// The domain of warnings about refused connections.
const WARNINGS: &str = "warnings";
const WARN_EVERY: Duration = Duration::from_secs(1);

/// A task returns its permit however it ends, so permits need no expiry.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The pause after an error that does not concern one connection alone.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
