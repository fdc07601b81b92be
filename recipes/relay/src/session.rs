//! A client that is let in: what it sends, what it gets, and whether it is still there.

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket};
use tidegate::Clock;
use tokio::time::{Instant, sleep_until, timeout};

use crate::builder::Times;
use crate::connection::{Client, CloseMessage, ConnectionEnd, GOING_AWAY, end_of};
use crate::outbox::OutboxReceiver;
use crate::relay::ShutdownSignal;
use crate::routing::{Incoming, receive};

/// One client's session. It ends when the client leaves or is sent away.
pub(crate) struct Session<'s, C: Clock + Clone + Send + Sync + 'static> {
    client: Client<C>,
    socket: &'s mut WebSocket,
    waiting: OutboxReceiver,
    heartbeat: Heartbeat,
}

/// When to ping next, or until when to wait for the pong.
struct Heartbeat {
    due: Instant,
    /// What was sent with the last ping, if it has not come back.
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

    /// Passes envelopes on, both ways, until it is over.
    pub(crate) async fn run(mut self, closing: &mut ShutdownSignal) -> ConnectionEnd {
        loop {
            let step = tokio::select! {
                received = self.socket.recv() => match received {
                    Some(Ok(message)) => self.on_message(message).await,
                    Some(Err(error)) => Err(end_of(error)),
                    None => Err(ConnectionEnd::Lost),
                },
                Some(parcel) = self.waiting.recv() => {
                    self.write(Message::Binary(parcel.bytes.clone())).await
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
        let answer = match message {
            Message::Binary(bytes) => receive(&self.client, Incoming::Binary(&bytes)),
            Message::Text(_) => receive(&self.client, Incoming::Text),
            Message::Pong(bytes) => {
                self.heartbeat.on_pong(&bytes, &self.client.relay.times);
                None
            }
            // The socket answers pings by itself.
            Message::Ping(_) => None,
            Message::Close(_) => return Err(ConnectionEnd::Left),
        };
        // Written at once, and nothing is read meanwhile: who floods and does not read waits.
        match answer {
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
    /// What to send with a ping. The pong has to bring it back.
    fn ping(&mut self, times: &Times) -> Bytes {
        self.pings = self.pings.wrapping_add(1);
        let payload = Bytes::copy_from_slice(&self.pings.to_be_bytes());
        self.awaited = Some(payload.clone());
        self.due = Instant::now() + times.pong_within;
        payload
    }

    /// Pongs that nobody asked for do not count.
    fn on_pong(&mut self, payload: &Bytes, times: &Times) {
        if self.awaited.as_ref() == Some(payload) {
            self.awaited = None;
            self.due = Instant::now() + times.ping_every;
        }
    }
}

const NO_PONG: ConnectionEnd =
    ConnectionEnd::Farewell(CloseMessage { code: 1008, reason: "heartbeat timeout" });
