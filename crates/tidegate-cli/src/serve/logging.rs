//! Where the daemon's log goes: to stderr, one line for each event.

use tracing::level_filters::LevelFilter;

use crate::args::{LogFormat, LogLevel};

/// Sends everything that is logged from now on to stderr.
pub(crate) fn begin(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false);
    // Somebody who calls the command as a library may have a log of their own.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}
