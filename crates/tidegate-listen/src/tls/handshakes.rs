//! Where handshakes run: on threads of their own, and so many at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::permits::{ConnectionState, Permit};

/// The handshakes of all listeners of a process. Clones are handles of the same.
///
/// A handshake computes for longer than most requests. So handshakes have threads of their own, half
/// as many as there are processors, with a lower priority than all others: a flood of connections
/// takes the time that requests leave. When there are too many at a time, the one that began first
/// makes room; a client that is not slow has finished by then.
#[derive(Clone)]
pub struct Handshakes {
    shared: Arc<Shared>,
}

struct Shared {
    /// There until it is dropped.
    threads: Option<Runtime>,
    max: usize,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    /// In the order in which they began.
    handshakes: BTreeMap<u64, Arc<ConnectionState>>,
    begun: u64,
}

impl Handshakes {
    /// Starts the threads. At most `max` handshakes are in progress at a time.
    pub fn start(max: usize) -> io::Result<Self> {
        let processors = available_parallelism().map_or(1, NonZero::get);
        let threads = Builder::new_multi_thread()
            .worker_threads((processors / 2).max(1))
            .thread_name("tls-handshakes")
            // Reads wait while the byte budget is exceeded.
            .enable_time()
            .on_thread_start(lower_priority)
            .build()?;
        let (threads, running) = (Some(threads), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { threads, max: max.max(1), running }) })
    }

    /// The number of handshakes in progress.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.shared.lock().handshakes.len()
    }

    /// Runs a handshake; `None` if the process ends. It ends when the future is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        permit: &Permit,
        handshake: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let _slot = self.begin(permit.state());
        let threads = self.shared.threads.as_ref()?;
        Task(threads.spawn(handshake)).await.ok()
    }

    fn begin(&self, state: &Arc<ConnectionState>) -> Slot<'_> {
        let mut running = self.shared.lock();
        running.begun += 1;
        let number = running.begun;
        if running.handshakes.len() >= self.shared.max
            && let Some((_, first)) = running.handshakes.pop_first()
        {
            first.close();
        }
        running.handshakes.insert(number, Arc::clone(state));
        Slot { shared: &self.shared, number }
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_progress = self.in_progress();
        f.debug_struct("Handshakes").field("in_progress", &in_progress).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            // Waiting for threads is not allowed where this may be dropped.
            threads.shutdown_background();
        }
    }
}

/// The right to have a handshake in progress.
struct Slot<'h> {
    shared: &'h Shared,
    number: u64,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.shared.lock().handshakes.remove(&self.number);
    }
}

/// A task that ends when this is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Future for Task<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Lowers the priority of the calling thread. On Linux a priority belongs to a thread; elsewhere it
/// would be that of the whole process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, PRIORITY) {
        tracing::debug!(%error, "the threads of TLS handshakes keep their priority");
    }
}

/// A thread with it gets about a tenth of the time of a usual one, while both have work.
#[cfg(target_os = "linux")]
const PRIORITY: i32 = 10;
