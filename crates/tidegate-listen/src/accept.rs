//! The accept loop.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::peer::PeerId;
use crate::permits::{Permit, Permits, Refusal};
use crate::shutdown::{ShutdownSignal, ShutdownTrigger};
use crate::socket::{Accept, BACKLOG, PeerStream};
use crate::warnings::Warnings;

/// A protocol that serves connections.
pub trait Protocol<I = PeerStream>: Send + Sync + 'static {
    /// Serves the connection until the peer closes it or shutdown begins.
    ///
    /// At [`shutdown`](Connection::shutdown), requests that have begun are finished, and no others
    /// are started. If the connection has to make room for others, this future is dropped.
    fn serve(&self, connection: Connection<I>) -> impl Future<Output = ()> + Send;

    /// Handles a connection that got no permit, but one of the reserve. By default it is closed.
    fn refuse(&self, connection: Connection<I>, why: Refusal) -> impl Future<Output = ()> + Send {
        let _ = why;
        drop(connection);
        async {}
    }
}

/// A connection with its permit.
#[derive(Debug)]
#[non_exhaustive]
pub struct Connection<I = PeerStream> {
    /// The byte stream.
    pub io: I,
    /// The other end.
    pub peer: PeerId,
    /// Signals that the process stops. Shutdown waits until it is dropped.
    pub shutdown: ShutdownSignal,
    /// Returned when it is dropped, with the connection.
    pub permit: Arc<Permit>,
    /// The certificate of the client, if there is TLS and it has been verified.
    #[cfg(feature = "tls")]
    pub certificate: Option<Arc<crate::certificate::ClientCertificate>>,
}

/// Accepts connections until the process stops. No error ends the loop.
///
/// A connection without a permit gets one of the reserve and is [refused](Protocol::refuse); if
/// that has none either, it is closed. Connections that have arrived when the process stops are
/// served.
pub async fn accept<A: Accept>(
    mut source: A,
    permits: Permits,
    protocol: impl Protocol<A::Io>,
    mut shutdown: ShutdownSignal,
) {
    let accepting = Accepting {
        protocol: Arc::new(protocol),
        shutdown: shutdown.clone(),
        refusals: Warnings::new(),
        failures: Warnings::new(),
        permits,
    };
    loop {
        let accepted = tokio::select! {
            accepted = source.accept() => accepted,
            () = shutdown.wanted() => break,
        };
        match accepted {
            Ok((io, peer)) => accepting.begin(io, peer),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                accepting.warn_of_failure(&error);
                // Out of descriptors or memory: connections that close free some.
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
    accepting.drain(&mut source).await;
    // Before the signal, for which shutdown waits: no socket is open after it.
    drop(source);
}

/// Accepts connections until `stop` is ready, then waits at most `grace` until those that are open
/// have ended. True if they have.
pub async fn serve<A: Accept>(
    source: A,
    permits: Permits,
    protocol: impl Protocol<A::Io>,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> bool {
    let trigger = ShutdownTrigger::new();
    let accepting = tokio::spawn(accept(source, permits, protocol, trigger.signal()));
    stop.await;
    let is_stopped = trigger.stop(grace).await;
    if !is_stopped {
        tracing::warn!("stopped with connections open");
        accepting.abort();
    }
    is_stopped
}

/// What an accept loop needs.
struct Accepting<P> {
    protocol: Arc<P>,
    permits: Permits,
    shutdown: ShutdownSignal,
    refusals: Warnings,
    failures: Warnings,
}

impl<P> Accepting<P> {
    /// Serves the connections that had arrived when the process began to stop: first those that the
    /// system has, then those that the runtime notices in time.
    async fn drain<A: Accept>(&self, source: &mut A)
    where
        P: Protocol<A::Io>,
    {
        for _ in 0..BACKLOG {
            match source.accept_arrived() {
                Ok(Some((io, peer))) => self.begin(io, peer),
                Err(error) if is_of_one_connection(&error) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let draining = async {
            for _ in 0..BACKLOG {
                // The runtime learns of them a little later than they arrive.
                match tokio::time::timeout(ARRIVAL_TIME, source.accept()).await {
                    Ok(Ok((io, peer))) => self.begin(io, peer),
                    Ok(Err(error)) if is_of_one_connection(&error) => {}
                    Ok(Err(error)) => {
                        self.warn_of_failure(&error);
                        tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                    }
                    Err(_) => break,
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIME, draining).await;
    }

    /// Serves or refuses a connection, in its own task.
    fn begin<I: Send + 'static>(&self, io: I, peer: PeerId)
    where
        P: Protocol<I>,
    {
        let (permit, refusal) = match self.permits.take(peer) {
            Ok(permit) => (permit, None),
            Err(refusal) => {
                self.warn_of_refusal(peer, refusal);
                let Ok(permit) = self.permits.take_reserve(peer) else { return };
                (permit, Some(refusal))
            }
        };
        let permit = Arc::new(permit);
        let state = Arc::clone(permit.state());
        let connection = Connection {
            io,
            peer,
            shutdown: self.shutdown.clone(),
            permit,
            #[cfg(feature = "tls")]
            certificate: None,
        };
        let (protocol, shutdown) = (Arc::clone(&self.protocol), self.shutdown.clone());
        tokio::spawn(async move {
            let served = async {
                match refusal {
                    None => protocol.serve(connection).await,
                    Some(why) => protocol.refuse(connection, why).await,
                }
            };
            tokio::select! {
                () = served => {}
                () = state.closing() => {}
            }
            // Calls of the connection may run in tasks of their own.
            state.close();
            // Shutdown waits for the signal's receivers, and after it the protocol is not in use.
            drop(protocol);
            drop(shutdown);
        });
    }

    fn warn_of_refusal(&self, peer: PeerId, refusal: Refusal) {
        if let Some(left_out) = self.refusals.next() {
            let (listener, refused) = (self.permits.name(), self.permits.counts().refused);
            tracing::warn!(listener, %peer, refused, left_out, "connection refused: {refusal}");
        }
    }

    fn warn_of_failure(&self, error: &io::Error) {
        if let Some(left_out) = self.failures.next() {
            let listener = self.permits.name();
            tracing::error!(listener, %error, left_out, "cannot accept connections");
        }
    }
}

/// Whether an error of accepting concerns only the connection that was to be accepted, so that the
/// next one can be accepted at once.
#[must_use]
pub fn is_of_one_connection(error: &io::Error) -> bool {
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

/// The pause after an error that does not concern one connection alone.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long what has arrived may take to be seen when the process stops.
pub(crate) const ARRIVAL_TIME: Duration = Duration::from_millis(20);
/// The most time for all connections that had arrived.
const DRAIN_TIME: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
