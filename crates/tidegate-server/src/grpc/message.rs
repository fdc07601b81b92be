//! The framing of gRPC messages: a byte that flags compression, four bytes of length, and the
//! message.

use std::fmt;
use std::future::Future;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tidegate_proto::rls::Message;
use tokio::sync::{Semaphore, SemaphorePermit};

use tidegate_listen::ConnectionState;

/// The error of a message that cannot be read.
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
            Self::TooLarge => "the message is too large",
            Self::Compressed => "the message is compressed, which is not supported",
            Self::NotAMessage => "the body is not one RateLimitRequest",
            Self::TooSlow => "the message did not arrive in time",
            Self::Gone => "the message did not arrive",
        })
    }
}

/// The bound on bytes of whole messages that are decoded and handled at a time, over all
/// connections; small messages are not counted.
///
/// Only what has arrived counts: a client that announces large messages and does not send them takes
/// nothing from others.
#[derive(Debug)]
pub(crate) struct MessageBudget(Semaphore);

/// The bound on large messages that arrive at a time on one connection.
///
/// A call beyond it waits, and flow control makes its client wait too. So a client that sends more
/// than the daemon can hold is slowed down, and delays nothing but its own calls.
#[derive(Debug)]
pub(crate) struct LargeCalls(Semaphore);

impl Default for LargeCalls {
    fn default() -> Self {
        Self(Semaphore::new(LARGE_CALLS_MAX))
    }
}

impl MessageBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Semaphore::new(bytes))
    }

    /// Budget for a whole message, as soon as there is enough.
    async fn take(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed, and a message is never larger than all of it.
        self.0.acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX)).await.ok()
    }
}

/// A message with its share of the budget, which it returns when dropped.
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

/// Reads the one message of a body, of at most this many bytes.
///
/// Memory grows with what has arrived, not with the announced length. Only large messages wait for
/// others, so those waits are not a part of this future, which is copied for every call.
pub(crate) async fn read_message<'r, B>(
    mut body: B,
    most: usize,
    room: &'r MessageBudget,
    large: &LargeCalls,
    connection: &ConnectionState,
) -> Result<BudgetedMessage<'r>, MessageError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    let mut arriving = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| MessageError::Gone)?.into_data() else { continue };
        let so_far = if first.is_empty() && more.is_empty() {
            first = data;
            &first[..]
        } else {
            // Most messages arrive in one frame; others are joined.
            more.extend_from_slice(&std::mem::take(&mut first));
            more.extend_from_slice(&data);
            &more[..]
        };
        let length = check_prefix(so_far, most)?;
        if arriving.is_none() && length.is_some_and(|length| length > SMALL) {
            // The semaphore is never closed.
            let turn = Box::pin(unless_closing(connection, large.0.acquire())).await?;
            arriving = turn.ok();
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
    let room = match whole.len() {
        0..=SMALL => None,
        bytes => Box::pin(unless_closing(connection, room.take(bytes))).await?,
    };
    drop(arriving);
    Ok(BudgetedMessage { bytes: whole, _room: room })
}

/// Waits, unless the connection is to be closed.
async fn unless_closing<T>(
    connection: &ConnectionState,
    waiting: impl Future<Output = T>,
) -> Result<T, MessageError> {
    tokio::select! {
        biased;
        done = waiting => Ok(done),
        () = connection.closing() => Err(MessageError::Gone),
    }
}

/// Rejects invalid messages as early as possible; else returns the length of the message, if it is
/// known yet.
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

/// A message with its frame.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Cannot fail: the capacity suffices.
    let _ = message.encode(&mut bytes);
    bytes.freeze()
}

const PREFIX: usize = 5;

/// The size up to which messages are not counted: more than most calls need.
const SMALL: usize = 16 << 10;

/// How many large messages arrive at a time on one connection.
const LARGE_CALLS_MAX: usize = 16;

#[cfg(test)]
mod tests;
