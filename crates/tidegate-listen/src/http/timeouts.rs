//! The time-outs of an HTTP connection.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use crate::byte_budget::BudgetKind;
use crate::permits::Permit;
use crate::read_gate::ReadGate;

/// How long each phase of a connection may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The head of a request. The first one has to arrive within this time of the connection.
    pub head_time: Duration,
    /// The body of a request.
    pub request_time: Duration,
    /// Silence between two requests.
    pub idle_time: Duration,
    /// A response that the client does not read.
    pub write_time: Duration,
}

impl Default for Timeouts {
    /// 10 s for a head, 30 s for a body, 60 s between requests, 10 s for a response.
    fn default() -> Self {
        Self {
            head_time: Duration::from_secs(10),
            request_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(60),
            write_time: Duration::from_secs(10),
        }
    }
}

/// The phase of a connection: what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// The first byte of a request.
    Idle,
    /// The rest of its head.
    Head,
    /// Its body.
    Body,
    /// The service, for the response and its body.
    Deciding,
    /// The client, to read the response.
    Writing,
    /// The connection is not HTTP any more.
    Upgraded,
}

impl ConnectionPhase {
    /// Whether a whole request has arrived and its response is not sent yet.
    const fn has_request(self) -> bool {
        matches!(self, Self::Deciding | Self::Writing | Self::Upgraded)
    }
}

/// The current phase of a connection, with its time-out.
///
/// The timer is reset only when a connection waits in a phase with a shorter time-out than the one
/// it was set for; otherwise it runs until it fires. So busy connections reset no timer, and a
/// time-out comes after the allowed time, but before twice that time.
#[derive(Debug)]
pub struct PhaseTracker {
    /// The phase in the lowest bits, above it the number of finished requests.
    moment: AtomicU64,
    timeouts: Timeouts,
    permit: Arc<Permit>,
    /// The bytes of the last read: after a request that much of the next one may be buffered.
    last_read: AtomicUsize,
    /// Whether the last write had to wait for the client.
    is_stalled: AtomicBool,
    /// How often a write has succeeded after a wait.
    writes: AtomicU64,
    stream_dropped: Notify,
}

impl PhaseTracker {
    /// A connection before its first request.
    #[must_use]
    pub fn new(timeouts: Timeouts, permit: Arc<Permit>) -> Self {
        Self {
            moment: AtomicU64::new(0),
            timeouts,
            permit,
            last_read: AtomicUsize::new(0),
            is_stalled: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            stream_dropped: Notify::new(),
        }
    }

    /// Enters a phase.
    pub fn enter(&self, phase: ConnectionPhase) {
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

    /// The request is dropped.
    pub(super) fn release_received(&self) {
        self.permit.hold(BudgetKind::Received, self.last_read.load(Ordering::Relaxed));
    }

    /// The request is dropped, and its response with a body of this length is ready to be written.
    pub fn respond(&self, length: usize) {
        self.release_received();
        self.permit.hold(BudgetKind::Unsent, length);
        self.enter(ConnectionPhase::Writing);
    }

    /// The current phase.
    #[must_use]
    pub fn phase(&self) -> ConnectionPhase {
        match self.moment.load(Ordering::Relaxed) % PHASES {
            0 => ConnectionPhase::Idle,
            1 => ConnectionPhase::Head,
            2 => ConnectionPhase::Body,
            3 => ConnectionPhase::Deciding,
            4 => ConnectionPhase::Writing,
            _ => ConnectionPhase::Upgraded,
        }
    }

    /// The permit of the connection.
    #[must_use]
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Waits until the stream of the connection is dropped.
    pub(super) async fn stream_dropped(&self) {
        self.stream_dropped.notified().await;
    }

    /// How long the current phase may last.
    fn allowed(&self) -> Duration {
        match self.phase() {
            // Before its first request a connection gets the shorter head time-out.
            ConnectionPhase::Idle if self.moment.load(Ordering::Relaxed) / PHASES == 0 => {
                self.timeouts.head_time
            }
            ConnectionPhase::Deciding if self.is_stalled() => self.timeouts.write_time,
            // The service has a bound of its own.
            ConnectionPhase::Idle | ConnectionPhase::Deciding => self.timeouts.idle_time,
            ConnectionPhase::Head => self.timeouts.head_time,
            ConnectionPhase::Body => self.timeouts.request_time,
            ConnectionPhase::Writing | ConnectionPhase::Upgraded => self.timeouts.write_time,
        }
    }

    fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed)
    }

    /// Notes whether a write waits for the client.
    fn wrote<T>(&self, write: &Poll<T>) {
        let is_stalled = write.is_pending();
        if is_stalled != self.is_stalled() {
            self.is_stalled.store(is_stalled, Ordering::Relaxed);
            self.writes.fetch_add(u64::from(!is_stalled), Ordering::Relaxed);
        }
    }

    /// What changes as long as the connection makes progress.
    fn progress(&self) -> (u64, u64) {
        let writes = match self.phase() {
            ConnectionPhase::Deciding => self.writes.load(Ordering::Relaxed),
            _ => 0,
        };
        let moment = self.moment.load(Ordering::Relaxed);
        // The first head has one time-out, from the first moment of the connection on.
        let is_first_head = moment == ConnectionPhase::Head as u64;
        (if is_first_head { ConnectionPhase::Idle as u64 } else { moment }, writes)
    }

    /// Runs the work of a connection; `None` if it timed out.
    pub async fn over<F: Future>(&self, mut work: Pin<&mut F>) -> Option<F::Output> {
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
    /// The progress at which it was set, and for how long.
    progress: (u64, u64),
    length: Duration,
}

impl PhaseTimer {
    fn new(watch: &PhaseTracker) -> Self {
        let length = watch.allowed();
        let sleep = Box::pin(tokio::time::sleep(length));
        Self { sleep, progress: watch.progress(), length }
    }

    fn poll_over(&mut self, watch: &PhaseTracker, context: &mut Context<'_>) -> Poll<()> {
        if watch.allowed() < self.length {
            self.set(watch);
        }
        loop {
            ready!(self.sleep.as_mut().poll(context));
            let is_same = watch.progress() == self.progress;
            let is_deciding = watch.phase() == ConnectionPhase::Deciding && !watch.is_stalled();
            if is_same && !is_deciding {
                return Poll::Ready(());
            }
            self.set(watch);
        }
    }

    fn set(&mut self, watch: &PhaseTracker) {
        self.length = watch.allowed();
        self.progress = watch.progress();
        // The runtime's time, not a limiter's clock: no decision depends on it.
        let now = Instant::now();
        let at = now.checked_add(self.length).unwrap_or_else(|| now + A_YEAR);
        self.sleep.as_mut().reset(at);
    }
}

/// A stream that tracks the phase of its connection. Once the connection is upgraded, reads and
/// writes fail when it has to make room for others.
pub struct TrackedStream<I, W: Deref<Target = PhaseTracker>> {
    /// There until it is dropped.
    io: Option<I>,
    watch: W,
    gate: ReadGate,
    /// Once it is upgraded: ready when it has to be closed.
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    /// Closes an upgraded stream.
    close_upgraded: fn(I, &W),
}

impl<I, W: Deref<Target = PhaseTracker>> Drop for TrackedStream<I, W> {
    fn drop(&mut self) {
        self.watch.stream_dropped.notify_one();
        let is_in_order = self.is_upgraded() && !self.watch.permit.state().is_closing();
        if let Some(io) = self.io.take()
            && is_in_order
        {
            (self.close_upgraded)(io, &self.watch);
        }
    }
}

impl<I, W: Deref<Target = PhaseTracker>> TrackedStream<I, W> {
    /// The stream of a connection.
    pub fn new(io: I, watch: W) -> Self {
        let (gate, close_upgraded) = (ReadGate::default(), |io, _: &W| drop(io));
        Self { io: Some(io), watch, gate, closing: None, close_upgraded }
    }

    /// Sets how the stream is closed once it is upgraded and dropped.
    pub(super) fn close_upgraded_by(mut self, close: fn(I, &W)) -> Self {
        self.close_upgraded = close;
        self
    }

    /// The stream alone.
    pub fn into_inner(mut self) -> I {
        self.io.take().expect("the stream is there until it is dropped")
    }

    fn io(&mut self) -> &mut I {
        self.io.as_mut().expect("the stream is there until it is dropped")
    }

    fn is_upgraded(&self) -> bool {
        self.watch.phase() == ConnectionPhase::Upgraded
    }

    fn check_open(&self) -> io::Result<()> {
        let is_closed = self.is_upgraded() && self.watch.permit.state().is_closing();
        if is_closed { Err(made_room()) } else { Ok(()) }
    }
}

impl<I: AsyncRead + Unpin, W: Deref<Target = PhaseTracker>> TrackedStream<I, W> {
    fn poll_read_upgraded(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let permit = &self.watch.permit;
        let closing = self.closing.get_or_insert_with(|| {
            permit.hold(BudgetKind::Received, 0);
            permit.hold(BudgetKind::Unsent, 0);
            let state = Arc::clone(permit.state());
            Box::pin(async move { state.closing().await })
        });
        if permit.state().is_closing() || closing.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(made_room()));
        }
        Pin::new(self.io()).poll_read(context, buffer)
    }
}

fn made_room() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "closed to make room for other connections")
}

impl<I: AsyncRead + Unpin, W: Deref<Target = PhaseTracker> + Unpin> AsyncRead
    for TrackedStream<I, W>
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_upgraded() {
            return self.poll_read_upgraded(context, buffer);
        }
        let Self { watch, gate, .. } = &mut *self;
        ready!(gate.poll_open(&watch.permit, context));
        let before = buffer.filled().len();
        let read = Pin::new(self.io()).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        let watch = &self.watch;
        if bytes > 0 {
            watch.read(bytes);
            if watch.phase() == ConnectionPhase::Idle {
                watch.enter(ConnectionPhase::Head);
            }
        }
        read
    }
}

impl<I: AsyncWrite + Unpin, W: Deref<Target = PhaseTracker> + Unpin> AsyncWrite
    for TrackedStream<I, W>
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_open()?;
        let write = Pin::new(self.io()).poll_write(context, bytes);
        self.watch.wrote(&write);
        write
    }

    /// Called when everything is written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS a write may be accepted, and wait for the socket all the same.
        let flushed = Pin::new(self.io()).poll_flush(context);
        self.watch.wrote(&flushed);
        let flushed = ready!(flushed);
        match self.watch.phase() {
            ConnectionPhase::Writing => self.watch.enter(ConnectionPhase::Idle),
            ConnectionPhase::Deciding => self.watch.permit.hold(BudgetKind::Unsent, 0),
            _ => {}
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.io()).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_open()?;
        let write = Pin::new(self.io()).poll_write_vectored(context, parts);
        self.watch.wrote(&write);
        write
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

impl<I: fmt::Debug, W: Deref<Target = PhaseTracker>> fmt::Debug for TrackedStream<I, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedStream").field("io", &self.io).finish_non_exhaustive()
    }
}

/// How many phases the lowest bits can hold.
const PHASES: u64 = 8;
const A_YEAR: Duration = Duration::from_secs(365 * 86_400);
