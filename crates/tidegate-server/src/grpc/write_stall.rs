//! What the other side leaves unread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};

/// What is offered to the other side of a connection, and how much of it was taken.
#[derive(Debug, Default)]
pub(crate) struct WriteProgress {
    made: AtomicU64,
    taken: AtomicU64,
}

impl WriteProgress {
    pub(crate) fn make(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until something is on offer of which nothing was taken for so long, or for up to twice that.
    pub(crate) async fn ignored_for(&self, time: Duration) {
        let mut looks = tokio::time::interval(time.max(Duration::from_millis(1)));
        let mut before = None;
        loop {
            looks.tick().await;
            let taken = self.taken.load(Ordering::Relaxed);
            if before == Some(taken) {
                return;
            }
            let is_open = self.made.load(Ordering::Relaxed) > taken;
            before = is_open.then_some(taken);
        }
    }
}

/// The body of an answer, which is on offer until it was taken.
#[derive(Debug)]
pub(crate) struct TrackedBody<B> {
    body: B,
    progress: Option<Arc<WriteProgress>>,
}

impl<B> TrackedBody<B> {
    /// An answer that is to be read at once.
    pub(crate) fn now(body: B, progress: Arc<WriteProgress>) -> Self {
        progress.make();
        Self { body, progress: Some(progress) }
    }

    /// An answer that goes on for as long as it likes.
    pub(crate) const fn at_leisure(body: B) -> Self {
        Self { body, progress: None }
    }
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.take();
        }
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
