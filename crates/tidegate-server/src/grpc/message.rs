//! Messages as gRPC frames them: a byte that says whether it is compressed, four bytes of length, and
//! the message.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tidegate_proto::rls::Message;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageError {
    TooLarge,
    Compressed,
    NotAMessage,
    TooSlow,
    Gone,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the message is larger than is taken here",
            Self::Compressed => "the message is compressed, which is not understood here",
            Self::NotAMessage => "this is not one RateLimitRequest",
            Self::TooSlow => "the message took too long to arrive",
            Self::Gone => "the message did not arrive",
        })
    }
}

/// How much of messages may be there at a time, over all connections, beyond what is small.
///
/// Whoever finds no room waits for it, and so does who sends.
#[derive(Debug)]
pub(crate) struct MessageBudget(Semaphore);

impl MessageBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Semaphore::new(bytes))
    }

    /// Room for a message, as soon as there is: for all of it, so that what has begun can end.
    async fn take(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes <= SMALL {
            return None;
        }
        // It is never closed, and a message is never larger than all of it.
        self.0.acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX)).await.ok()
    }
}

/// A message, with the room that it has until it is dropped.
#[derive(Debug)]
pub(crate) struct BudgetedMessage<'r> {
    pub(crate) bytes: Bytes,
    _room: Option<SemaphorePermit<'r>>,
}

impl BudgetedMessage<'_> {
    pub(crate) fn is_small(&self) -> bool {
        self.bytes.len() <= SMALL
    }
}

/// The one message of a body, of so many bytes at most.
///
/// No memory is set aside for a length before that much has arrived.
pub(crate) async fn read_message<B>(
    mut body: B,
    most: usize,
    room: &MessageBudget,
) -> Result<BudgetedMessage<'_>, MessageError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    let mut taken = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| MessageError::Gone)?.into_data() else { continue };
        let so_far = if first.is_empty() && more.is_empty() {
            first = data;
            &first[..]
        } else {
            // Most messages come in one piece; others are put together.
            more.extend_from_slice(&std::mem::take(&mut first));
            more.extend_from_slice(&data);
            &more[..]
        };
        let length = check_prefix(so_far, most)?;
        if let (None, Some(length)) = (&taken, length) {
            taken = room.take(length).await;
        }
    }
    let mut whole = if more.is_empty() { first } else { more.freeze() };
    check_prefix(&whole, most)?;
    if whole.len() < PREFIX {
        return Err(MessageError::NotAMessage);
    }
    whole.advance(1);
    let length = whole.get_u32();
    if u32::try_from(whole.len()) != Ok(length) {
        return Err(MessageError::NotAMessage);
    }
    Ok(BudgetedMessage { bytes: whole, _room: taken })
}

/// Refuses what can be told to be wrong before all of it is there; else tells how long the message is, if
/// that is known yet.
fn check_prefix(bytes: &[u8], most: usize) -> Result<Option<usize>, MessageError> {
    match bytes {
        [1, ..] => Err(MessageError::Compressed),
        [2..=u8::MAX, ..] => Err(MessageError::NotAMessage),
        [0, a, b, c, d, rest @ ..] => {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            if length > most {
                Err(MessageError::TooLarge)
            } else if rest.len() > length {
                Err(MessageError::NotAMessage)
            } else {
                Ok(Some(length))
            }
        }
        _ => Ok(None),
    }
}

/// A message as it is sent.
pub(crate) fn written(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // There is room for it.
    let _ = message.encode(&mut bytes);
    bytes.freeze()
}

/// A text as it goes into `grpc-message`.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

const PREFIX: usize = 5;

/// What every call may have without asking: more than most calls need.
const SMALL: usize = 16 << 10;

#[cfg(test)]
mod tests;
