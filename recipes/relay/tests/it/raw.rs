//! WebSocket frames by hand, for clients that violate the protocol.

use std::net::SocketAddr;

use prost::Message as _;
use tidegate_relay::wire::{Envelope, Payload};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{auth_response, key, wrapped};
use crate::server::TIMEOUT;

/// A connection of raw bytes.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
}

/// One frame as received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn envelope(&self) -> Envelope {
        assert_eq!(self.opcode, BINARY);
        Envelope::decode(&*self.payload).unwrap()
    }

    /// The code of a close frame.
    pub(crate) fn close_code(&self) -> u16 {
        assert_eq!(self.opcode, CLOSE, "{self:?}");
        u16::from_be_bytes([self.payload[0], self.payload[1]])
    }
}

impl Raw {
    /// A WebSocket right after the upgrade.
    pub(crate) async fn connect(relay: SocketAddr) -> Self {
        Self::try_connect(relay).await.unwrap()
    }

    /// A WebSocket, or the head of another response.
    pub(crate) async fn try_connect(relay: SocketAddr) -> Result<Self, String> {
        let mut stream = TcpStream::connect(relay).await.unwrap();
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {relay}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        if head.starts_with("HTTP/1.1 101 ") { Ok(Self { stream }) } else { Err(head) }
    }

    /// An authenticated client, and its address.
    pub(crate) async fn join(relay: SocketAddr, number: u64) -> (Self, String) {
        let mut raw = Self::connect(relay).await;
        let Some(Payload::AuthChallenge(challenge)) = raw.read().await.envelope().payload else {
            panic!("no challenge");
        };
        raw.write(BINARY | FINAL, &wrapped(auth_response(&key(number), &challenge))).await;
        let Some(Payload::AuthResult(result)) = raw.read().await.envelope().payload else {
            panic!("no result");
        };
        assert!(result.success, "{result:?}");
        (raw, result.assigned_address)
    }

    /// Writes one masked frame; the first byte is the opcode and its flags.
    pub(crate) async fn write(&mut self, first: u8, payload: &[u8]) {
        self.stream.write_all(&frame(first, payload)).await.unwrap();
    }

    pub(crate) async fn read(&mut self) -> Frame {
        timeout(TIMEOUT, self.read_frame()).await.expect("a frame in time").expect("a frame")
    }

    /// The next frame; `None` when the connection has ended.
    pub(crate) async fn read_frame(&mut self) -> Option<Frame> {
        let stream = &mut self.stream;
        let opcode = stream.read_u8().await.ok()? & 0x0f;
        let len = match stream.read_u8().await.ok()? {
            126 => u64::from(stream.read_u16().await.ok()?),
            127 => stream.read_u64().await.ok()?,
            len => u64::from(len),
        };
        let mut payload = vec![0; len as usize];
        stream.read_exact(&mut payload).await.ok()?;
        Some(Frame { opcode, payload })
    }

    /// Reads until the connection ends; the frames before that.
    pub(crate) async fn read_to_end(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        let read = async {
            while let Some(frame) = self.read_frame().await {
                frames.push(frame);
            }
        };
        timeout(TIMEOUT, read).await.expect("a close in time");
        frames
    }
}

/// A masked frame, with a mask that changes nothing.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..126 => bytes.push(0x80 | len as u8),
        len @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

pub(crate) const FINAL: u8 = 0x80;
pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
