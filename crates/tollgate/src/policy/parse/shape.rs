//! A look at the shape of a file before it is read. Each part of a dotted key nests one table
//! deeper, and a key of a million parts would take the stack with it; each table takes a kilobyte,
//! and a file full of `{a=1},` two hundred times its size.

use std::ops::Range;

use crate::policy::text::TextError;

/// More parts than any key of the file has.
const MOST_PARTS: usize = 16;

/// More tables than 50 000 rules have.
const MOST_TABLES: usize = 250_000;

/// Where and how the text is not one that should be read.
pub(super) struct Excess {
    pub(super) span: Range<usize>,
    pub(super) error: TextError,
}

/// The first key of more than [`MOST_PARTS`] parts, or the first table of more than
/// [`MOST_TABLES`]. Strings and comments do not count.
pub(super) fn excess(text: &str) -> Option<Excess> {
    let bytes = text.as_bytes();
    let (mut at, mut start, mut dots, mut tables) = (0, 0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' | b'\'' => at = string_end(bytes, at),
            b'#' => at = line_end(bytes, at),
            b'.' => {
                dots += 1;
                tables += 1;
                at += 1;
            }
            // Names may stand apart from their dots.
            b' ' | b'\t' => at += 1,
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' => at += 1,
            byte => {
                tables += usize::from(byte == b'{' || byte == b'[');
                at += 1;
                (start, dots) = (at, 0);
            }
        }
        if dots >= MOST_PARTS {
            let error = TextError::new("the key has too many parts")
                .hint(format!("a key has at most {MOST_PARTS} parts"));
            return Some(Excess { span: start..at, error });
        }
        if tables > MOST_TABLES {
            let error = TextError::new(format!("the file has more than {MOST_TABLES} tables"))
                .hint("use fewer rules, with lists, patterns and `override`");
            return Some(Excess { span: at - 1..at, error });
        }
    }
    None
}

/// Behind the string that begins here; at the end of the line if it does not end.
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
