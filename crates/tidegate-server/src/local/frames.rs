//! Reads and writes frames, within bounds of time.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::time::Duration;

use socket2::SockRef;
use tidegate_proto::ipc::{Decoder, IpcError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::settings::Bounds;
use tidegate_listen::PeerStream;

/// The time-outs of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTimes {
    /// From the first byte of a frame to its last.
    pub frame: Duration,
    /// From the connection or the last response to the first byte of a frame.
    pub idle: Duration,
    /// For reading a response.
    pub write: Duration,
}

impl From<&Bounds> for FrameTimes {
    fn from(bounds: &Bounds) -> Self {
        Self { frame: bounds.request_time, idle: bounds.idle_time, write: bounds.write_time }
    }
}

/// How a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended {
    /// The peer closed it between two frames.
    Left,
    /// The peer closed it in the middle of a frame.
    LeftHalfway,
    /// The server closed it after an error.
    Dismissed,
    /// A frame did not arrive in time.
    SlowFrame,
    /// The peer sent no frame in time.
    Idle,
    /// The peer did not read a response in time.
    SlowReader,
    /// The server is shutting down.
    Stopping,
    /// The socket failed.
    Failed(io::Error),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "closed by the peer",
            Self::LeftHalfway => "closed by the peer in a frame",
            Self::Dismissed => "closed after an error",
            Self::SlowFrame => "time-out in a frame",
            Self::Idle => "time-out",
            Self::SlowReader => "the peer reads no response",
            Self::Stopping => "shutdown",
            Self::Failed(error) => return error.fmt(f),
        })
    }
}

/// A stream whose peer can be kept from sending more.
pub trait StopReceiving {
    /// Ends the direction from the peer. The bytes that have arrived can still be read, followed by
    /// the end of the stream; what the peer sends from now on fails on its side.
    fn stop_receiving(&self) -> io::Result<()>;
}

impl StopReceiving for UnixStream {
    fn stop_receiving(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Read)
    }
}

impl StopReceiving for PeerStream {
    fn stop_receiving(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Read)
    }
}

/// The frames of a stream. It holds one at most.
#[derive(Debug)]
pub struct Frames<S> {
    stream: S,
    times: FrameTimes,
    decoder: Decoder,
    buffer: Box<[u8; READ_BYTES]>,
    /// The part of the buffer that is not decoded yet.
    unread: Range<usize>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// The frames of a stream.
    pub fn new(stream: S, times: FrameTimes) -> Self {
        let buffer = Box::new([0; READ_BYTES]);
        Self { stream, times, decoder: Decoder::new(), buffer, unread: 0..0 }
    }

    /// The next frame, or what is wrong with it.
    pub async fn next(&mut self) -> Result<Result<String, IpcError>, Ended> {
        if self.unread.is_empty() {
            let idle = self.times.idle;
            timeout(idle, self.read()).await.map_err(|_| Ended::Idle)??;
        }
        let frame = self.times.frame;
        timeout(frame, self.complete()).await.map_err(|_| Ended::SlowFrame)?
    }

    /// How many bytes were read and are not decoded yet.
    pub(crate) fn unread_len(&self) -> usize {
        self.unread.len()
    }

    /// Writes a frame. Fails if the peer does not read it in time.
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), Ended> {
        match timeout(self.times.write, self.stream.write_all(frame)).await {
            Err(_) => Err(Ended::SlowReader),
            Ok(Err(error)) => Err(Ended::Failed(error)),
            Ok(Ok(())) => Ok(()),
        }
    }

    /// Ends the direction from the peer, for a shutdown: [`next`](Self::next) returns the frames that
    /// have arrived, and then that the peer has left.
    ///
    /// Reading until no byte is there would not do: the runtime learns later than the kernel that
    /// bytes have arrived, and a close would discard them.
    pub fn stop_receiving(&self) -> io::Result<()>
    where
        S: StopReceiving,
    {
        self.stream.stop_receiving()
    }

    async fn complete(&mut self) -> Result<Result<String, IpcError>, Ended> {
        loop {
            let mut input = &self.buffer[self.unread.clone()];
            let next = self.decoder.next(&mut input);
            self.unread.start = self.unread.end - input.len();
            match next.transpose() {
                Some(frame) => return Ok(frame),
                None => self.read().await?,
            }
        }
    }

    /// Reads some bytes, at least one.
    async fn read(&mut self) -> Result<(), Ended> {
        let count = self.stream.read(&mut self.buffer[..]).await.map_err(Ended::Failed)?;
        if count == 0 {
            let is_between = self.decoder.is_between_frames();
            return Err(if is_between { Ended::Left } else { Ended::LeftHalfway });
        }
        self.unread = 0..count;
        Ok(())
    }
}

/// A request is much smaller; a longer one takes several reads.
const READ_BYTES: usize = 2048;
