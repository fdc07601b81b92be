use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::HANDSHAKE_RECORD;
use crate::accept::{ARRIVAL_TIME, Connection, Protocol};
use crate::permits::Refusal;
use crate::socket::PeerStream;
use crate::warnings::Warnings;

/// A protocol without TLS: clients that use TLS all the same are closed at once, and the log says
/// so. A protocol would only find bytes that make no sense.
#[derive(Debug)]
pub struct PlainProtocol<P> {
    inner: P,
    name: &'static str,
    silence: Duration,
    warnings: Warnings,
}

impl<P> PlainProtocol<P> {
    /// The protocol without TLS. The name is for logs; a connection may be silent for this long
    /// before its first byte.
    #[must_use]
    pub fn new(inner: P, name: &'static str, silence: Duration) -> Self {
        Self { inner, name, silence, warnings: Warnings::new() }
    }

    /// Whether the connection is to be served.
    async fn is_to_be_served(&self, connection: &mut Connection) -> bool {
        let PeerStream::Tcp(tcp) = &connection.io else { return true };
        let first = tokio::select! {
            biased;
            first = timeout(self.silence, first_byte(tcp)) => first.unwrap_or(None),
            () = connection.shutdown.wanted() => {
                // A request that has arrived may not have been read yet.
                timeout(ARRIVAL_TIME, first_byte(tcp)).await.unwrap_or(None)
            }
        };
        if first == Some(HANDSHAKE_RECORD)
            && let Some(left_out) = self.warnings.next()
        {
            let (listener, peer) = (self.name, connection.peer);
            tracing::warn!(
                listener, %peer, left_out,
                "connection closed: the client uses TLS, and this port has none; give the listener \
                 a certificate, or use the client without TLS"
            );
        }
        first.is_some_and(|first| first != HANDSHAKE_RECORD)
    }
}

/// The first byte of a client, which stays to be read; `None` if the connection has ended.
async fn first_byte(tcp: &TcpStream) -> Option<u8> {
    let mut first = [0];
    (tcp.peek(&mut first).await.ok()? == 1).then_some(first[0])
}

impl<P: Protocol> Protocol for PlainProtocol<P> {
    async fn serve(&self, mut connection: Connection) {
        if self.is_to_be_served(&mut connection).await {
            self.inner.serve(connection).await;
        }
    }

    async fn refuse(&self, mut connection: Connection, why: Refusal) {
        if self.is_to_be_served(&mut connection).await {
            self.inner.refuse(connection, why).await;
        }
    }
}
