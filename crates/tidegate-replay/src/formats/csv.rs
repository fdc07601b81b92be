//! Values separated by commas, semicolons or tabs, below a header with their names.
//!
//! A line is a row: a value in quotes may have separators and doubled quotes, but no line end.

use tidegate::policy::EncodedSlash;

use super::fields::{Holds, candidates, push, time_candidates};
use super::{LogFormat, ParsedLine};
use crate::attributes::{AttributePlan, PlannedAttribute};
use crate::record::Draft;
use crate::times::time_from_text;

#[derive(Debug)]
pub(crate) struct CsvParser {
    planned: Vec<PlannedAttribute>,
    time_field: Option<Box<str>>,
    encoded_slash: EncodedSlash,
    header: Option<Header>,
    row: Row,
}

/// What the columns are.
#[derive(Debug)]
struct Header {
    separator: u8,
    /// The column of the time, if its name is known or it was found in a row.
    time: Option<usize>,
    /// For every planned attribute the columns that may have its value, best first.
    columns: Vec<Vec<(usize, Holds)>>,
}

/// The values of a row.
#[derive(Debug, Default)]
struct Row {
    text: String,
    ends: Vec<usize>,
}

impl CsvParser {
    pub(crate) fn new(plan: &AttributePlan, time_field: Option<&str>) -> Self {
        Self {
            planned: plan.attributes.clone(),
            time_field: time_field.map(Into::into),
            encoded_slash: plan.encoded_slash,
            header: None,
            row: Row::default(),
        }
    }

    pub(crate) fn parse(&mut self, line: &[u8], draft: &mut Draft) -> ParsedLine {
        let line = String::from_utf8_lossy(line);
        let Some(header) = &mut self.header else {
            self.header = Some(Header::new(&line, &self.planned, self.time_field.as_deref()));
            return ParsedLine::Header;
        };
        if !self.row.read(&line, header.separator) {
            return ParsedLine::Unreadable("a quote is not closed");
        }
        let row = &self.row;
        if header.time.is_none() && self.time_field.is_none() {
            // Of columns with unknown names, the first that is a time in this row.
            let is_time = |column: &usize| row.get(*column).is_some_and(looks_like_time);
            header.time = (0..row.ends.len()).find(is_time);
        }
        let time = header.time.and_then(|column| row.get(column)).and_then(time_from_text);
        let Some(time_ns) = time else {
            return ParsedLine::Unreadable("there is no time; --time names its column");
        };
        for (attribute, columns) in self.planned.iter().zip(&header.columns) {
            let value = columns.iter().find_map(|(column, holds)| {
                let text = row.get(*column)?.trim();
                (!matches!(text, "" | "-")).then_some((*holds, text))
            });
            push(attribute, self.encoded_slash, value, draft);
        }
        ParsedLine::Request(time_ns)
    }
}

impl Header {
    fn new(line: &str, planned: &[PlannedAttribute], time_field: Option<&str>) -> Self {
        let separator = separator(line);
        let mut row = Row::default();
        row.read(line, separator);
        let names: Vec<&str> =
            (0..row.ends.len()).filter_map(|it| row.get(it)).map(str::trim).collect();
        let exact = |name: &str| names.iter().position(|known| *known == name);
        let any_case = |name: &str| names.iter().position(|known| known.eq_ignore_ascii_case(name));
        let column = |name: &str| exact(name).or_else(|| any_case(name));
        let time = match time_field {
            Some(name) => column(name),
            None => time_candidates(LogFormat::Csv).iter().find_map(|name| column(name)),
        };
        let columns = |attribute: &PlannedAttribute| {
            let of_field = candidates(LogFormat::Csv, attribute);
            of_field.iter().filter_map(|it| Some((column(&it.name)?, it.holds))).collect()
        };
        Self { separator, time, columns: planned.iter().map(columns).collect() }
    }
}

/// Whether a header has a column with the time, by its name.
pub(super) fn has_time_column(line: &str, time_field: Option<&str>) -> bool {
    Header::new(line, &[], time_field).time.is_some()
}

/// Whether one of the values of a row is a time.
pub(super) fn has_time(line: &[u8], separator: u8) -> bool {
    let mut row = Row::default();
    row.read(&String::from_utf8_lossy(line), separator)
        && (0..row.ends.len()).filter_map(|column| row.get(column)).any(looks_like_time)
}

/// The separator of a header: the one that it has most of.
pub(super) fn separator(line: &str) -> u8 {
    let count = |separator: &u8| line.bytes().filter(|byte| byte == separator).count();
    // The last of equals is preferred.
    [b'\t', b';', b','].into_iter().max_by_key(count).unwrap_or(b',')
}

/// A number is taken for a time only if it is one since 2001 or later.
fn looks_like_time(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    time_from_text(text).is_some_and(|ns| !is_number || ns >= 1_000_000_000_000_000_000)
}

impl Row {
    fn get(&self, column: usize) -> Option<&str> {
        let start =
            column.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.text.get(start..*self.ends.get(column)?)
    }

    /// Reads a line; false if a quote is not closed.
    fn read(&mut self, line: &str, separator: u8) -> bool {
        self.text.clear();
        self.ends.clear();
        let separator = char::from(separator);
        let mut rest = line;
        loop {
            if let Some(quoted) = rest.trim_start_matches(' ').strip_prefix('"') {
                let Some(after) = self.read_quoted(quoted) else { return false };
                rest = after.trim_start_matches(|c| c != separator);
            } else {
                let end = rest.find(separator).unwrap_or(rest.len());
                self.text.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            self.ends.push(self.text.len());
            match rest.strip_prefix(separator) {
                Some(after) => rest = after,
                None => return true,
            }
        }
    }

    /// Reads the rest of a value in quotes; what follows it.
    fn read_quoted<'l>(&mut self, mut rest: &'l str) -> Option<&'l str> {
        loop {
            let (value, after) = rest.split_once('"')?;
            self.text.push_str(value);
            match after.strip_prefix('"') {
                Some(after) => {
                    self.text.push('"');
                    rest = after;
                }
                None => return Some(after),
            }
        }
    }
}

#[cfg(test)]
mod tests;
