use std::io;
use std::ops::Range;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use tollgate::Clock;
use tollgate_proto::ipc::{self, Decoder, IpcError};

use crate::{Next, Peer, Service};

/// How long a connection may take for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a frame to its last.
    pub frame: Duration,
    /// From the connection or the last answer to the first byte of a frame.
    pub idle: Duration,
    /// For taking an answer.
    pub write: Duration,
    /// For what has arrived when the service ends.
    pub close: Duration,
}

impl Default for Timeouts {
    /// 30 seconds for a frame and between frames, 10 for an answer, 5 for the end.
    fn default() -> Self {
        Self {
            frame: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            write: Duration::from_secs(10),
            close: Duration::from_secs(5),
        }
    }
}

/// How a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended {
    /// The peer left between two frames.
    Left,
    /// The peer left in the middle of a frame.
    LeftHalfway,
    /// The peer was told something after which there is nothing to say.
    Dismissed,
    /// A frame took too long.
    SlowFrame,
    /// No frame came.
    Idle,
    /// An answer was not taken.
    SlowReader,
    /// The service ends.
    Closing,
    /// The socket failed.
    Failed(io::Error),
}

/// Serves a peer's requests one after another, until either has had enough.
///
/// When `closing` turns true it ends as soon as nothing more has arrived.
pub async fn serve_connection<S, C>(
    stream: S,
    peer: &Peer,
    service: &Service<C>,
    timeouts: Timeouts,
    mut closing: watch::Receiver<bool>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Clock + Send + Sync + 'static,
{
    let mut frames = Frames::new(stream, timeouts);
    loop {
        let frame = tokio::select! {
            // A request that has arrived is answered even then.
            biased;
            frame = frames.next() => frame,
            _ = closing.wait_for(|is_closing| *is_closing) => return Ended::Closing,
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(ended) => return ended,
        };
        let reply = service.answer(peer, frame.as_deref());
        // An answer is far below the size of a frame.
        let Ok(bytes) = ipc::encode(&reply.response) else { return Ended::Dismissed };
        match timeout(timeouts.write, frames.stream.write_all(&bytes)).await {
            Err(_) => return Ended::SlowReader,
            Ok(Err(error)) => return Ended::Failed(error),
            Ok(Ok(())) => {}
        }
        if reply.next == Next::Close {
            return Ended::Dismissed;
        }
    }
}

/// The frames of a stream.
struct Frames<S> {
    stream: S,
    timeouts: Timeouts,
    decoder: Decoder,
    buffer: Box<[u8; READ_BYTES]>,
    /// What has been read and not looked at.
    unread: Range<usize>,
}

impl<S: AsyncRead + Unpin> Frames<S> {
    fn new(stream: S, timeouts: Timeouts) -> Self {
        let buffer = Box::new([0; READ_BYTES]);
        Self { stream, timeouts, decoder: Decoder::new(), buffer, unread: 0..0 }
    }

    /// The next frame, or what is wrong with it.
    async fn next(&mut self) -> Result<Result<String, IpcError>, Ended> {
        if self.unread.is_empty() {
            let idle = self.timeouts.idle;
            timeout(idle, self.read()).await.map_err(|_| Ended::Idle)??;
        }
        let frame = self.timeouts.frame;
        timeout(frame, self.complete()).await.map_err(|_| Ended::SlowFrame)?
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
