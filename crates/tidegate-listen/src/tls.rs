//! TLS for any [`Protocol`]: [`TlsProtocol`] does the handshake, then the protocol serves the
//! connection as it does without TLS.
//!
//! The handshake is bounded in time, all of them in number and in the bytes that they hold, and they
//! take processor time only where requests leave some: see [`Handshakes`].

use std::io;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::{HandshakeKind, ServerConnection};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::accept::{Connection, Protocol};
pub use crate::certificate::ClientCertificate;
use crate::linger::linger;
use crate::peer::PeerId;
use crate::permits::{Permit, Refusal};
use crate::socket::PeerStream;
pub use crate::tls_stream::TlsStream;
use crate::tls_stream::{RawStream, UNSENT_BYTES_MAX};
use crate::warnings::Warnings;
pub use config::{TlsConfig, TlsConfigError, TlsPem};
pub use handshakes::Handshakes;
pub use outcome::HandshakeOutcome;
pub use plain::PlainProtocol;

use outcome::HandshakeCounts;

mod config;
mod handshakes;
mod outcome;
mod plain;

/// The TLS of one listener: its configuration, which can be replaced, and how its handshakes ended.
#[derive(Debug)]
pub struct TlsListener {
    name: &'static str,
    time: Duration,
    config: RwLock<Arc<TlsConfig>>,
    counts: HandshakeCounts,
    /// Of certificates, of plain text, and of all else: one does not hide the other.
    warnings: [Warnings; 3],
}

impl TlsListener {
    /// The TLS of a listener. The name is for logs; a handshake may take `time`.
    #[must_use]
    pub fn new(name: &'static str, time: Duration, config: TlsConfig) -> Self {
        let config = RwLock::new(Arc::new(config));
        let (counts, warnings) = (HandshakeCounts::default(), Default::default());
        Self { name, time, config, counts, warnings }
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<TlsConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another configuration into force, for all handshakes that begin from now on. Open
    /// connections stay as they are.
    pub fn replace(&self, config: TlsConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// How many handshakes ended in this way.
    #[must_use]
    pub fn count(&self, outcome: HandshakeOutcome) -> u64 {
        self.counts.of(outcome)
    }

    fn count_and_log(&self, peer: PeerId, outcome: HandshakeOutcome, error: Option<&io::Error>) {
        self.counts.add(outcome);
        let (listener, reason) = (self.name, outcome.name());
        let error = error.map(tracing::field::display);
        if matches!(outcome, HandshakeOutcome::Complete | HandshakeOutcome::Closed) {
            tracing::debug!(listener, %peer, reason, error, "{}", outcome.message());
        } else if let Some(left_out) = self.warnings[outcome.kind() as usize].next() {
            tracing::warn!(listener, %peer, reason, error, left_out, "{}", outcome.message());
        }
    }
}

/// A protocol over TLS: does the handshake, and then serves the connection with the protocol.
///
/// Clients that send plain text get the response of [`plain_text`](Self::plain_text). Connections
/// that are not over TCP are closed.
#[derive(Debug)]
pub struct TlsProtocol<P> {
    inner: P,
    listener: Arc<TlsListener>,
    handshakes: Handshakes,
    plain_text: PlainTextResponse,
}

/// The response to the first bytes of a client that does not use TLS.
pub type PlainTextResponse = fn(&[u8]) -> &'static [u8];

/// A connection without TLS.
struct Failure {
    outcome: HandshakeOutcome,
    error: Option<io::Error>,
    /// The stream, if the client should read what was sent to it.
    lingering: Option<TcpStream>,
}

impl From<HandshakeOutcome> for Failure {
    fn from(outcome: HandshakeOutcome) -> Self {
        Self { outcome, error: None, lingering: None }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { outcome: HandshakeOutcome::of(&error), error: Some(error), lingering: None }
    }
}

/// A connection with TLS, and the certificate of its client.
type Secured = (TlsStream, Option<ClientCertificate>);

impl<P> TlsProtocol<P> {
    /// The protocol over TLS.
    #[must_use]
    pub fn new(inner: P, listener: Arc<TlsListener>, handshakes: Handshakes) -> Self {
        Self { inner, listener, handshakes, plain_text: |_| b"" }
    }

    /// Sets the response to clients that send plain text, by the first bytes of it. By default such
    /// connections are closed.
    #[must_use]
    pub fn plain_text(self, response: PlainTextResponse) -> Self {
        Self { plain_text: response, ..self }
    }

    /// The connection with TLS; `None` if there was none.
    async fn secure(&self, connection: Connection) -> Option<Connection> {
        let Connection { io, peer, mut shutdown, permit, .. } = connection;
        let PeerStream::Tcp(tcp) = io else { return None };
        // If the connection has to make room, its task is dropped, and this with it.
        let mut unfinished = Unfinished { listener: &self.listener, peer, is_finished: false };
        let result = {
            let mut handshake = pin!(timeout(self.listener.time, self.handshake(tcp, &permit)));
            tokio::select! {
                biased;
                result = &mut handshake => result,
                () = shutdown.wanted() => {
                    timeout(SHUTDOWN_TIME, handshake).await.unwrap_or_else(Err)
                }
            }
        };
        unfinished.is_finished = true;
        match result.unwrap_or(Err(HandshakeOutcome::TimedOut.into())) {
            Ok((tls, certificate)) => {
                self.listener.count_and_log(peer, HandshakeOutcome::Complete, None);
                let (io, certificate) = (PeerStream::Tls(Box::new(tls)), certificate.map(Arc::new));
                Some(Connection { io, peer, shutdown, permit, certificate })
            }
            Err(Failure { outcome, error, lingering }) => {
                self.listener.count_and_log(peer, outcome, error.as_ref());
                if let Some(tcp) = lingering {
                    linger(tcp).await;
                }
                None
            }
        }
    }

    async fn handshake(
        &self,
        mut tcp: TcpStream,
        permit: &Arc<Permit>,
    ) -> Result<Secured, Failure> {
        let mut first = [0; FIRST_BYTES];
        let count = tcp.peek(&mut first).await?;
        match &first[..count] {
            [] => return Err(HandshakeOutcome::Closed.into()),
            [HANDSHAKE_RECORD, ..] => {}
            first => {
                let response = (self.plain_text)(first);
                let is_sent = !response.is_empty() && tcp.write_all(response).await.is_ok();
                let lingering = is_sent.then_some(tcp);
                return Err(Failure { lingering, ..HandshakeOutcome::PlainText.into() });
            }
        }
        let raw = RawStream::new(tcp, Arc::clone(permit));
        let accepted = self.handshakes.run(permit, accept(self.listener.config(), raw)).await;
        accepted.unwrap_or(Err(HandshakeOutcome::Closed.into()))
    }
}

/// Does the handshake of a connection. All that takes long to compute is in here.
async fn accept(config: Arc<TlsConfig>, raw: RawStream) -> Result<Secured, Failure> {
    let bounded = |session: &mut ServerConnection| {
        session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&config.server));
    let tls = match acceptor.accept_with(raw, bounded).into_fallible().await {
        Ok(tls) => TlsStream::new(tls),
        // The client learns why from the alert.
        Err((error, raw)) => {
            return Err(Failure { lingering: Some(raw.into_tcp()), ..error.into() });
        }
    };
    let session = tls.session();
    if session.handshake_kind() == Some(HandshakeKind::Resumed) {
        config.verify_resumed(session).map_err(io::Error::other)?;
    }
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.and_then(|it| ClientCertificate::of(it));
    if config.needs_client_certificate() && certificate.is_none() {
        return Err(io::Error::other(rustls::Error::NoCertificatesPresented).into());
    }
    Ok((tls, certificate))
}

impl<P: Protocol> Protocol for TlsProtocol<P> {
    async fn serve(&self, connection: Connection) {
        if let Some(connection) = self.secure(connection).await {
            self.inner.serve(connection).await;
        }
    }

    async fn refuse(&self, connection: Connection, why: Refusal) {
        if let Some(connection) = self.secure(connection).await {
            self.inner.refuse(connection, why).await;
        }
    }
}

/// Counts a handshake that was dropped to make room.
struct Unfinished<'t> {
    listener: &'t TlsListener,
    peer: PeerId,
    is_finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.listener.count_and_log(self.peer, HandshakeOutcome::MadeRoom, None);
        }
    }
}

/// The first byte of a client that uses TLS: the type of a record with a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// The bytes by which the response to plain text is chosen.
const FIRST_BYTES: usize = 16;
/// How long handshakes that have begun may take once the process stops.
const SHUTDOWN_TIME: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
