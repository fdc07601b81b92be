//! What happens to a message: limited first, then looked at, then passed on or dropped.

use prost::Message as _;
use tidegate::{Clock, Decision, Wait};

use crate::connection::Client;
use crate::handshake::millis;
use crate::wire::{Envelope, MessageType, Payload, RateLimited};

/// What a client sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incoming<'m> {
    Binary(&'m [u8]),
    /// Never an envelope, but charged as one.
    Text,
}

/// Why a message went nowhere. For the log; the sender is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    Text,
    TooLarge,
    Malformed,
    Forged,
    ForTheRelay,
    NobodyThere,
    NoRoom,
}

/// Takes a message from a client. What comes back is for that client.
///
/// The limit is the first check, before the size and before decoding. Everything that is looked at
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

/// Passes an envelope on to whom it is addressed, byte for byte.
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
    if is_about_blocking(&envelope) {
        return Ok(());
    }
    let recipient = client.relay.registry.find(&envelope.to_address).ok_or(Dropped::NobodyThere)?;
    recipient.offer(bytes).map_err(|_| Dropped::NoRoom)
}

/// Whether a sender says the truth about itself. It may say nothing.
fn is_own(claimed: &str, address: &str) -> bool {
    claimed.is_empty() || claimed == address
}

/// Notices to the relay that it takes and says nothing about.
fn is_about_blocking(envelope: &Envelope) -> bool {
    matches!(envelope.r#type(), MessageType::BlockNotification | MessageType::UnblockNotification)
}

/// The envelope that tells a sender to wait. It names the message, where that can be read.
fn denial(decision: &Decision, sent: Incoming<'_>, now_ms: i64) -> Vec<u8> {
    let limited = RateLimited { retry_after_ms: wait_ms(decision), reason: REASON.to_owned() };
    let payload = Payload::RateLimited(limited);
    let mut envelope = Envelope::from_relay(MessageType::RateLimited, now_ms, payload);
    let bare_len = envelope.encoded_len();
    if let Incoming::Binary(bytes) = sent
        && let Ok(refused) = Envelope::decode(bytes)
        && refused.message_id.len() + bare_len + ID_HEADER_BYTES <= MAX_ENVELOPE_BYTES
    {
        envelope.message_id = refused.message_id;
    }
    envelope.encode_to_vec()
}

/// The true wait in whole milliseconds, rounded up. No time helps: the largest number.
fn wait_ms(decision: &Decision) -> i64 {
    let wait_ms = decision.wait().and_then(Wait::whole_ms);
    wait_ms.map_or(i64::MAX, |ms| i64::try_from(ms).unwrap_or(i64::MAX).max(1))
}

/// The largest envelope; larger ones are charged and dropped.
pub(crate) const MAX_ENVELOPE_BYTES: usize = 65_536;

/// A tag and a length in front of a message's name.
const ID_HEADER_BYTES: usize = 4;

const REASON: &str = "per-connection rate limit exceeded";
