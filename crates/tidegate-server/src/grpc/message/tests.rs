#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

use super::{ConnectionState, LargeCalls, MessageBudget, MessageError, read_message};

async fn read(bytes: &[u8]) -> Result<Vec<u8>, MessageError> {
    let body = Full::new(Bytes::copy_from_slice(bytes));
    let (room, large) = (MessageBudget::new(0), LargeCalls::default());
    let read = read_message(body, 10, &room, &large, &ConnectionState::default()).await;
    read.map(|it| it.bytes.to_vec())
}

#[tokio::test]
async fn a_body_has_exactly_one_message() {
    assert_eq!(read(b"\0\0\0\0\x03abc").await.unwrap(), b"abc");
    assert_eq!(read(b"\0\0\0\0\0").await.unwrap(), b"");
    for (bytes, error) in [
        (&b""[..], MessageError::NotAMessage),
        (b"\0\0\0\0", MessageError::NotAMessage),
        (b"\0\0\0\0\x03ab", MessageError::NotAMessage),
        (b"\0\0\0\0\x03abcd", MessageError::NotAMessage),
        (b"\0\0\0\0\x01a\0\0\0\0\x01b", MessageError::NotAMessage),
        (b"\x01\0\0\0\x03abc", MessageError::Compressed),
        (b"\x02\0\0\0\x03abc", MessageError::NotAMessage),
        (b"\0\0\0\0\x0b", MessageError::TooLarge),
        (b"\0\xff\xff\xff\xff", MessageError::TooLarge),
    ] {
        assert_eq!(read(bytes).await, Err(error), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_message_in_several_frames_is_joined() {
    let pieces = b"\0\0\0\0\x03abc".iter().map(|byte| {
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::copy_from_slice(&[*byte])))
    });
    let body = StreamBody::new(tokio_stream::iter(pieces)).boxed();
    let (room, large) = (MessageBudget::new(0), LargeCalls::default());
    let read = read_message(body, 10, &room, &large, &ConnectionState::default()).await;
    assert_eq!(&read.unwrap().bytes[..], b"abc");
}
