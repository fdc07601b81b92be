//! Detects peers that leave responses unread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::calls::OpenCall;
use tidegate_listen::{BudgetKind, Permit};

/// Counters of writes that were begun, and finished by the peer.
#[derive(Debug, Default)]
pub(crate) struct WriteProgress {
    begun: AtomicU64,
    finished: AtomicU64,
}

impl WriteProgress {
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn finish(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until writes are pending and none has finished for this long, or up to twice as long.
    pub(crate) async fn stalled_for(&self, time: Duration) {
        let mut ticks = tokio::time::interval(time.max(Duration::from_millis(1)));
        let mut before = None;
        loop {
            ticks.tick().await;
            let finished = self.finished.load(Ordering::Relaxed);
            if before == Some(finished) {
                return;
            }
            let is_pending = self.begun.load(Ordering::Relaxed) > finished;
            before = is_pending.then_some(finished);
        }
    }
}

/// The body of a response, which counts as pending until it is dropped.
#[derive(Debug)]
pub(crate) struct TrackedBody<B> {
    body: B,
    _call: OpenCall,
    permit: Arc<Permit>,
    progress: Option<Arc<WriteProgress>>,
    /// The bytes of the body that are charged already.
    charged: usize,
}

impl<B: Body> TrackedBody<B> {
    /// A response that the peer must read in time.
    pub(crate) fn tracked(
        body: B,
        call: OpenCall,
        permit: Arc<Permit>,
        progress: Arc<WriteProgress>,
    ) -> Self {
        progress.begin();
        let charged = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        permit.charge(BudgetKind::Unsent, charged);
        Self { body, _call: call, permit, progress: Some(progress), charged }
    }

    /// A response without a time limit, such as a stream.
    pub(crate) fn untracked(body: B, call: OpenCall, permit: Arc<Permit>) -> Self {
        Self { body, _call: call, permit, progress: None, charged: 0 }
    }
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        // The rest will not be sent.
        self.permit.release(BudgetKind::Unsent, self.charged);
        if let Some(progress) = &self.progress {
            progress.finish();
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            // From here on it counts until it is written to the socket.
            let more = data.len().saturating_sub(self.charged);
            self.permit.charge(BudgetKind::Unsent, more);
            self.charged = self.charged.saturating_sub(data.len());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
