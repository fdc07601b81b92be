//! The daemon's log: stderr, one line per event.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::log_filter::{LogFilter, LogFilterLayer};
use crate::args::{LogFormat, LogLevel};

/// Starts to log to stderr.
pub(crate) fn init(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let filter = FILTER.get_or_init(|| LogFilter::new(level));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    // A program that uses this crate as a library may have installed its own subscriber.
    let log = tracing_subscriber::registry().with(log).with(LogFilterLayer(filter));
    if log.try_init().is_ok() {
        let report = || {
            loop {
                thread::park_timeout(REPORT_EVERY);
                report_left_out();
            }
        };
        // Without the thread the lines that are left out are reported at the end only.
        let _ = thread::Builder::new().name("tidegate-log".into()).spawn(report);
    }
}

/// Logs how many events of which kinds were not logged.
pub(crate) fn report_left_out() {
    for kind in FILTER.get().map(LogFilter::take_left_out).unwrap_or_default() {
        tracing::warn!(event = kind.message, lines = kind.count, "log lines left out");
    }
}

static FILTER: OnceLock<LogFilter> = OnceLock::new();

const REPORT_EVERY: Duration = Duration::from_secs(1);
