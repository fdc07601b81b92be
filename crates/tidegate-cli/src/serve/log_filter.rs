//! Which events are logged: by level, and at a bounded rate per kind of event.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate::{Bucket, Limiter, Rate};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Filters events. Those of one kind, which are logged by one line of code, have a rate of their
/// own; what exceeds it is counted and left out.
#[derive(Debug)]
pub(crate) struct LogFilter {
    level: LevelFilter,
    rates: Limiter<Identifier, Bucket>,
    left_out: Mutex<HashMap<Identifier, LeftOut>>,
}

/// Events of one kind that were left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// The message of the first of them.
    pub(crate) message: String,
    pub(crate) count: u64,
}

impl LogFilter {
    pub(crate) fn new(level: LevelFilter) -> Self {
        let rate = Rate::per_second(LINES_PER_SECOND).expect("the rate is not zero");
        let bucket = Bucket::new(rate, LINES_AT_ONCE).expect("the burst is not zero");
        Self { level, rates: Limiter::new(bucket), left_out: Mutex::default() }
    }

    /// What was left out since the last call.
    pub(crate) fn take_left_out(&self) -> Vec<LeftOut> {
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Identifier, LeftOut>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The filter as a layer: it decides for all layers above it.
#[derive(Debug)]
pub(crate) struct LogFilterLayer(pub(crate) &'static LogFilter);

impl<S: Subscriber> Layer<S> for LogFilterLayer {
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

impl LogFilter {
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
