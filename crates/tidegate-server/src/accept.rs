//! The accept loop of all listeners.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate::{Cooldown, Limiter};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

use crate::connections::Permit;
use crate::daemon::SharedDaemon;
use crate::listener::Listener;

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
    pub(crate) permit: Arc<Permit>,
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
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = shutdown.wanted() => return,
        };
        let (io, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_of_one_connection(&error) {
                    if context.may_warn() {
                        let listener = context.listener.name();
                        tracing::error!(listener, %error, "cannot accept connections");
                    }
                    // Out of descriptors or memory: connections that close free some.
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                }
                continue;
            }
        };
        let Some(permit) = context.take_permit(peer) else { continue };
        let state = Arc::clone(permit.state());
        let connection = Connection { io, peer, shutdown: shutdown.clone(), permit };
        let protocol = Arc::clone(&protocol);
        tokio::spawn(async move {
            tokio::select! {
                () = protocol.serve(connection) => {}
                () = state.closing() => {}
            }
            // Calls of the connection may run in tasks of their own.
            state.close();
        });
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

/// What the accept loop of a listener needs.
#[derive(Debug)]
pub(crate) struct AcceptContext {
    pub(crate) listener: Listener,
    pub(crate) daemon: SharedDaemon,
    /// Limits the warnings.
    warnings: Limiter<str, Cooldown>,
}

impl AcceptContext {
    pub(crate) fn new(listener: Listener, daemon: SharedDaemon) -> Self {
        let warnings = Limiter::new(Cooldown::new(WARN_EVERY).expect("the cooldown is not zero"));
        Self { listener, daemon, warnings }
    }

    /// A permit for the peer, or `None` if there is none left.
    fn take_permit(&self, peer: PeerId) -> Option<Arc<Permit>> {
        let permit = Permit::take(&self.daemon, self.listener, peer.into());
        if permit.is_none() && self.may_warn() {
            let refused = self.daemon.metrics.listener(self.listener).refused.get();
            let listener = self.listener.name();
            tracing::warn!(listener, %peer, refused, "connections refused: too many");
        }
        permit.map(Arc::new)
    }

    fn may_warn(&self) -> bool {
        self.warnings.check("").is_allowed()
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

/// How often a listener warns.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// The pause after an error that does not concern one connection alone.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
