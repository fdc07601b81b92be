use std::borrow::Cow;

use http::request::Parts;
use tidegate::policy::{EncodedSlash, normalized_path};
use tidegate_proto::percent::percent_utf8;

use super::{Attribute, AttributeError, KeySource};

/// A part of the path, as key or attribute: `room` in `/rooms/{room}`.
///
/// The value is decoded: `%2F` becomes a slash, and bytes that are not UTF-8 become `%ff`. A path that
/// does not match has no value; one with `%00` or a broken escape is an error.
#[derive(Clone, Debug)]
pub struct PathParam {
    name: Box<str>,
    pattern: Option<Box<str>>,
}

impl PathParam {
    /// The parameter of this name in the axum route that the request matched.
    ///
    /// For layers added to a route or a router with `layer` or `route_layer`; before routing there
    /// are no parameters.
    #[cfg(feature = "axum")]
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), pattern: None }
    }

    /// The parameter of this name in a pattern: `PathParam::of("/rooms/{room}/messages", "room")`.
    ///
    /// `{name}` is one segment, `{*name}` at the end is all the rest. The path is matched in its
    /// [normal form](normalized_path), with encoded slashes.
    #[must_use]
    pub fn of(pattern: &str, name: &str) -> Self {
        Self { name: name.into(), pattern: Some(pattern.into()) }
    }

    fn text<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError> {
        let Some(pattern) = &self.pattern else {
            return Ok(routed(parts, &self.name)?.map(Cow::Owned));
        };
        let path = parts.uri.path().as_bytes();
        Ok(match normalized_path(path, EncodedSlash::Keep)? {
            Cow::Borrowed(path) => captured(pattern, path, &self.name).map(decoded),
            Cow::Owned(path) => {
                let found = captured(pattern, &path, &self.name).map(decoded);
                found.map(|value| Cow::Owned(value.into_owned()))
            }
        })
    }
}

impl KeySource<String> for PathParam {
    fn key(&self, parts: &Parts) -> Option<String> {
        self.text(parts).ok().flatten().map(Cow::into_owned)
    }
}

impl Attribute for PathParam {
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError> {
        self.text(parts)
    }
}

/// The path that the client requested, before routers stripped prefixes.
pub(super) fn request_path(parts: &Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return original.0.path();
    }
    parts.uri.path()
}

/// A parameter of axum's route, read by axum's own extractor.
#[cfg(feature = "axum")]
fn routed(parts: &Parts, name: &str) -> Result<Option<String>, AttributeError> {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use axum::extract::rejection::RawPathParamsRejection;
    use axum::extract::{FromRequestParts, RawPathParams};

    let (mut head, ()) = http::Request::new(()).into_parts();
    head.extensions = parts.extensions.clone();
    let params = pin!(RawPathParams::from_request_parts(&mut head, &()));
    // The extractor is ready at its first poll.
    match params.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(params)) => {
            let found = params.iter().find(|(known, _)| *known == name);
            Ok(found.map(|(_, value)| value.to_owned()))
        }
        Poll::Ready(Err(RawPathParamsRejection::InvalidUtf8InPathParam(error))) => {
            Err(AttributeError::new(error.body_text()))
        }
        // Before routing there are no parameters.
        Poll::Ready(Err(_)) | Poll::Pending => Ok(None),
    }
}

#[cfg(not(feature = "axum"))]
fn routed(_: &Parts, _: &str) -> Result<Option<String>, AttributeError> {
    Ok(None)
}

/// The part of a path where the pattern has `{name}`; `None` if the path does not match.
fn captured<'a>(pattern: &str, path: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = Some(path.strip_prefix('/')?);
    let mut found = None;
    for piece in pattern.strip_prefix('/')?.split('/') {
        let left = rest?;
        let hole = Hole::of(piece);
        if let Some(all) = hole.as_ref().and_then(|hole| hole.name.strip_prefix('*')) {
            return if all == name { Some(left) } else { found };
        }
        let (segment, further) = match left.split_once('/') {
            Some((segment, further)) => (segment, Some(further)),
            None => (left, None),
        };
        match hole {
            Some(hole) => {
                let value = segment.strip_prefix(hole.before)?.strip_suffix(hole.behind)?;
                if value.is_empty() {
                    return None;
                }
                if hole.name == name {
                    found = Some(value);
                }
            }
            None if piece == segment => {}
            None => return None,
        }
        rest = further;
    }
    if rest.is_none() { found } else { None }
}

/// A segment of a pattern with a parameter in it: `user-{name}.json`.
struct Hole<'p> {
    before: &'p str,
    name: &'p str,
    behind: &'p str,
}

impl<'p> Hole<'p> {
    fn of(piece: &'p str) -> Option<Self> {
        let (before, rest) = piece.split_once('{')?;
        let (name, behind) = rest.split_once('}')?;
        Some(Self { before, name, behind })
    }
}

/// A part of a normal path with its escapes decoded.
fn decoded(raw: &str) -> Cow<'_, str> {
    if !raw.contains('%') {
        return Cow::Borrowed(raw);
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((byte, further)) = rest.split_first() {
        let code = match further {
            [high, low, ..] if *byte == b'%' => code_of(*high, *low),
            _ => None,
        };
        bytes.push(code.unwrap_or(*byte));
        rest = if code.is_some() { &further[2..] } else { further };
    }
    Cow::Owned(percent_utf8(&bytes).into_owned())
}

/// The byte of two hexadecimal digits.
fn code_of(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests;
