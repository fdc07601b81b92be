//! One connection, from the challenge to its close. One task reads and writes it.

use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use prost::Message as _;
use tidegate::clock::Clock;
use tidegate_listen::Permit;
use tokio::time::timeout;

use crate::builder::{BucketLife, MAX_CLOSE_TIME};
use crate::handshake::{Challenge, millis};
use crate::outbox::{OutboxReceiver, outbox};
use crate::registry::JoinError;
use crate::relay::{ConnectionInfo, RelayInner};
use crate::routing::MAX_ENVELOPE_BYTES;
use crate::session::Session;
use crate::wire::{AuthResult, Envelope, MessageType, Payload};

/// A registered client. Dropping this removes its bucket, unless that is kept, and its address in
/// one step, so that the address cannot be registered again in between.
///
/// Only the task that holds this charges the bucket, so it is not charged afterwards.
pub(crate) struct Client<C: Clock + Clone + Send + Sync + 'static> {
    pub(crate) relay: Arc<RelayInner<C>>,
    pub(crate) address: Arc<str>,
}

impl<C: Clock + Clone + Send + Sync + 'static> Drop for Client<C> {
    fn drop(&mut self) {
        self.relay.registry.leave(&self.address, || {
            if let Some(limiter) = &self.relay.limiter
                && self.relay.bucket_life == BucketLife::Connection
            {
                limiter.forget(&*self.address);
            }
        });
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The client closed it.
    Left,
    /// The client is gone without closing.
    Lost,
    /// The client did not read what was sent to it.
    Stuck,
    /// The relay closes it.
    Close(CloseMessage),
}

/// The code and reason of the relay's close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloseMessage {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
}

/// Why a connection is not admitted.
#[derive(Clone, Copy, Debug)]
enum RejectReason {
    /// The client gets an error and a close frame.
    Closed(CloseMessage),
    /// The connection has ended, or needs no error.
    Ended(ConnectionEnd),
}

/// Serves one connection until it ends.
pub(crate) async fn run<C: Clock + Clone + Send + Sync + 'static>(
    relay: Arc<RelayInner<C>>,
    mut socket: WebSocket,
    permit: Permit,
    arrival: ConnectionInfo,
) {
    let ConnectionInfo { peer, mut closing } = arrival;
    let peer = peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string());
    let admitted = tokio::select! {
        admitted = admit(&relay, &mut socket) => admitted,
        () = permit.closing() => Err(RejectReason::Ended(ConnectionEnd::Close(MADE_ROOM))),
        () = closing.begins() => Err(RejectReason::Ended(GOING_AWAY)),
    };
    let end = match admitted {
        Ok((client, waiting)) => {
            drop(permit);
            let (address, connections) = (Arc::clone(&client.address), relay.registry.len());
            tracing::info!(?address, %peer, connections, "connected");
            // This drops the client: its address is free before the connection is closed.
            let end = Session::new(client, &mut socket, waiting).run(&mut closing).await;
            tracing::info!(?address, %peer, ?end, "disconnected");
            end
        }
        Err(RejectReason::Closed(close)) => {
            tracing::info!(%peer, reason = close.reason, "authentication rejected");
            let _ = send_last(&relay, &mut socket, Err(close.reason)).await;
            // The permit is held until the close: rejected connections are bounded too.
            let end = ConnectionEnd::Close(close);
            close_connection(&mut socket, end).await;
            return drop(permit);
        }
        Err(RejectReason::Ended(end)) => {
            tracing::debug!(%peer, ?end, "disconnected before authentication");
            end
        }
    };
    close_connection(&mut socket, end).await;
}

/// Authenticates a client and registers it.
async fn admit<C: Clock + Clone + Send + Sync + 'static>(
    relay: &Arc<RelayInner<C>>,
    socket: &mut WebSocket,
) -> Result<(Client<C>, OutboxReceiver), RejectReason> {
    let within = relay.times.authenticate_within;
    let challenge = Challenge::new(&relay.clock, within).map_err(|error| {
        tracing::error!(%error, "no random numbers available");
        RejectReason::Closed(NOT_AUTHENTIC)
    })?;
    let handshake = async {
        let question = challenge.envelope(&relay.host).encode_to_vec();
        socket.send(Message::Binary(question.into())).await.map_err(|_| ConnectionEnd::Lost)?;
        first_message(socket).await
    };
    let response = match timeout(within, handshake).await {
        Ok(Ok(Message::Binary(response))) if response.len() <= MAX_ENVELOPE_BYTES => response,
        Ok(Ok(_)) => return Err(not_authentic("the response is text or too long")),
        Ok(Err(end)) => return Err(RejectReason::Ended(end)),
        Err(_) => return Err(not_authentic("no response in time")),
    };
    let address = challenge
        .verify(&response, &relay.host, relay.clock.now())
        .map_err(|failure| not_authentic(&failure.to_string()))?;
    let (outbox, waiting) = outbox(relay.bounds.queue, Arc::clone(&relay.queue_room));
    let address: Arc<str> = address.into();
    relay.registry.join(Arc::clone(&address), outbox).map_err(|error| match error {
        JoinError::Taken => RejectReason::Closed(ALREADY_CONNECTED),
        JoinError::Full => RejectReason::Closed(FULL),
    })?;
    let client = Client { relay: Arc::clone(relay), address };
    send_last(relay, socket, Ok(&client.address)).await.map_err(RejectReason::Ended)?;
    Ok((client, waiting))
}

/// The first message that is not a control frame.
async fn first_message(socket: &mut WebSocket) -> Result<Message, ConnectionEnd> {
    loop {
        match socket.recv().await {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) => return Err(ConnectionEnd::Left),
            Some(Ok(message)) => return Ok(message),
            Some(Err(error)) => return Err(end_of(error)),
            None => return Err(ConnectionEnd::Lost),
        }
    }
}

fn not_authentic(why: &str) -> RejectReason {
    tracing::debug!(why, "authentication failed");
    RejectReason::Closed(NOT_AUTHENTIC)
}

/// Sends the result of the handshake: an address or an error.
async fn send_last<C: Clock>(
    relay: &RelayInner<C>,
    socket: &mut WebSocket,
    outcome: Result<&str, &str>,
) -> Result<(), ConnectionEnd> {
    let result = AuthResult {
        success: outcome.is_ok(),
        error_message: outcome.err().unwrap_or_default().to_owned(),
        assigned_address: outcome.unwrap_or_default().to_owned(),
    };
    let now_ms = millis(relay.clock.wall());
    let payload = Payload::AuthResult(result);
    let envelope = Envelope::from_relay(MessageType::AuthResult, now_ms, payload);
    let message = Message::Binary(envelope.encode_to_vec().into());
    match timeout(relay.times.write_within, socket.send(message)).await {
        Ok(sent) => sent.map_err(|_| ConnectionEnd::Lost),
        Err(_) => Err(ConnectionEnd::Stuck),
    }
}

/// Closes a connection within a bounded time.
///
/// What the client still sends is read and discarded: closing a socket with unread bytes would
/// discard the close frame.
async fn close_connection(socket: &mut WebSocket, end: ConnectionEnd) {
    let close = match end {
        ConnectionEnd::Left => None,
        ConnectionEnd::Close(close) => Some(close),
        ConnectionEnd::Lost | ConnectionEnd::Stuck => return,
    };
    let closing = async {
        if let Some(CloseMessage { code, reason }) = close {
            let frame = CloseFrame { code, reason: reason.into() };
            socket.send(Message::Close(Some(frame))).await?;
        }
        while let Some(received) = socket.recv().await {
            received?;
        }
        Ok::<_, axum::Error>(())
    };
    let _ = timeout(MAX_CLOSE_TIME, closing).await;
}

/// The end of a connection after an error of its socket.
pub(crate) fn end_of(error: axum::Error) -> ConnectionEnd {
    use tungstenite::Error;
    use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
    let Ok(error) = error.into_inner().downcast::<Error>() else { return ConnectionEnd::Lost };
    let (code, reason) = match *error {
        Error::Capacity(_) => (1009, "message too big"),
        Error::Utf8(_) => (1007, "text is not UTF-8"),
        Error::Protocol(ResetWithoutClosingHandshake) => return ConnectionEnd::Lost,
        Error::Protocol(_) => (1002, "protocol error"),
        _ => return ConnectionEnd::Lost,
    };
    ConnectionEnd::Close(CloseMessage { code, reason })
}

/// The relay is shutting down.
pub(crate) const GOING_AWAY: ConnectionEnd =
    ConnectionEnd::Close(CloseMessage { code: 1001, reason: "the relay is going away" });

const NOT_AUTHENTIC: CloseMessage = CloseMessage { code: 1008, reason: "authentication failed" };
const ALREADY_CONNECTED: CloseMessage =
    CloseMessage { code: 1008, reason: "address already connected" };
const MADE_ROOM: CloseMessage =
    CloseMessage { code: 1013, reason: "too many clients are not authenticated" };
const FULL: CloseMessage = CloseMessage { code: 1013, reason: "the relay is full" };
