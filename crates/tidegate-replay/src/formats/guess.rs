//! Guesses the format of a log by its first lines.

use super::{LineParser, LogFormat, ParsedLine, csv};
use crate::attributes::AttributePlan;
use crate::record::Draft;

/// A format, and whether lines say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    pub(crate) format: LogFormat,
    /// False if no line could be read in any format.
    pub(crate) is_certain: bool,
}

/// The format in which most of the lines can be read.
pub(crate) fn guess(start: &[u8], time_field: Option<&str>) -> Guess {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let lines = || {
        let lines = start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.filter(|line| !line.is_empty()).take(MOST_LINES)
    };
    let objects: Vec<_> = lines().filter(|line| line.starts_with(b"{")).collect();
    let clf = LogFormat::Combined;
    let clf_lines = if time_field.is_some() { 0 } else { readable(clf, lines(), None) };
    if clf_lines > 0 && clf_lines >= objects.len() {
        let is_combined = lines().any(|line| memchr::memchr_iter(b'"', line).count() >= 4);
        let format = if is_combined { LogFormat::Combined } else { LogFormat::Common };
        return Guess { format, is_certain: true };
    }
    if !objects.is_empty() {
        let is_certain = readable(LogFormat::Json, objects.iter().copied(), time_field) > 0;
        return Guess { format: json(&objects), is_certain };
    }
    match lines().next().and_then(|line| std::str::from_utf8(line).ok()) {
        Some(header) if is_csv(header, lines().nth(1), time_field) => {
            Guess { format: LogFormat::Csv, is_certain: true }
        }
        _ => Guess { format: clf, is_certain: false },
    }
}

/// How many lines are requests in a format.
fn readable<'l>(
    format: LogFormat,
    lines: impl Iterator<Item = &'l [u8]>,
    time_field: Option<&str>,
) -> usize {
    let plan = AttributePlan::new(&[], &[]);
    let Ok(mut parser) = LineParser::new(format, &plan, time_field) else { return 0 };
    let mut draft = Draft::default();
    let is_request = |line: &&[u8]| {
        draft.clear();
        matches!(parser.parse(line, &mut draft), ParsedLine::Request(_))
    };
    lines.filter(is_request).count()
}

/// Whose JSON it is, by names that only one of them has.
fn json(objects: &[&[u8]]) -> LogFormat {
    let has = |name: &str| {
        let name = format!("\"{name}\"");
        objects.iter().any(|line| memchr::memmem::find(line, name.as_bytes()).is_some())
    };
    if has("request") && has("ts") && (has("remote_ip") || has("client_ip") || has("remote_addr")) {
        LogFormat::Caddy
    } else if has("start_time") && has("response_code") {
        LogFormat::Envoy
    } else if has("RequestMethod") && (has("StartUTC") || has("ClientHost")) {
        LogFormat::Traefik
    } else {
        LogFormat::Json
    }
}

/// Whether the first lines are a header and a row of as many values.
fn is_csv(header: &str, row: Option<&[u8]>, time_field: Option<&str>) -> bool {
    let separator = csv::separator(header);
    let count = |line: &[u8]| memchr::memchr_iter(separator, line).count();
    let separators = count(header.as_bytes());
    if csv::has_time_column(header, time_field) {
        return separators > 0 || row.is_none_or(|row| count(row) == 0);
    }
    separators > 0
        && row.is_some_and(|row| count(row) >= separators && csv::has_time(row, separator))
}

const MOST_LINES: usize = 50;

#[cfg(test)]
mod tests;
