//! Inline commands: a line of words, as typed by hand.

use super::request::{Arguments, INLINE_BYTES_MAX, ProtocolError};

/// Parses the words of the first line of `input`.
pub(super) fn parse(
    input: &[u8],
    arguments: &mut Arguments,
) -> Result<Option<usize>, ProtocolError> {
    arguments.clear_words();
    let within = &input[..input.len().min(INLINE_BYTES_MAX)];
    let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
        if input.len() < INLINE_BYTES_MAX {
            return Ok(None);
        }
        return Err(ProtocolError::LineTooLong);
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    words(line, arguments)?;
    Ok(Some(end + 1))
}

fn words(line: &[u8], arguments: &mut Arguments) -> Result<(), ProtocolError> {
    let mut rest = line.trim_ascii_start();
    while let Some(&first) = rest.first() {
        let start = arguments.words_mut().len();
        rest = match first {
            b'"' => double_quoted(&rest[1..], arguments.words_mut())?,
            b'\'' => single_quoted(&rest[1..], arguments.words_mut())?,
            _ => bare(rest, arguments.words_mut()),
        };
        if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err(ProtocolError::Quotes);
        }
        if !arguments.end_word(start) {
            return Err(ProtocolError::ArgumentCount);
        }
        rest = rest.trim_ascii_start();
    }
    Ok(())
}

/// A word up to the next space or quote.
fn bare<'l>(text: &'l [u8], out: &mut Vec<u8>) -> &'l [u8] {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'');
    let end = text.iter().position(ends).unwrap_or(text.len());
    out.extend_from_slice(&text[..end]);
    &text[end..]
}

fn single_quoted<'l>(text: &'l [u8], out: &mut Vec<u8>) -> Result<&'l [u8], ProtocolError> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'\'', rest @ ..] => {
                out.push(b'\'');
                rest
            }
            [b'\'', rest @ ..] => return Ok(rest),
            [byte, rest @ ..] => {
                out.push(*byte);
                rest
            }
            [] => return Err(ProtocolError::Quotes),
        };
    }
}

fn double_quoted<'l>(text: &'l [u8], out: &mut Vec<u8>) -> Result<&'l [u8], ProtocolError> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, rest @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex(*high) << 4 | hex(*low));
                rest
            }
            [b'\\', byte, rest @ ..] => {
                out.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest
            }
            [b'"', rest @ ..] => return Ok(rest),
            [byte, rest @ ..] => {
                out.push(*byte);
                rest
            }
            [] => return Err(ProtocolError::Quotes),
        };
    }
}

/// The value of a hexadecimal digit.
const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a' - 10),
    }
}
