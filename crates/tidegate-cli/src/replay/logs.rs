//! Opens logs, shows progress, and reports what could not be read.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate::clock::{Clock, MonotonicClock};
use tidegate_replay::record::Record;
use tidegate_replay::{
    AttributePlan, FormatGuess, LineOrder, LogFormat, LogOptions, LogReader, Progress, ReadSummary,
    STANDARD_FIELDS, Source,
};

use crate::args::{LogArgs, LogFormatArg, is_stdin};
use crate::format;
use crate::input;
use crate::io::Io;

/// The logs to read, and how.
pub(crate) struct LogRun<'a> {
    pub(crate) args: &'a LogArgs,
    pub(crate) plan: &'a AttributePlan,
    pub(crate) logs: &'a [PathBuf],
}

/// Reads logs and reports on stderr what could not be read; `None` if they cannot be read at all.
pub(crate) fn read_logs(
    run: &LogRun<'_>,
    then: &mut impl FnMut(Record<'_>),
    io: &mut Io<'_>,
) -> io::Result<Option<ReadSummary>> {
    let Some(opened) = open(run.logs, io)? else { return Ok(None) };
    let bar = progress_bar(opened.bytes);
    let clock = MonotonicClock;
    let start = clock.now();
    let Io { stdin, stderr, .. } = io;
    let mut stdin = Some(&mut **stdin);
    let sources: Vec<Source<'_>> = (opened.logs.into_iter())
        .map(|(name, file)| Source {
            name,
            bytes: match (file, stdin.take()) {
                (Some(file), unused) => {
                    stdin = unused;
                    Box::new(file) as Box<dyn Read>
                }
                // `-` is there once, which was checked with the arguments.
                (None, Some(stdin)) => Box::new(stdin),
                (None, None) => Box::new(io::empty()),
            },
        })
        .collect();
    let mut lines_read = 0;
    let mut notes = Ok(());
    let read = LogReader::new(run.plan, options(run.args)).read(sources, then, &mut |progress| {
        if let Progress::Read { lines, .. } = progress {
            lines_read = lines;
        }
        if notes.is_ok() {
            notes = show(&progress, &bar, &mut **stderr);
        }
    });
    bar.finish_and_clear();
    notes?;
    match read {
        Ok(summary) => {
            let took = clock.now().saturating_duration_since(start);
            report(&summary, took.as_nanos(), io)?;
            Ok(Some(summary))
        }
        Err(error) => {
            writeln!(io.stderr, "error: {}", format::visible(&error.to_string()))?;
            if matches!(error, tidegate_replay::ReadError::Field { .. }) {
                let fields = STANDARD_FIELDS.join(", ");
                writeln!(
                    io.stderr,
                    "  = hint: it has {fields}; --log-format names another format"
                )?;
            }
            Ok(None)
        }
    }
}

struct OpenedLogs {
    /// Names and files; no file for stdin.
    logs: Vec<(String, Option<File>)>,
    /// Their size, if it is known.
    bytes: Option<u64>,
}

/// Opens all logs before the first is read.
fn open(paths: &[PathBuf], io: &mut Io<'_>) -> io::Result<Option<OpenedLogs>> {
    let mut opened = OpenedLogs { logs: Vec::new(), bytes: Some(0) };
    let mut is_complete = true;
    for path in paths {
        let name = input::name_of(path);
        if is_stdin(path) {
            opened.logs.push((name, None));
            opened.bytes = None;
            continue;
        }
        match open_file(path) {
            Ok((file, bytes)) => {
                opened.bytes = opened.bytes.and_then(|sum| Some(sum + bytes?));
                opened.logs.push((name, Some(file)));
            }
            Err(error) => {
                writeln!(io.stderr, "{}", input::unreadable(path, name, &error))?;
                is_complete = false;
            }
        }
    }
    Ok(is_complete.then_some(opened))
}

fn open_file(path: &Path) -> io::Result<(File, Option<u64>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

fn options(args: &LogArgs) -> LogOptions {
    LogOptions {
        format: args.log_format.map(|format| match format {
            LogFormatArg::Common => LogFormat::Common,
            LogFormatArg::Combined => LogFormat::Combined,
            LogFormatArg::Caddy => LogFormat::Caddy,
            LogFormatArg::Envoy => LogFormat::Envoy,
            LogFormatArg::Traefik => LogFormat::Traefik,
            LogFormatArg::Json => LogFormat::Json,
            LogFormatArg::Csv => LogFormat::Csv,
        }),
        time_field: args.time.clone(),
        order: if args.sort { LineOrder::Sorted } else { LineOrder::Window(args.window) },
        memory_bytes: (args.sort_memory as usize) << 20,
    }
}

/// A bar on a terminal; nothing elsewhere.
fn progress_bar(bytes: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = match bytes {
        Some(_) => "{bar:30} {percent}%  {bytes_per_sec}, {eta} left  {msg}",
        None => "{spinner} {bytes}, {bytes_per_sec}  {msg}",
    };
    let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
    bar.with_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

fn show(progress: &Progress<'_>, bar: &ProgressBar, stderr: &mut dyn io::Write) -> io::Result<()> {
    match progress {
        Progress::Read { bytes, lines } => {
            bar.set_position(*bytes);
            bar.set_message(format!("{} lines", format::thousands(*lines)));
            Ok(())
        }
        Progress::Begun { name, format, guess } => {
            let (name, format) = (format::visible(name), format.name());
            let note = match guess {
                FormatGuess::Given => return Ok(()),
                FormatGuess::Guessed => format!("note: `{name}` is read as {format}"),
                FormatGuess::Unknown => format!(
                    "note: `{name}` is read as {format}, but none of its first lines can be; \
                     --log-format names another format"
                ),
            };
            bar.suspend(|| writeln!(stderr, "{note}"))
        }
        _ => Ok(()),
    }
}

/// Reports what could not be read, and how fast the rest was.
fn report(summary: &ReadSummary, took_ns: u128, io: &mut Io<'_>) -> io::Result<()> {
    let name = |input: u32| {
        let input = summary.inputs.get(input as usize);
        format::visible(input.map_or("", |input| &input.name))
    };
    for line in &summary.first_unreadable {
        let (input, number) = (name(line.position.input), line.position.line);
        let text = format::visible(&line.text);
        let text: String = text.chars().take(60).collect();
        let text = if text.trim().is_empty() { text } else { format!(": {text}") };
        writeln!(io.stderr, "{input}:{number}: unreadable, {}{}", line.reason, text.trim_end())?;
    }
    match summary.unreadable.saturating_sub(summary.first_unreadable.len() as u64) {
        0 => {}
        more => writeln!(io.stderr, "and {} more unreadable lines", format::thousands(more))?,
    }
    for input in &summary.inputs {
        let (name, lines) = (format::visible(&input.name), format::thousands(input.lines));
        match &input.cut_short {
            Some(why) => writeln!(
                io.stderr,
                "error: `{name}` was cut short after {lines} lines: {}",
                format::visible(why)
            )?,
            None if input.lines == 0 => writeln!(io.stderr, "note: `{name}` is empty")?,
            None => {}
        }
    }
    if summary.late > 0 {
        let late = format::thousands(summary.late);
        writeln!(
            io.stderr,
            "note: {late} lines were late, and decided at the newest time; --sort sorts all lines"
        )?;
    }
    if summary.released_early > 0 {
        let early = format::thousands(summary.released_early);
        writeln!(
            io.stderr,
            "note: {early} lines were not held back for the whole window; --sort-memory allows more"
        )?;
    }
    let lines: u64 = summary.inputs.iter().map(|input| input.lines).sum();
    let per_s = u128::from(lines) * 1_000_000_000 / took_ns.max(1);
    let per_s = format::thousands(u64::try_from(per_s).unwrap_or(u64::MAX));
    let (lines, tenths) = (format::thousands(lines), took_ns / 100_000_000);
    let (seconds, tenth) = (tenths / 10, tenths % 10);
    writeln!(io.stderr, "read {lines} lines in {seconds}.{tenth} s, {per_s} lines/s")
}
