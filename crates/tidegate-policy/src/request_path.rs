use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// What becomes of `%2F` and `%5C` in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EncodedSlash {
    /// They are slashes, as for most servers.
    #[default]
    Decode,
    /// They stay, for servers that treat `a%2Fb` as one segment.
    Keep,
}

/// Why a path is rejected: servers disagree on what it means.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// It has a NUL, plain or as `%00`.
    Nul,
    /// It has a `%` without two hexadecimal digits.
    BrokenEscape,
}

/// The path of a request in its normal form: paths that a server takes for the same are the same
/// text. It takes a path, or a whole URI.
///
/// The query is cut off. Letters, digits and `-._~` are decoded, once; other escapes get upper
/// case, and bytes that do not belong into a path are escaped. `\`, `%2F` and `%5C` become slashes,
/// the latter two unless they are [kept](EncodedSlash::Keep). Slashes are merged, then dot segments
/// are removed. Upper and lower case, parameters (`;x`) and a slash at the end stay, because
/// servers may distinguish them. A path that does not begin with a slash does not get one.
///
/// ```
/// use tidegate::policy::{EncodedSlash, normalized_path};
///
/// let path = |uri: &'static str| normalized_path(uri.as_bytes(), EncodedSlash::Decode);
/// assert_eq!(path("/x/..//%73ign-up?next=/")?, "/sign-up");
/// assert!(path("/sign-up%00").is_err());
/// # Ok::<(), tidegate::policy::PathError>(())
/// ```
pub fn normalized_path(uri: &[u8], slashes: EncodedSlash) -> Result<Cow<'_, str>, PathError> {
    let path = path_of(uri);
    if let Some(path) = std::str::from_utf8(path).ok().filter(|path| is_normal(path)) {
        return Ok(Cow::Borrowed(path));
    }
    Ok(Cow::Owned(without_dot_segments(&unescaped(path, slashes)?)))
}

/// The part of a URI between the authority and the query.
fn path_of(uri: &[u8]) -> &[u8] {
    let end = uri.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(uri.len());
    let uri = &uri[..end];
    let Some(authority) = after_scheme(uri) else { return uri };
    let slash = authority.iter().position(|byte| matches!(byte, b'/' | b'\\'));
    &authority[slash.unwrap_or(authority.len())..]
}

/// What follows `https://` or another scheme.
fn after_scheme(uri: &[u8]) -> Option<&[u8]> {
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let colon = uri.iter().position(|byte| !is_of_scheme(byte))?;
    let is_scheme = uri.first().is_some_and(u8::is_ascii_alphabetic);
    uri[colon..].strip_prefix(b"://").filter(|_| is_scheme)
}

/// Whether there is nothing to do. The common case; others may be normal, too.
fn is_normal(path: &str) -> bool {
    let has_dots = path.starts_with('.') || path.contains("/.");
    let is_plain = path.bytes().all(|byte| byte == b'/' || is_of_segment(byte));
    is_plain && !path.is_empty() && !has_dots && !path.contains("//")
}

/// The path in ASCII, with all escapes in their normal form.
fn unescaped(path: &[u8], slashes: EncodedSlash) -> Result<String, PathError> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, further)) = rest.split_first() {
        rest = further;
        let code = if byte == b'%' {
            let (code, further) = escape(further).ok_or(PathError::BrokenEscape)?;
            rest = further;
            Some(code)
        } else {
            None
        };
        match code.unwrap_or(byte) {
            0 => return Err(PathError::Nul),
            b'/' | b'\\' if code.is_none() || slashes == EncodedSlash::Decode => out.push('/'),
            plain if is_unreserved(plain) || code.is_none() && is_of_segment(plain) => {
                out.push(char::from(plain));
            }
            other => push_escape(&mut out, other),
        }
    }
    Ok(out)
}

/// The byte of an escape behind its `%`, and what follows.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, further @ ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let code = digit(*high)? * 16 + digit(*low)?;
    Some((u8::try_from(code).ok()?, further))
}

fn push_escape(out: &mut String, byte: u8) {
    out.push('%');
    for digit in [byte >> 4, byte & 15] {
        out.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
    }
}

/// Merges slashes, and removes `.` and `..`.
fn without_dot_segments(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 1);
    let root = usize::from(path.starts_with('/'));
    out.push_str(&path[..root]);
    let mut is_segment = false;
    for segment in path.split('/') {
        is_segment = !matches!(segment, "" | "." | "..");
        if is_segment {
            out.push_str(segment);
            out.push('/');
        } else if segment == ".." && out.len() > root {
            out.pop();
            out.truncate(out.rfind('/').map_or(0, |slash| slash + 1));
        }
    }
    if is_segment {
        out.pop();
    }
    if out.is_empty() {
        out.push('/');
    }
    out
}

/// Letters, digits and marks that mean the same, escaped or not.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether a segment of a path may have this byte without an escape.
fn is_of_segment(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte)
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nul => "the path has a NUL",
            Self::BrokenEscape => "the path has a `%` without two hexadecimal digits",
        })
    }
}

tidegate_core::debug_as_displayed!(PathError);

impl Error for PathError {}

#[cfg(test)]
mod tests;
