//! A look at the keys before they are read: each part of a dotted key nests one table deeper, and
//! a key of a million parts would take the stack with it.

use std::ops::Range;

/// More parts than any key of the file has.
pub(super) const MOST_PARTS: usize = 16;

/// The first run of more than [`MOST_PARTS`] names with dots between them, outside of strings and
/// comments.
pub(super) fn too_deep(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut at, mut start, mut dots) = (0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' | b'\'' => at = string_end(bytes, at),
            b'#' => at = line_end(bytes, at),
            b'.' => {
                dots += 1;
                if dots >= MOST_PARTS {
                    return Some(start..at);
                }
                at += 1;
            }
            // Names may stand apart from their dots.
            b' ' | b'\t' => at += 1,
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' => at += 1,
            _ => {
                at += 1;
                (start, dots) = (at, 0);
            }
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
