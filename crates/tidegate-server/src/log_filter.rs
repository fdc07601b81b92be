//! Which events are logged: by level, and at a bounded rate per kind of event.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate::{Bucket, Limiter, Rate};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// A layer of `tracing` that bounds the log, whatever clients do.
///
/// Events of one kind, which are logged by one line of code, have a rate of their own: 10 per second,
/// and 100 at once. What exceeds it is counted and left out. Of crates other than tidegate's only
/// warnings and errors are logged. Add it above the layers that write the log, and let it report
/// what was left out. Clones are handles of the same filter.
///
/// ```
/// use tidegate_server::LogFilter;
/// use tracing::level_filters::LevelFilter;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let filter = LogFilter::new(LevelFilter::INFO);
/// // Together with a layer that writes: `registry().with(writer).with(filter.clone())`.
/// let subscriber = tracing_subscriber::registry().with(filter.clone());
/// tracing::subscriber::with_default(subscriber, || {
///     for _ in 0..1_000 {
///         tracing::warn!("a connection was refused");
///     }
///     filter.report_left_out();
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LogFilter(Arc<FilterState>);

#[derive(Debug)]
struct FilterState {
    level: LevelFilter,
    rates: Limiter<Identifier, Bucket>,
    left_out: Mutex<HashMap<Identifier, LeftOut>>,
}

/// Events of one kind that were left out.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftOut {
    /// The message of the first of them.
    message: String,
    count: u64,
}

impl LogFilter {
    /// A filter that lets events of this level and above pass.
    #[must_use]
    pub fn new(level: LevelFilter) -> Self {
        let rate = Rate::per_second(LINES_PER_SECOND).expect("the rate is not zero");
        let bucket = Bucket::new(rate, LINES_AT_ONCE).expect("the burst is not zero");
        let (rates, left_out) = (Limiter::new(bucket), Mutex::default());
        Self(Arc::new(FilterState { level, rates, left_out }))
    }

    /// Logs how many events of which kinds were left out since the last call.
    pub fn report_left_out(&self) {
        for kind in self.0.take_left_out() {
            tracing::warn!(event = kind.message, lines = kind.count, "log lines left out");
        }
    }

    /// Starts a thread that reports every second what was left out, until no handle of the filter is
    /// left. For filters of the global subscriber: it logs from a thread of its own.
    pub fn report_every_second(&self) -> io::Result<()> {
        let filter = Arc::downgrade(&self.0);
        let report = move || {
            while let Some(state) = filter.upgrade() {
                Self(state).report_left_out();
                thread::park_timeout(REPORT_EVERY);
            }
        };
        thread::Builder::new().name("tidegate-log".into()).spawn(report).map(drop)
    }
}

impl<S: Subscriber> Layer<S> for LogFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.0.is_on(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        self.0.is_on(metadata)
    }

    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        self.0.admits(event)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.level)
    }
}

impl FilterState {
    /// What was left out since the last call.
    fn take_left_out(&self) -> Vec<LeftOut> {
        let mut left_out: Vec<_> = self.lock().drain().map(|(_, kind)| kind).collect();
        left_out.sort_unstable_by(|a, b| a.message.cmp(&b.message));
        left_out
    }

    /// Whether events of this kind are logged at all: of other crates only warnings and errors.
    fn is_on(&self, metadata: &Metadata<'_>) -> bool {
        let level = metadata.level();
        *level <= self.level
            && (metadata.target().starts_with("tidegate") || *level <= LevelFilter::WARN)
    }

    fn admits(&self, event: &Event<'_>) -> bool {
        let kind = event.metadata().callsite();
        if self.rates.allow(&kind) {
            return true;
        }
        let mut left_out = self.lock();
        let left_out = left_out.entry(kind).or_default();
        if left_out.count == 0 {
            event.record(&mut MessageOf(&mut left_out.message));
        }
        left_out.count += 1;
        false
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identifier, LeftOut>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies the message of an event.
struct MessageOf<'m>(&'m mut String);

impl Visit for MessageOf<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}").chars().take(MESSAGE_CHARACTERS).collect();
        }
    }
}

/// The lines of one kind of event: in the long run, and at once.
const LINES_PER_SECOND: u64 = 10;
const LINES_AT_ONCE: u64 = 100;
const MESSAGE_CHARACTERS: usize = 200;
const REPORT_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
