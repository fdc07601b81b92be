//! A scan of a file before it is parsed, to bound what parsing takes.
//!
//! Each part of a dotted key nests one table deeper, and a key of a million parts would take the
//! stack with it. Each table takes a kilobyte, so a file full of `{a=1},` would take two hundred
//! times its size; each other value and mark takes up to a hundred bytes.

use std::ops::Range;

use crate::policy::text::TextError;

/// More parts than any key of the file has.
const MOST_PARTS: usize = 16;

/// More tables than 50 000 rules have.
const MOST_TABLES: usize = 250_000;

/// More brackets, commas, equal signs and lines than 50 000 rules have.
const MOST_MARKS: usize = 3_000_000;

/// Why a text is not parsed, and where.
pub(super) struct ShapeError {
    pub(super) span: Range<usize>,
    pub(super) error: TextError,
}

/// The results of the scan.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Brackets, commas, equal signs and lines.
    pub(super) marks: usize,
    /// A brace that is still open where a list ends or the next table begins, or at the end.
    pub(super) unclosed: Option<usize>,
    tables: usize,
    /// The open brackets and braces.
    open: Vec<usize>,
    /// Where the current key begins, and how many dots it has.
    key_start: usize,
    dots: usize,
}

impl Shape {
    /// Scans a text. Strings and comments do not count.
    pub(super) fn of(text: &str) -> Result<Self, ShapeError> {
        let (bytes, mut at, mut shape) = (text.as_bytes(), 0, Self::default());
        while at < bytes.len() {
            at = match bytes[at] {
                b'"' | b'\'' => string_end(bytes, at),
                b'#' => line_end(bytes, at),
                byte => {
                    shape.see(bytes, at, byte);
                    at + 1
                }
            };
            shape.bounded(at)?;
        }
        let open_brace = shape.open.iter().copied().find(|at| bytes[*at] == b'{');
        shape.unclosed = shape.unclosed.or(open_brace);
        Ok(shape)
    }

    fn see(&mut self, bytes: &[u8], at: usize, byte: u8) {
        match byte {
            b'.' => {
                self.dots += 1;
                self.tables += 1;
                return;
            }
            // Names may be separated from their dots.
            b' ' | b'\t' | b'_' | b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => return,
            b'[' if self.in_brace(bytes) && begins_line(bytes, at) => {
                // No key begins with a bracket: this is the header of the next table.
                self.unclosed = self.unclosed.or(self.open.first().copied());
                self.open.clear();
            }
            b'{' | b'[' => {
                self.open.push(at);
                self.tables += 1;
            }
            b'}' | b']' => {
                let opened = self.open.pop();
                let is_wrong = |open: &usize| byte == b']' && bytes[*open] == b'{';
                if let Some(brace) = opened.filter(is_wrong) {
                    self.unclosed = self.unclosed.or(Some(brace));
                    self.open.pop();
                }
            }
            _ => {}
        }
        self.marks += usize::from(matches!(byte, b'{' | b'[' | b'}' | b']' | b',' | b'=' | b'\n'));
        (self.key_start, self.dots) = (at + 1, 0);
    }

    fn in_brace(&self, bytes: &[u8]) -> bool {
        self.open.last().is_some_and(|open| bytes[*open] == b'{')
    }

    fn bounded(&self, at: usize) -> Result<(), ShapeError> {
        let too_many = |what: String| ShapeError {
            span: at - 1..at,
            error: TextError::new(format!("the file has more than {what}"))
                .hint("use fewer rules, with lists, patterns and `override`"),
        };
        if self.dots >= MOST_PARTS {
            let error = TextError::new("the key has too many parts")
                .hint(format!("a key has at most {MOST_PARTS} parts"));
            return Err(ShapeError { span: self.key_start..at, error });
        }
        if self.tables > MOST_TABLES {
            return Err(too_many(format!("{MOST_TABLES} tables")));
        }
        if self.marks > MOST_MARKS {
            return Err(too_many(format!("{MOST_MARKS} lines and values")));
        }
        Ok(())
    }
}

/// Whether only space precedes a byte in its line.
fn begins_line(bytes: &[u8], at: usize) -> bool {
    let before = bytes[..at].iter().rev().find(|byte| **byte != b' ' && **byte != b'\t');
    before.is_none_or(|byte| *byte == b'\n')
}

/// The position after the string that begins here; the end of the line if it is not closed.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let triple = [quote; 3];
    if bytes[start..].starts_with(&triple) {
        let mut at = start + 3;
        while at < bytes.len() && !bytes[at..].starts_with(&triple) {
            at += if quote == b'"' && bytes[at] == b'\\' { 2 } else { 1 };
        }
        return (at + 3).min(bytes.len());
    }
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote && bytes[at] != b'\n' {
        at += if quote == b'"' && bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn line_end(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |len| start + len)
}
