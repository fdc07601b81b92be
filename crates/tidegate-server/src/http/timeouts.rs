//! The time-outs of a connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::byte_budget::{BudgetKind, ReadGate};
use crate::connections::Permit;
use crate::settings::Bounds;

/// The phase of a connection: what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// The first byte of a request.
    Idle,
    /// The rest of its head.
    Head,
    /// Its body.
    Body,
    /// The decision.
    Deciding,
    /// The client, to read the response.
    Writing,
}

impl ConnectionPhase {
    /// Whether a whole request has arrived and its response is not sent yet.
    const fn has_request(self) -> bool {
        matches!(self, Self::Deciding | Self::Writing)
    }
}

/// The current phase of a connection, with its time-out.
///
/// The timer is reset only when a connection waits in a phase with a shorter time-out than the one
/// it was set for; otherwise it runs until it fires. So busy connections reset no timer, and a
/// time-out comes after the allowed time, but before twice that time.
#[derive(Debug)]
pub(crate) struct PhaseTracker {
    /// The phase in the lowest bits, above it the number of finished requests.
    moment: AtomicU64,
    bounds: Bounds,
    permit: Arc<Permit>,
    /// The bytes of the last read: after a request that much of the next one may be buffered.
    last_read: AtomicUsize,
}

impl PhaseTracker {
    pub(crate) fn new(bounds: Bounds, permit: Arc<Permit>) -> Self {
        Self { moment: AtomicU64::new(0), bounds, permit, last_read: AtomicUsize::new(0) }
    }

    /// Enters a phase.
    pub(crate) fn enter(&self, phase: ConnectionPhase) {
        match (self.phase().has_request(), phase.has_request()) {
            (false, true) => self.permit.begin_request(),
            (true, false) => {
                self.permit.hold(BudgetKind::Unsent, 0);
                self.permit.end_request();
            }
            _ => {}
        }
        let finished = self.moment.load(Ordering::Relaxed) / PHASES;
        let finished = finished.wrapping_add(u64::from(phase == ConnectionPhase::Idle));
        self.moment.store(finished.wrapping_mul(PHASES) + phase as u64, Ordering::Relaxed);
    }

    /// Counts bytes of a request.
    fn read(&self, bytes: usize) {
        self.last_read.store(bytes, Ordering::Relaxed);
        // The buffer of a body grows by doubling.
        let times = if self.phase() == ConnectionPhase::Body { 2 } else { 1 };
        self.permit.charge(BudgetKind::Received, bytes * times);
    }

    /// The request is dropped, and its response is ready to be written.
    pub(crate) fn respond(&self, response: &Response<Full<Bytes>>) {
        let length = response.body().size_hint().lower();
        self.permit.hold(BudgetKind::Received, self.last_read.load(Ordering::Relaxed));
        self.permit.hold(BudgetKind::Unsent, usize::try_from(length).unwrap_or(usize::MAX));
        self.enter(ConnectionPhase::Writing);
    }

    pub(crate) fn phase(&self) -> ConnectionPhase {
        match self.moment.load(Ordering::Relaxed) % PHASES {
            0 => ConnectionPhase::Idle,
            1 => ConnectionPhase::Head,
            2 => ConnectionPhase::Body,
            3 => ConnectionPhase::Deciding,
            _ => ConnectionPhase::Writing,
        }
    }

    /// How long the current phase may last.
    fn allowed(&self) -> Duration {
        match self.phase() {
            // Before its first request a connection gets the shorter head time-out.
            ConnectionPhase::Idle if self.moment.load(Ordering::Relaxed) / PHASES == 0 => {
                self.bounds.head_time
            }
            // A decision has a bound of its own.
            ConnectionPhase::Idle | ConnectionPhase::Deciding => self.bounds.idle_time,
            ConnectionPhase::Head => self.bounds.head_time,
            ConnectionPhase::Body => self.bounds.request_time,
            ConnectionPhase::Writing => self.bounds.write_time,
        }
    }

    /// Runs the work of a connection; `None` if it timed out.
    pub(crate) async fn over<F: Future>(&self, mut work: Pin<&mut F>) -> Option<F::Output> {
        let mut timer = PhaseTimer::new(self);
        std::future::poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => timer.poll_over(self, context).map(|()| None),
        })
        .await
    }
}

/// Fires when a connection has been in the same phase for too long.
struct PhaseTimer {
    sleep: Pin<Box<Sleep>>,
    /// The moment at which it was set, and for how long.
    moment: u64,
    length: Duration,
}

impl PhaseTimer {
    fn new(watch: &PhaseTracker) -> Self {
        let length = watch.allowed();
        let moment = watch.moment.load(Ordering::Relaxed);
        Self { sleep: Box::pin(tokio::time::sleep(length)), moment, length }
    }

    fn poll_over(&mut self, watch: &PhaseTracker, context: &mut Context<'_>) -> Poll<()> {
        if watch.allowed() < self.length {
            self.set(watch);
        }
        loop {
            ready!(self.sleep.as_mut().poll(context));
            let is_same = watch.moment.load(Ordering::Relaxed) == self.moment;
            if is_same && watch.phase() != ConnectionPhase::Deciding {
                return Poll::Ready(());
            }
            self.set(watch);
        }
    }

    fn set(&mut self, watch: &PhaseTracker) {
        self.length = watch.allowed();
        self.moment = watch.moment.load(Ordering::Relaxed);
        // The runtime's time, not the engine's clock: no decision depends on it.
        let now = Instant::now();
        let at = now.checked_add(self.length).unwrap_or_else(|| now + A_YEAR);
        self.sleep.as_mut().reset(at);
    }
}

/// A stream that tracks the phase of its connection.
#[derive(Debug)]
pub(crate) struct TrackedStream<'w, I> {
    io: I,
    watch: &'w PhaseTracker,
    gate: ReadGate,
}

impl<'w, I> TrackedStream<'w, I> {
    pub(crate) fn new(io: I, watch: &'w PhaseTracker) -> Self {
        Self { io, watch, gate: ReadGate::default() }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for TrackedStream<'_, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, watch, gate } = &mut *self;
        ready!(gate.poll_open(&watch.permit, context));
        let before = buffer.filled().len();
        let read = Pin::new(io).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            watch.read(bytes);
            if watch.phase() == ConnectionPhase::Idle {
                watch.enter(ConnectionPhase::Head);
            }
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for TrackedStream<'_, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    /// Called when everything is written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.io).poll_flush(context));
        if self.watch.phase() == ConnectionPhase::Writing {
            self.watch.enter(ConnectionPhase::Idle);
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// How many phases the lowest bits can hold.
const PHASES: u64 = 8;
const A_YEAR: Duration = Duration::from_secs(365 * 86_400);
