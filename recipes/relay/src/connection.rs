//! One connection, from the challenge to the farewell. One task reads and writes it.

use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use prost::Message as _;
use tidegate::Clock;
use tokio::time::timeout;

use crate::builder::LONGEST_FAREWELL;
use crate::handshake::{Challenge, millis};
use crate::outbox::{OutboxReceiver, outbox};
use crate::registry::JoinError;
use crate::relay::{ConnectionInfo, Permit, RelayInner};
use crate::routing::MAX_ENVELOPE_BYTES;
use crate::session::Session;
use crate::wire::{AuthResult, Envelope, MessageType, Payload};

/// A client that is registered. When this is dropped its bucket is forgotten and its address free,
/// in one step: nobody can come back in between.
///
/// Only the task that holds this charges the bucket, so nothing charges it afterwards.
pub(crate) struct Client<C: Clock + Clone + Send + Sync + 'static> {
    pub(crate) relay: Arc<RelayInner<C>>,
    pub(crate) address: Arc<str>,
}

impl<C: Clock + Clone + Send + Sync + 'static> Drop for Client<C> {
    fn drop(&mut self) {
        self.relay.registry.leave(&self.address, || {
            if let Some(limiter) = &self.relay.limiter {
                limiter.forget(&*self.address);
            }
        });
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The client said goodbye.
    Left,
    /// The client is gone without a word.
    Lost,
    /// The client did not read what was written to it.
    Stuck,
    /// The relay says goodbye.
    Farewell(CloseMessage),
}

/// What the relay says last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloseMessage {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug)]
enum RejectReason {
    /// It is told why.
    Told(CloseMessage),
    /// There is nobody to tell any more, or nothing to tell.
    Ended(ConnectionEnd),
}

/// Takes care of one connection until it is over.
pub(crate) async fn run<C: Clock + Clone + Send + Sync + 'static>(
    relay: Arc<RelayInner<C>>,
    mut socket: WebSocket,
    permit: Permit<C>,
    arrival: ConnectionInfo,
) {
    let ConnectionInfo { peer, mut closing } = arrival;
    let peer = peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string());
    let admitted = tokio::select! {
        admitted = admit(&relay, &mut socket) => admitted,
        () = closing.begins() => Err(RejectReason::Ended(GOING_AWAY)),
    };
    let end = match admitted {
        Ok((client, waiting)) => {
            drop(permit);
            let (address, connections) = (Arc::clone(&client.address), relay.registry.len());
            tracing::info!(?address, %peer, connections, "connected");
            // The client is dropped in there: its address is free before the last word is said.
            let end = Session::new(client, &mut socket, waiting).run(&mut closing).await;
            tracing::info!(?address, %peer, ?end, "disconnected");
            end
        }
        Err(RejectReason::Told(farewell)) => {
            tracing::info!(%peer, reason = farewell.reason, "not let in");
            let _ = send_last(&relay, &mut socket, Err(farewell.reason)).await;
            // The place is held on to: a crowd of the refused is bounded too.
            let end = ConnectionEnd::Farewell(farewell);
            part(&mut socket, end).await;
            return drop(permit);
        }
        Err(RejectReason::Ended(end)) => {
            tracing::debug!(%peer, ?end, "left before it was let in");
            end
        }
    };
    part(&mut socket, end).await;
}

/// Finds out who somebody is, and registers them.
async fn admit<C: Clock + Clone + Send + Sync + 'static>(
    relay: &Arc<RelayInner<C>>,
    socket: &mut WebSocket,
) -> Result<(Client<C>, OutboxReceiver), RejectReason> {
    let within = relay.times.authenticate_within;
    let challenge = Challenge::new(&relay.clock, within).map_err(|error| {
        tracing::error!(%error, "there are no random numbers");
        RejectReason::Told(NOT_AUTHENTIC)
    })?;
    let asked = async {
        let question = challenge.envelope(&relay.host).encode_to_vec();
        socket.send(Message::Binary(question.into())).await.map_err(|_| ConnectionEnd::Lost)?;
        first_message(socket).await
    };
    let answer = match timeout(within, asked).await {
        Ok(Ok(Message::Binary(answer))) if answer.len() <= MAX_ENVELOPE_BYTES => answer,
        Ok(Ok(_)) => return Err(disbelieved("the answer is text, or too long")),
        Ok(Err(end)) => return Err(RejectReason::Ended(end)),
        Err(_) => return Err(disbelieved("there was no answer in time")),
    };
    let address = challenge
        .judge(&answer, &relay.host, relay.clock.now())
        .map_err(|disbelief| disbelieved(&disbelief.to_string()))?;
    let (outbox, waiting) = outbox(relay.bounds.queue, Arc::clone(&relay.queue_room));
    let address: Arc<str> = address.into();
    relay.registry.join(Arc::clone(&address), outbox).map_err(|error| match error {
        JoinError::Taken => RejectReason::Told(ALREADY_CONNECTED),
        JoinError::Full => RejectReason::Told(FULL),
    })?;
    let client = Client { relay: Arc::clone(relay), address };
    send_last(relay, socket, Ok(&client.address)).await.map_err(RejectReason::Ended)?;
    Ok((client, waiting))
}

/// The first message that is not about the connection itself.
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

fn disbelieved(why: &str) -> RejectReason {
    tracing::debug!(why, "not authentic");
    RejectReason::Told(NOT_AUTHENTIC)
}

/// Tells a client how its handshake ended: its address, or what went wrong.
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

/// Ends a connection in an orderly way, within a bounded time.
///
/// What the client still sends is read and thrown away: a socket that is closed with unread bytes
/// in it would take the farewell with it.
async fn part(socket: &mut WebSocket, end: ConnectionEnd) {
    let farewell = match end {
        ConnectionEnd::Left => None,
        ConnectionEnd::Farewell(farewell) => Some(farewell),
        ConnectionEnd::Lost | ConnectionEnd::Stuck => return,
    };
    let parting = async {
        if let Some(CloseMessage { code, reason }) = farewell {
            let frame = CloseFrame { code, reason: reason.into() };
            socket.send(Message::Close(Some(frame))).await?;
        }
        while let Some(received) = socket.recv().await {
            received?;
        }
        Ok::<_, axum::Error>(())
    };
    let _ = timeout(LONGEST_FAREWELL, parting).await;
}

/// How a connection ends after an error of its socket.
pub(crate) fn end_of(error: axum::Error) -> ConnectionEnd {
    use tungstenite::Error;
    use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
    let Ok(error) = error.into_inner().downcast::<Error>() else { return ConnectionEnd::Lost };
    let (code, reason) = match *error {
        Error::Capacity(_) => (1009, "message too big"),
        Error::Utf8(_) => (1007, "text that is not UTF-8"),
        Error::Protocol(ResetWithoutClosingHandshake) => return ConnectionEnd::Lost,
        Error::Protocol(_) => (1002, "protocol error"),
        _ => return ConnectionEnd::Lost,
    };
    ConnectionEnd::Farewell(CloseMessage { code, reason })
}

/// The relay is being shut down.
pub(crate) const GOING_AWAY: ConnectionEnd =
    ConnectionEnd::Farewell(CloseMessage { code: 1001, reason: "the relay is going away" });

const NOT_AUTHENTIC: CloseMessage = CloseMessage { code: 1008, reason: "authentication failed" };
const ALREADY_CONNECTED: CloseMessage =
    CloseMessage { code: 1008, reason: "address already connected" };
const FULL: CloseMessage = CloseMessage { code: 1013, reason: "the relay is full" };
