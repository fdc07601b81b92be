//! The session of an authenticated client: incoming messages, its queue, and its heartbeat.

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket};
use tidegate::clock::Clock;
use tokio::time::{Instant, sleep_until, timeout};

use crate::builder::Times;
use crate::connection::{Client, CloseMessage, ConnectionEnd, GOING_AWAY, end_of};
use crate::outbox::OutboxReceiver;
use crate::relay::ShutdownSignal;
use crate::routing::{Incoming, receive};

/// One client's session. It ends when the client leaves or is disconnected.
pub(crate) struct Session<'s, C: Clock + Clone + Send + Sync + 'static> {
    client: Client<C>,
    socket: &'s mut WebSocket,
    waiting: OutboxReceiver,
    heartbeat: Heartbeat,
}

/// The time of the next ping, or the deadline of the awaited pong.
struct Heartbeat {
    due: Instant,
    /// The payload of the last ping, if its pong has not arrived.
    awaited: Option<Bytes>,
    pings: u64,
}

impl<'s, C: Clock + Clone + Send + Sync + 'static> Session<'s, C> {
    pub(crate) fn new(
        client: Client<C>,
        socket: &'s mut WebSocket,
        waiting: OutboxReceiver,
    ) -> Self {
        let due = Instant::now() + client.relay.times.ping_every;
        let heartbeat = Heartbeat { due, awaited: None, pings: 0 };
        Self { client, socket, waiting, heartbeat }
    }

    /// Forwards envelopes both ways until the connection ends.
    pub(crate) async fn run(mut self, closing: &mut ShutdownSignal) -> ConnectionEnd {
        loop {
            let step = tokio::select! {
                received = self.socket.recv() => match received {
                    Some(Ok(message)) => self.on_message(message).await,
                    Some(Err(error)) => Err(end_of(error)),
                    None => Err(ConnectionEnd::Lost),
                },
                Some(envelope) = self.waiting.recv() => {
                    self.write(Message::Binary(envelope.bytes.clone())).await
                }
                () = sleep_until(self.heartbeat.due) => self.on_heartbeat().await,
                () = closing.begins() => Err(GOING_AWAY),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn on_message(&mut self, message: Message) -> Result<(), ConnectionEnd> {
        let response = match message {
            Message::Binary(bytes) => receive(&self.client, Incoming::Binary(&bytes)),
            Message::Text(_) => receive(&self.client, Incoming::Text),
            Message::Pong(bytes) => {
                self.heartbeat.on_pong(&bytes, &self.client.relay.times);
                None
            }
            // The socket replies to pings by itself.
            Message::Ping(_) => None,
            Message::Close(_) => return Err(ConnectionEnd::Left),
        };
        // Written at once, and nothing is read meanwhile: a client that floods and does not read
        // waits.
        match response {
            Some(envelope) => self.write(Message::Binary(envelope.into())).await,
            None => Ok(()),
        }
    }

    async fn on_heartbeat(&mut self) -> Result<(), ConnectionEnd> {
        if self.heartbeat.awaited.is_some() {
            return Err(NO_PONG);
        }
        let payload = self.heartbeat.ping(&self.client.relay.times);
        self.write(Message::Ping(payload)).await
    }

    async fn write(&mut self, message: Message) -> Result<(), ConnectionEnd> {
        match timeout(self.client.relay.times.write_within, self.socket.send(message)).await {
            Ok(sent) => sent.map_err(|_| ConnectionEnd::Lost),
            Err(_) => Err(ConnectionEnd::Stuck),
        }
    }
}

impl Heartbeat {
    /// The payload of the next ping. The pong has to repeat it.
    fn ping(&mut self, times: &Times) -> Bytes {
        self.pings = self.pings.wrapping_add(1);
        let payload = Bytes::copy_from_slice(&self.pings.to_be_bytes());
        self.awaited = Some(payload.clone());
        self.due = Instant::now() + times.pong_within;
        payload
    }

    /// Handles a pong; unexpected ones are ignored.
    fn on_pong(&mut self, payload: &Bytes, times: &Times) {
        if self.awaited.as_ref() == Some(payload) {
            self.awaited = None;
            self.due = Instant::now() + times.ping_every;
        }
    }
}

const NO_PONG: ConnectionEnd =
    ConnectionEnd::Close(CloseMessage { code: 1008, reason: "heartbeat timeout" });
