use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tidegate_listen::{Permit, ReadGate};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::stream_bytes::StreamBytes;
use super::write_stall::WriteProgress;

/// A connection whose peer has sent the HTTP/2 preface.
///
/// The preface is read before the HTTP/2 layer starts, so that it has a time-out.
#[derive(Debug)]
pub(crate) struct PrefacedStream<S> {
    io: S,
    /// The part of the preface that is not replayed yet.
    left: &'static [u8],
    /// Counts writes that the peer does not accept at once.
    writes: Arc<WriteProgress>,
    is_waiting: bool,
    streams: StreamBytes,
    gate: ReadGate,
}

impl<S: AsyncRead + AsyncWrite + Unpin> PrefacedStream<S> {
    pub(crate) async fn new(
        mut io: S,
        writes: Arc<WriteProgress>,
        permit: Arc<Permit>,
    ) -> io::Result<Self> {
        let mut preface = [0; PREFACE.len()];
        let mut len = 0;
        while len < PREFACE.len() {
            let read = io.read(&mut preface[len..]).await?;
            len += read;
            // Another protocol is rejected at its first wrong byte.
            if read == 0 || preface[..len] != PREFACE[..len] {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let (streams, gate) = (StreamBytes::new(permit), ReadGate::default());
        Ok(Self { io, left: PREFACE, writes, is_waiting: false, streams, gate })
    }
}

impl<S> PrefacedStream<S> {
    /// Tracks whether a write is pending.
    fn tracked<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() != self.is_waiting {
            self.is_waiting = written.is_pending();
            if self.is_waiting { self.writes.begin() } else { self.writes.finish() }
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left.is_empty() {
            let Self { io, streams, gate, .. } = &mut *self;
            ready!(gate.poll_open(streams.permit(), context));
            let before = buffer.filled().len();
            let read = Pin::new(io).poll_read(context, buffer);
            streams.receive(&buffer.filled()[before..]);
            return read;
        }
        let (now, later) = self.left.split_at(self.left.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.left = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefacedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.streams.write(&bytes[..count]);
        }
        self.tracked(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS a write may be accepted, and wait for the socket all the same.
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.tracked(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        if let Poll::Ready(Ok(mut count)) = written {
            for part in parts {
                let now = count.min(part.len());
                self.streams.write(&part[..now]);
                count -= now;
            }
        }
        self.tracked(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// The first bytes of every HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
