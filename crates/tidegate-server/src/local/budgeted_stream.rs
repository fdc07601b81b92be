//! A stream whose received bytes are counted in the budget.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tidegate_listen::{BudgetKind, Permit, ReadGate};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::StopReceiving;

/// A stream that charges what it reads, and does not read while the budget is exceeded. The reader
/// releases what it has handled.
#[derive(Debug)]
pub(super) struct BudgetedStream<I> {
    io: I,
    permit: Arc<Permit>,
    gate: ReadGate,
}

impl<I> BudgetedStream<I> {
    pub(super) fn new(io: I, permit: Arc<Permit>) -> Self {
        Self { io, permit, gate: ReadGate::default() }
    }
}

impl<I: StopReceiving> StopReceiving for BudgetedStream<I> {
    fn stop_receiving(&self) -> io::Result<()> {
        self.io.stop_receiving()
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for BudgetedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, permit, gate } = &mut *self;
        ready!(gate.poll_open(permit, context));
        let before = buffer.filled().len();
        let read = Pin::new(io).poll_read(context, buffer);
        permit.charge(BudgetKind::Received, buffer.filled().len() - before);
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for BudgetedStream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
