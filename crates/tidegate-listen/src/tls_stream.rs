//! The stream of a connection with TLS, and what it holds in memory.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::byte_budget::BudgetKind;
use crate::permits::Permit;
use crate::read_gate::ReadGate;

/// A connection with TLS, after its handshake.
///
/// A write is accepted only when all earlier ones are in the socket, so a peer that does not read is
/// noticed with TLS as it is without. A peer that ends the connection without `close_notify` has
/// ended it: all protocols here know where a request ends.
pub struct TlsStream {
    tls: tokio_rustls::server::TlsStream<RawStream>,
}

impl TlsStream {
    pub(crate) fn new(mut tls: tokio_rustls::server::TlsStream<RawStream>) -> Self {
        tls.get_mut().0.end_handshake();
        Self { tls }
    }

    /// The state of TLS.
    pub(crate) fn session(&self) -> &ServerConnection {
        self.tls.get_ref().1
    }

    /// Counts what was received and is not read yet. A full buffer may have left a rest.
    fn count_received(&mut self, is_full: bool) {
        let (raw, session) = self.tls.get_mut();
        let decrypted = match is_full.then(|| session.process_new_packets()) {
            Some(Ok(state)) => state.plaintext_bytes_to_read(),
            _ => 0,
        };
        raw.hold(BudgetKind::Received, raw.records.unfinished() + decrypted);
    }

    /// Counts what was accepted and is not in the socket yet.
    fn count_unsent(&mut self, accepted: usize) {
        let (raw, session) = self.tls.get_mut();
        // All but the last part of it has been sent.
        let unsent = if session.wants_write() { accepted.min(UNSENT_BYTES_MAX) } else { 0 };
        raw.hold(BudgetKind::Unsent, unsent);
    }

    /// Ready when all that was accepted is in the socket.
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session().wants_write() {
            ready!(Pin::new(&mut self.tls).poll_flush(context))?;
        }
        self.count_unsent(0);
        Poll::Ready(Ok(()))
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tls.get_ref().0.tcp.as_fd()
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.tls).poll_read(context, buffer);
        self.count_received(buffer.remaining() == 0);
        match read {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(()))
            }
            read => read,
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(context))?;
        let written = ready!(Pin::new(&mut self.tls).poll_write(context, bytes))?;
        self.count_unsent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(context)
    }

    /// One record for all parts.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(context))?;
        let written = ready!(Pin::new(&mut self.tls).poll_write_vectored(context, parts))?;
        self.count_unsent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").finish_non_exhaustive()
    }
}

/// The encrypted bytes of a connection.
#[derive(Debug)]
pub(crate) struct RawStream {
    tcp: TcpStream,
    permit: Arc<Permit>,
    records: Records,
    /// Until the handshake is complete.
    handshake: Option<HandshakeInput>,
    /// What is counted as held, in the order of [`BudgetKind::ALL`].
    held: [usize; BudgetKind::ALL.len()],
}

/// What a peer has sent in its handshake.
#[derive(Debug, Default)]
struct HandshakeInput {
    bytes: usize,
    gate: ReadGate,
}

impl RawStream {
    pub(crate) fn new(tcp: TcpStream, permit: Arc<Permit>) -> Self {
        let handshake = Some(HandshakeInput::default());
        let held = Default::default();
        let mut raw = Self { tcp, permit, records: Records::default(), handshake, held };
        raw.hold(BudgetKind::Received, HANDSHAKE_BYTES);
        raw
    }

    /// The stream after a handshake that failed.
    pub(crate) fn into_tcp(mut self) -> TcpStream {
        self.hold(BudgetKind::Received, 0);
        self.tcp
    }

    fn end_handshake(&mut self) {
        self.handshake = None;
        self.hold(BudgetKind::Received, self.records.unfinished());
    }

    fn hold(&mut self, kind: BudgetKind, bytes: usize) {
        // Nearly always it is none before and none after.
        if self.held[kind as usize] != bytes {
            self.held[kind as usize] = bytes;
            self.permit.hold_for_transport(kind, bytes);
        }
    }
}

impl AsyncRead for RawStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(handshake) = &mut this.handshake {
            ready!(handshake.gate.poll_open(&this.permit, context));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.tcp).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        this.records.receive(read);
        if let Some(handshake) = &mut this.handshake {
            handshake.bytes += read.len();
            let bytes = handshake.bytes;
            if bytes > HANDSHAKE_BYTES_MAX {
                let error = "the handshake is too large";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
            this.hold(BudgetKind::Received, HANDSHAKE_BYTES + bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RawStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

/// Where the records of TLS begin in the bytes of a peer: what has arrived of an unfinished one
/// waits in memory, because only a whole record can be decrypted.
#[derive(Debug, Default)]
pub(crate) struct Records {
    head: [u8; HEAD_BYTES],
    /// How much of the head has arrived.
    filled: usize,
    /// The bytes of the record's content that have arrived, and those that have not.
    arrived: usize,
    missing: usize,
}

impl Records {
    fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled < HEAD_BYTES {
                let (now, later) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.filled));
                self.head[self.filled..][..now.len()].copy_from_slice(now);
                self.filled += now.len();
                bytes = later;
                if self.filled == HEAD_BYTES {
                    let [.., high, low] = self.head;
                    self.missing = usize::from(u16::from_be_bytes([high, low]));
                }
            }
            let now = bytes.len().min(self.missing);
            self.arrived += now;
            self.missing -= now;
            bytes = &bytes[now..];
            if self.filled == HEAD_BYTES && self.missing == 0 {
                *self = Self::default();
            }
        }
    }

    /// The bytes of the unfinished record.
    fn unfinished(&self) -> usize {
        self.filled + self.arrived
    }
}

/// Responses that TLS holds until the socket accepts them: one record.
pub(crate) const UNSENT_BYTES_MAX: usize = 16 << 10;
const HEAD_BYTES: usize = 5;
/// The memory of a handshake beside what the peer sends: the state of TLS, its buffers, and the
/// certificate on its way.
const HANDSHAKE_BYTES: usize = 16 << 10;
/// The most that a peer may send in a handshake. One message has 64 KiB at most.
const HANDSHAKE_BYTES_MAX: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_records_are_counted_however_the_bytes_are_split() {
        let bytes = [&b"\x17\x03\x03\0\x03abc\x16\x03\x01\0\0\x17\x03\x03\x01\0"[..], &[b'x'; 255]];
        let bytes = bytes.concat();
        for part in 1..=bytes.len() {
            let mut records = Records::default();
            for bytes in bytes.chunks(part) {
                records.receive(bytes);
            }
            assert_eq!(records.unfinished(), 260, "{part}");
            records.receive(b"y");
            assert_eq!(records.unfinished(), 0, "{part}");
        }
    }
}
