//! The steps for a message: limited first, then decoded, then forwarded or dropped.

use prost::Message as _;
use tidegate::{Decision, Wait, clock::Clock};

use crate::blocks::Blocks;
use crate::connection::Client;
use crate::handshake::millis;
use crate::wire::{BlockEnvelope, BlockNotice, Envelope, MessageType, Payload, RateLimited};

/// A message from a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incoming<'m> {
    Binary(&'m [u8]),
    /// Never an envelope, but charged as one.
    Text,
}

/// Why a message was dropped. For the log; the sender is not notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    Text,
    TooLarge,
    Malformed,
    Forged,
    ForTheRelay,
    NoRecipient,
    Blocked,
    QueueFull,
}

/// Handles a message from a client; returns an envelope for that client, if any.
///
/// The limit is the first check, before the size and before decoding: everything that is examined
/// has been charged.
pub(crate) fn receive<C>(client: &Client<C>, sent: Incoming<'_>) -> Option<Vec<u8>>
where
    C: Clock + Clone + Send + Sync + 'static,
{
    if let Some(limiter) = &client.relay.limiter {
        let decision = limiter.check(&*client.address);
        if !decision.is_allowed() {
            tracing::debug!(address = ?client.address, "rate limited");
            let now_ms = millis(client.relay.clock.wall());
            return Some(denial(&decision, sent, now_ms));
        }
    }
    if let Err(dropped) = route(client, sent) {
        tracing::debug!(address = ?client.address, ?dropped, "dropped");
    }
    None
}

/// Forwards an envelope to its recipient, byte for byte.
fn route<C>(client: &Client<C>, sent: Incoming<'_>) -> Result<(), Dropped>
where
    C: Clock + Clone + Send + Sync + 'static,
{
    let Incoming::Binary(bytes) = sent else { return Err(Dropped::Text) };
    if bytes.len() > MAX_ENVELOPE_BYTES {
        return Err(Dropped::TooLarge);
    }
    let envelope = Envelope::decode(bytes).map_err(|_| Dropped::Malformed)?;
    if !is_own(&envelope.from_address, &client.address) {
        return Err(Dropped::Forged);
    }
    if envelope.is_between_client_and_relay() {
        return Err(Dropped::ForTheRelay);
    }
    if let Some(notice) = notice(&envelope, bytes)? {
        notice.apply(&client.relay.blocks, &client.address);
        return Ok(());
    }
    let recipient = client.relay.registry.find(&envelope.to_address).ok_or(Dropped::NoRecipient)?;
    if client.relay.blocks.has(&envelope.to_address, &client.address) {
        return Err(Dropped::Blocked);
    }
    recipient.offer(bytes).map_err(|_| Dropped::QueueFull)
}

/// Whether the claimed sender is the client itself. It may be empty.
fn is_own(claimed: &str, address: &str) -> bool {
    claimed.is_empty() || claimed == address
}

/// A notice for the relay, which it consumes without a response.
enum Notice {
    Block(BlockNotice),
    Unblock(BlockNotice),
}

impl Notice {
    /// The client is the one that has sent the notice, whatever the notice says.
    fn apply(self, blocks: &Blocks, client: &str) {
        match self {
            Self::Block(notice) => blocks.block(client, &notice.blocked_address),
            Self::Unblock(notice) => blocks.unblock(client, &notice.blocked_address),
        }
    }
}

/// The notice in an envelope, if its type is that of one.
fn notice(envelope: &Envelope, bytes: &[u8]) -> Result<Option<Notice>, Dropped> {
    let kind = envelope.r#type();
    if !matches!(kind, MessageType::BlockNotification | MessageType::UnblockNotification) {
        return Ok(None);
    }
    let payload = BlockEnvelope::decode(bytes).map_err(|_| Dropped::Malformed)?;
    let notice = match kind {
        MessageType::BlockNotification => payload.block.map(Notice::Block),
        _ => payload.unblock.map(Notice::Unblock),
    };
    notice.map(Some).ok_or(Dropped::Malformed)
}

/// The envelope of a denial. It echoes the message's id, where that can be decoded.
fn denial(decision: &Decision, sent: Incoming<'_>, now_ms: i64) -> Vec<u8> {
    let limited = RateLimited { retry_after_ms: wait_ms(decision), reason: REASON.to_owned() };
    let payload = Payload::RateLimited(limited);
    let mut envelope = Envelope::from_relay(MessageType::RateLimited, now_ms, payload);
    let bare_len = envelope.encoded_len();
    if let Incoming::Binary(bytes) = sent
        && let Ok(denied) = Envelope::decode(bytes)
        && denied.message_id.len() + bare_len + ID_HEADER_BYTES <= MAX_ENVELOPE_BYTES
    {
        envelope.message_id = denied.message_id;
    }
    envelope.encode_to_vec()
}

/// The true wait in whole milliseconds, rounded up; the largest number if no wait helps.
fn wait_ms(decision: &Decision) -> i64 {
    let wait_ms = decision.retry_after().and_then(Wait::whole_ms);
    wait_ms.map_or(i64::MAX, |ms| i64::try_from(ms).unwrap_or(i64::MAX).max(1))
}

/// The largest envelope; larger ones are charged and dropped.
pub(crate) const MAX_ENVELOPE_BYTES: usize = 65_536;

/// A tag and a length before a message's id.
const ID_HEADER_BYTES: usize = 4;

const REASON: &str = "per-connection rate limit exceeded";
