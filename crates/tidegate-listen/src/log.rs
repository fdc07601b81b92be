//! The log of a process, with a bounded number of lines.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use line_limit::{LeftOut, LineLimit, LineLimitLayer};

mod line_limit;

/// Starts to log to standard error, as `RUST_LOG` says: `info` where it is unset or empty.
///
/// A filter that cannot be read is an error: a process that logs less than was wanted shows it too
/// late. Lines are bounded, see [`LineLimit`]; what is left out is reported once per second.
///
/// Has no effect if the process has a subscriber already.
pub fn init() -> Result<(), FilterError> {
    let filter = filter(std::env::var_os("RUST_LOG"))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    install(tracing_subscriber::registry().with(filter).with(lines));
    Ok(())
}

/// Makes this the subscriber of the process, with a [`LineLimit`]; what is left out is reported
/// once per second.
///
/// Has no effect if the process has a subscriber already.
pub fn install<S>(subscriber: S)
where
    S: Subscriber + for<'s> LookupSpan<'s> + Send + Sync + 'static,
{
    let limit = LIMIT.get_or_init(LineLimit::default);
    if subscriber.with(LineLimitLayer(limit)).try_init().is_ok() {
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

/// Runs a program with this log: [starts](init) it, runs the program, [reports](report_left_out) what
/// was left out, and writes the error, if there is one, to standard error.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     tidegate_listen::log::run(|| {
///         tracing::info!("started");
///         Ok(())
///     })
/// }
/// ```
pub fn run(program: impl FnOnce() -> Result<(), Box<dyn Error>>) -> ExitCode {
    let done = init().map_err(Into::into).and_then(|()| program());
    report_left_out();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr fails too, there is nowhere else to report it.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Logs how many lines of which kinds were left out since the last report. For the end of a
/// process.
pub fn report_left_out() {
    LIMIT.get().into_iter().for_each(LineLimit::report_left_out);
}

/// The filter that the text of a variable describes.
fn filter(text: Option<OsString>) -> Result<EnvFilter, FilterError> {
    let text = text.unwrap_or_else(|| "info".into());
    let wrong = |reason: String| FilterError { text: text.to_string_lossy().into_owned(), reason };
    let readable = text.to_str().ok_or_else(|| wrong("it is not UTF-8".into()))?.trim();
    if readable.is_empty() {
        return Ok(EnvFilter::new("info"));
    }
    for directive in readable.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        check_level(directive).map_err(&wrong)?;
    }
    EnvFilter::try_new(readable).map_err(|error| wrong(error.to_string()))
}

/// A word that is no level is read as the name of a crate, whose events are then all that is
/// logged: `warning` would log nothing.
fn check_level(directive: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level.trim());
    let is_level = LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
        || matches!(level.as_bytes(), [b'0'..=b'5']);
    // `crate::module` and `[span]` without a level are valid and clearly no level.
    let is_target = !directive.contains('=') && (level.contains("::") || level.contains('['));
    if is_level || is_target {
        return Ok(());
    }
    Err(format!("{level:?} is not a level; the levels are {}", LEVELS.join(", ")))
}

/// A value of `RUST_LOG` that cannot be read.
#[derive(Clone, PartialEq, Eq)]
pub struct FilterError {
    text: String,
    reason: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RUST_LOG is {:?}: {}", self.text, self.reason)
    }
}

tidegate::debug_as_displayed!(FilterError);

impl Error for FilterError {}

static LIMIT: OnceLock<LineLimit> = OnceLock::new();

const REPORT_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
