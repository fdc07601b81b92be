//! Percent encoding: `%` and two hex digits for a byte.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A byte as `%` and two upper-case hex digits.
#[must_use]
pub const fn escape(byte: u8) -> [u8; 3] {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]]
}

/// A text in which all bytes but the plain ones are escaped.
#[must_use]
pub fn encoded(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match is_plain(byte) && byte.is_ascii() {
            true => out.push(char::from(byte)),
            false => out.extend(escape(byte).map(char::from)),
        }
    }
    out
}

/// The bytes of a text with its escapes decoded; `None` if one is broken.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let is_escape = *first == b'%';
        out.push(if is_escape { escaped_byte(after)? } else { *first });
        rest = if is_escape { after.get(2..)? } else { after };
    }
    Some(out)
}

/// The bytes of a part of a query: escapes are decoded, broken ones stay as they are, and `+` is a space.
#[must_use]
pub fn decoded_query(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        match escaped_byte(after).filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    out
}

/// The byte whose two hex digits these bytes begin with.
fn escaped_byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// Bytes as text, with invalid UTF-8 as `%ff`: invalid bytes must not look like absent ones.
#[must_use]
pub fn percent_utf8(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02x}");
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::{decoded, decoded_query, encoded, percent_utf8};

    #[test]
    fn every_byte_comes_back_and_broken_escapes_are_told() {
        let all: String = (0..=0x24f).filter_map(char::from_u32).collect();
        let escaped = encoded(&all, |byte| byte.is_ascii_alphanumeric());
        assert!(escaped.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'%'));
        assert_eq!(decoded(&escaped).as_deref(), Some(all.as_bytes()));
        assert_eq!(decoded_query(&escaped), all.as_bytes());
        for broken in ["%", "%4", "a%4g", "%+1", "%%41"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
        assert_eq!(decoded_query("%zz+%41%"), b"%zz A%");
        assert_eq!(percent_utf8(b"a\xffb\xc3"), "a%ffb%c3");
    }
}
