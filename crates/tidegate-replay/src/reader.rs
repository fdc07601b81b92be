//! Reads logs: lines become records, in the order of their times.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::attributes::AttributePlan;
use crate::formats::{Guess, LineParser, LogFormat, ParsedLine, UnknownField, guess};
use crate::input::{Source, decompressed};
use crate::lines::{Line, Lines};
use crate::record::{Draft, Position, Record};
use crate::reorder::Reorder;
use crate::sort::Sorter;

/// How logs are read.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Their format; `None`: it is guessed for each of them.
    pub format: Option<LogFormat>,
    /// The field with the time; `None`: it is guessed.
    pub time_field: Option<String>,
    /// How lines are put into order.
    pub order: LineOrder,
    /// The memory for lines that are held back, in bytes; about as much again is used to sort.
    pub memory_bytes: usize,
}

/// How lines are put into order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrder {
    /// Lines that are out of order by at most this long are put into order; others are late.
    Window(Duration),
    /// All lines are sorted.
    Sorted,
}

/// Something to show while logs are read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// An input begins.
    Begun {
        /// Its name.
        name: &'a str,
        /// Its format.
        format: LogFormat,
        /// Whether the format is a guess, and whether lines could be read that way.
        guess: FormatGuess,
    },
    /// So much has been read.
    Read {
        /// Bytes of the inputs, as they are stored.
        bytes: u64,
        /// Lines.
        lines: u64,
    },
    /// All has been read; the lines are now in order.
    Sorted {
        /// Lines that were written to files.
        spilled: u64,
    },
}

/// How a format is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatGuess {
    /// It was given.
    Given,
    /// Lines can be read in it.
    Guessed,
    /// None of the first lines can be read in any format.
    Unknown,
}

/// What was read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReadSummary {
    /// The inputs, in their order.
    pub inputs: Vec<InputReport>,
    /// Lines that are requests.
    pub requests: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Lines that were decided at the newest time, because they were out of order by too much.
    pub late: u64,
    /// Lines that were not held back for the whole window, for want of memory.
    pub released_early: u64,
    /// The first lines that could not be read.
    pub first_unreadable: Vec<UnreadableLine>,
}

/// One input.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InputReport {
    /// Its name.
    pub name: String,
    /// Its format; `None` if it could not be read at all.
    pub format: Option<LogFormat>,
    /// Its lines.
    pub lines: u64,
    /// Why it was not read to its end.
    pub cut_short: Option<String>,
}

/// A line that could not be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnreadableLine {
    /// Where it is.
    pub position: Position,
    /// Why.
    pub reason: &'static str,
    /// Its start.
    pub text: String,
}

/// Why logs were not read.
#[non_exhaustive]
pub enum ReadError {
    /// A field was named that a log does not have.
    Field {
        /// The input.
        name: String,
        /// The field.
        field: UnknownField,
    },
    /// Sorting failed: the disk is full, or there is no folder for temporary files.
    Sort(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { name, field } => write!(f, "cannot read `{name}`: {field}"),
            Self::Sort(error) => write!(f, "cannot sort the lines: {error}"),
        }
    }
}

tidegate::debug_as_displayed!(ReadError);

impl std::error::Error for ReadError {}

/// Reads logs.
#[derive(Debug)]
pub struct LogReader<'p> {
    options: LogOptions,
    plan: &'p AttributePlan,
    summary: ReadSummary,
    order: Ordered,
    bytes: Arc<AtomicU64>,
    lines: u64,
}

#[derive(Debug)]
enum Ordered {
    Window(Box<Reorder>),
    All(Sorter),
}

impl<'p> LogReader<'p> {
    /// A reader of the planned attributes.
    #[must_use]
    pub fn new(plan: &'p AttributePlan, options: LogOptions) -> Self {
        let order = match options.order {
            LineOrder::Window(window) => {
                let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
                Ordered::Window(Box::new(Reorder::new(window_ns, options.memory_bytes)))
            }
            LineOrder::Sorted => Ordered::All(Sorter::new(options.memory_bytes)),
        };
        let (summary, bytes) = (ReadSummary::default(), Arc::default());
        Self { options, plan, summary, order, bytes, lines: 0 }
    }

    /// Reads all inputs, one after the other. An input that is damaged is read up to there.
    pub fn read(
        mut self,
        sources: Vec<Source<'_>>,
        then: &mut impl FnMut(Record<'_>),
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<ReadSummary, ReadError> {
        for (number, source) in (0..).zip(sources) {
            self.read_one(number, source, then, progress)?;
        }
        match &mut self.order {
            Ordered::Window(reorder) => {
                reorder.finish(then);
                self.summary.late = reorder.late();
                self.summary.released_early = reorder.released_early();
            }
            Ordered::All(sorter) => {
                progress(Progress::Sorted { spilled: sorter.spilled() });
                sorter.finish(then).map_err(ReadError::Sort)?;
            }
        }
        Ok(self.summary)
    }

    fn read_one(
        &mut self,
        input: u32,
        source: Source<'_>,
        then: &mut impl FnMut(Record<'_>),
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), ReadError> {
        let Source { name, bytes } = source;
        let mut report = InputReport { name, format: None, lines: 0, cut_short: None };
        match decompressed(bytes, &self.bytes) {
            Err(error) => report.cut_short = Some(describe(&error)),
            Ok(stream) => {
                let mut lines = Lines::new(stream);
                let mut parser = self.begin(&mut lines, &mut report, progress)?;
                self.read_lines(&mut lines, input, &mut parser, &mut report, then, progress)?;
            }
        }
        self.summary.inputs.push(report);
        Ok(())
    }

    /// Guesses the format of an input, and makes its parser.
    fn begin(
        &self,
        lines: &mut Lines<impl io::Read>,
        report: &mut InputReport,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<LineParser, ReadError> {
        let time_field = self.options.time_field.as_deref();
        let first = lines.first_bytes();
        let (format, known) = match self.options.format {
            Some(format) => (format, FormatGuess::Given),
            None => {
                let Guess { format, is_certain } = guess(first, time_field);
                (format, if is_certain { FormatGuess::Guessed } else { FormatGuess::Unknown })
            }
        };
        if !first.is_empty() {
            progress(Progress::Begun { name: &report.name, format, guess: known });
        }
        lines.skip_byte_order_mark();
        report.format = Some(format);
        LineParser::new(format, self.plan, time_field)
            .map_err(|field| ReadError::Field { name: report.name.clone(), field })
    }

    fn read_lines(
        &mut self,
        lines: &mut Lines<impl io::Read>,
        input: u32,
        parser: &mut LineParser,
        report: &mut InputReport,
        then: &mut impl FnMut(Record<'_>),
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), ReadError> {
        let mut draft = Draft::default();
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(error) => {
                    report.cut_short = Some(describe(&error));
                    return Ok(());
                }
            };
            report.lines += 1;
            self.lines += 1;
            if self.lines.is_multiple_of(LINES_PER_REPORT) {
                let bytes = self.bytes.load(Ordering::Relaxed);
                progress(Progress::Read { bytes, lines: self.lines });
            }
            let position = Position { input, line: report.lines };
            let text = match line {
                Line::Text(text) => text,
                Line::TooLong => {
                    self.unreadable(position, "the line is longer than 1 MiB", b"");
                    continue;
                }
            };
            draft.clear();
            match parser.parse(text, &mut draft) {
                ParsedLine::Header => {}
                ParsedLine::Unreadable(reason) => self.unreadable(position, reason, text),
                ParsedLine::Request(time_ns) => {
                    self.summary.requests += 1;
                    let record = draft.record(time_ns, position);
                    match &mut self.order {
                        Ordered::Window(reorder) => reorder.push(record, then),
                        Ordered::All(sorter) => sorter.push(record).map_err(ReadError::Sort)?,
                    }
                }
            }
        }
    }

    #[cold]
    fn unreadable(&mut self, position: Position, reason: &'static str, text: &[u8]) {
        self.summary.unreadable += 1;
        if self.summary.first_unreadable.len() < MOST_UNREADABLE_SHOWN {
            let start = &text[..text.len().min(MOST_BYTES_SHOWN)];
            let text = String::from_utf8_lossy(start).into_owned();
            self.summary.first_unreadable.push(UnreadableLine { position, reason, text });
        }
    }
}

/// Why an input ends early.
fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends in the middle of its compressed data".into(),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            format!("its compressed data is damaged: {error}")
        }
        _ => error.to_string(),
    }
}

const LINES_PER_REPORT: u64 = 1 << 14;
const MOST_UNREADABLE_SHOWN: usize = 5;
const MOST_BYTES_SHOWN: usize = 120;
