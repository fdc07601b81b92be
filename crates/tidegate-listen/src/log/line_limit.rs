//! A bounded rate of log lines per kind of event.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate::{Bucket, Limiter};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Bounds log lines. Those of one kind, which are logged by one line of code, have a rate of their
/// own: 100 at once, 10 per second. What exceeds it is counted and left out.
#[derive(Debug)]
pub struct LineLimit {
    rates: Limiter<Identifier, Bucket>,
    left_out: Mutex<HashMap<Identifier, LeftOut>>,
}

/// Events of one kind that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The message of the first of them.
    pub message: String,
    /// Their number.
    pub count: u64,
}

impl Default for LineLimit {
    fn default() -> Self {
        let bucket = Bucket::per_second(LINES_PER_SECOND).burst(LINES_AT_ONCE);
        Self { rates: Limiter::new(bucket), left_out: Mutex::default() }
    }
}

impl LineLimit {
    /// What was left out since the last call.
    #[must_use]
    pub fn take_left_out(&self) -> Vec<LeftOut> {
        let mut left_out: Vec<_> = self.lock().drain().map(|(_, kind)| kind).collect();
        left_out.sort_unstable_by(|a, b| a.message.cmp(&b.message));
        left_out
    }

    /// Logs how many events of which kinds were left out since the last call.
    pub fn report_left_out(&self) {
        for kind in self.take_left_out() {
            tracing::warn!(event = kind.message, lines = kind.count, "log lines left out");
        }
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

/// A [`LineLimit`] as a layer: it decides for all layers below it.
#[derive(Debug)]
pub struct LineLimitLayer(pub &'static LineLimit);

impl<S: Subscriber> Layer<S> for LineLimitLayer {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        self.0.admits(event)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Counts what is logged.
    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Counter {
        fn on_event(&self, _event: &Event<'_>, _context: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn lines_of_one_kind_are_bounded_and_counted() {
        let limit: &'static LineLimit = Box::leak(Box::default());
        let counter = Counter::default();
        let logged = || counter.0.swap(0, Ordering::Relaxed);
        let subscriber =
            tracing_subscriber::registry().with(counter.clone()).with(LineLimitLayer(limit));
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..10_000 {
                tracing::warn!(number, "one kind");
            }
            let lines = logged();
            // Ten more per second, should this take long.
            assert!((100..1_000).contains(&lines), "{lines}");
            tracing::info!("another kind");
            assert_eq!(logged(), 1, "kinds do not take from each other");
            let expected = LeftOut { message: "one kind".into(), count: 10_000 - lines as u64 };
            assert_eq!(limit.take_left_out(), [expected]);
            limit.report_left_out();
            assert_eq!(logged(), 0, "nothing was left out since");
        });
    }
}
