//! The daemon's log: stderr, one line per event.

use tidegate_server::LogFilter;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{LogFormat, LogLevel};

/// Starts to log to stderr. The filter reports what it left out at the end.
pub(crate) fn init(format: LogFormat, level: LogLevel) -> LogFilter {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let filter = LogFilter::new(level);
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    // A program that uses this crate as a library may have installed its own subscriber.
    let log = tracing_subscriber::registry().with(log).with(filter.clone());
    if log.try_init().is_ok() {
        // Without the thread the lines that are left out are reported at the end only.
        let _ = filter.report_every_second();
    }
    filter
}
