//! Which events are logged: by level.

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Filters events by level, for all layers above it.
#[derive(Debug)]
pub(crate) struct LogFilter {
    pub(crate) level: LevelFilter,
}

impl LogFilter {
    /// Whether events of this kind are logged at all: of other crates only warnings and errors.
    fn is_on(&self, metadata: &Metadata<'_>) -> bool {
        let level = metadata.level();
        *level <= self.level
            && (metadata.target().starts_with("tidegate") || *level <= LevelFilter::WARN)
    }
}

impl<S: Subscriber> Layer<S> for LogFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.is_on(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        self.is_on(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }
}
