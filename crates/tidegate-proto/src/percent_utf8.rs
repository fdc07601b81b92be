//! Bytes of a client as text.

use std::borrow::Cow;
use std::fmt::Write as _;

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
