//! Sources of keys and attributes.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tidegate::policy::{EncodedSlash, PathError, normalized_path};
use tidegate_proto::percent::percent_utf8;

pub use client_ip::ClientIp;
pub use path::PathParam;

mod client_ip;
mod path;

/// A source of a limiter's keys: `None` if a request has none.
///
/// Closures over the request's head are sources too.
pub trait KeySource<K>: Send + Sync + 'static {
    /// The key of a request.
    fn key(&self, parts: &Parts) -> Option<K>;

    /// [`key`](Self::key), or why there is none: a value that is there but cannot be used, or a
    /// mistake in the set-up. Layers call this one.
    fn try_key(&self, parts: &Parts) -> Result<Option<K>, AttributeError> {
        Ok(self.key(parts))
    }
}

impl<K, F> KeySource<K> for F
where
    F: Fn(&Parts) -> Option<K> + Send + Sync + 'static,
{
    fn key(&self, parts: &Parts) -> Option<K> {
        self(parts)
    }
}

/// A source of an attribute's values: `None` if a request has none.
pub trait Attribute: Send + Sync + 'static {
    /// The value for a request.
    ///
    /// A value that is there but cannot be used is an error, and the request is denied for it: if
    /// it counted as absent, rules that match on it would be skipped.
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError>;
}

impl Attribute for Arc<dyn Attribute> {
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError> {
        (**self).value(parts)
    }
}

/// Why the value of an attribute cannot be used.
#[derive(Clone, PartialEq, Eq)]
pub struct AttributeError {
    message: Cow<'static, str>,
    is_misconfigured: bool,
}

impl AttributeError {
    /// An error of the client: a 422 with this message.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), is_misconfigured: false }
    }

    /// A mistake in the set-up of the server: a 500 that says no more, and a line in the log with
    /// this message.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), is_misconfigured: true }
    }

    /// Whether the server is to blame, not the client.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        self.is_misconfigured
    }
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

tidegate::debug_as_displayed!(AttributeError);

impl Error for AttributeError {}

impl From<PathError> for AttributeError {
    fn from(error: PathError) -> Self {
        Self::new(error.to_string())
    }
}

/// An attribute computed by a closure over the request's head.
///
/// ```
/// use tidegate_tower::attribute;
///
/// struct Account { name: String }
///
/// let account = attribute(|parts| Some(parts.extensions.get::<Account>()?.name.as_str().into()));
/// ```
pub fn attribute<F>(value: F) -> impl Attribute
where
    F: for<'a> Fn(&'a Parts) -> Option<Cow<'a, str>> + Send + Sync + 'static,
{
    FromFn(value)
}

/// A closure as an attribute.
struct FromFn<F>(F);

impl<F> Attribute for FromFn<F>
where
    F: for<'a> Fn(&'a Parts) -> Option<Cow<'a, str>> + Send + Sync + 'static,
{
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError> {
        Ok((self.0)(parts))
    }
}

/// The value of a header, as key or attribute.
///
/// A request with the header twice is denied: it would be ambiguous. Bytes that are not UTF-8 become
/// `%ff`.
///
/// Clients can write anything into a header. Use this for headers that a proxy in front sets, or
/// that have been verified.
#[derive(Clone, Debug)]
pub struct Header {
    name: http::HeaderName,
}

impl Header {
    /// The header of this name.
    ///
    /// # Panics
    ///
    /// If the name is not a valid header name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let name = name.parse().unwrap_or_else(|_| panic!("{name:?} is not a valid header name"));
        Self { name }
    }
}

/// The text of a header. Two values are ambiguous, so they are an error.
fn header_text<'a>(
    parts: &'a Parts,
    name: &http::HeaderName,
) -> Result<Option<Cow<'a, str>>, AttributeError> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(AttributeError::new(format!("the header `{name}` appears twice"))),
        (first, None) => Ok(first.map(|value| percent_utf8(value.as_bytes()))),
    }
}

impl KeySource<String> for Header {
    fn key(&self, parts: &Parts) -> Option<String> {
        self.try_key(parts).ok().flatten()
    }

    fn try_key(&self, parts: &Parts) -> Result<Option<String>, AttributeError> {
        Ok(header_text(parts, &self.name)?.map(Cow::into_owned))
    }
}

impl Attribute for Header {
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError> {
        header_text(parts, &self.name)
    }
}

/// A part of the request line, as attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uri {
    /// The method: `GET`.
    Method,
    /// The path in its [normal form](normalized_path). One with `%00` or a broken escape is an
    /// error.
    Path,
    /// The path in its normal form, in which `%2F` and `%5C` [stay](EncodedSlash::Keep).
    PathWithEncodedSlashes,
    /// The requested host, in lower case and without a port.
    Host,
}

/// The method, as attribute.
#[must_use]
pub const fn method() -> Uri {
    Uri::Method
}

/// The path in its normal form, as attribute.
#[must_use]
pub const fn path() -> Uri {
    Uri::Path
}

/// The path in its normal form, in which `%2F` and `%5C` stay, as attribute.
#[must_use]
pub const fn path_with_encoded_slashes() -> Uri {
    Uri::PathWithEncodedSlashes
}

/// The host, as attribute.
#[must_use]
pub const fn host() -> Uri {
    Uri::Host
}

impl Attribute for Uri {
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError> {
        let path = |slashes| normalized_path(path::request_path(parts).as_bytes(), slashes);
        Ok(match self {
            Self::Method => Some(Cow::Borrowed(parts.method.as_str())),
            Self::Path => Some(path(EncodedSlash::Decode)?),
            Self::PathWithEncodedSlashes => Some(path(EncodedSlash::Keep)?),
            Self::Host => host_of(parts)?,
        })
    }
}

/// The host without its port: HTTP/2 has it in the URI, HTTP/1 in a header.
fn host_of(parts: &Parts) -> Result<Option<Cow<'_, str>>, AttributeError> {
    let host = match parts.uri.host() {
        Some(host) => Some(Cow::Borrowed(host)),
        None => header_text(parts, &http::header::HOST)?,
    };
    Ok(host.map(|host| {
        let is_lower = !host.bytes().any(|byte| byte.is_ascii_uppercase());
        match host {
            Cow::Borrowed(host) if is_lower => Cow::Borrowed(without_port(host)),
            host => Cow::Owned(without_port(&host).to_ascii_lowercase()),
        }
    }))
}

fn without_port(host: &str) -> &str {
    let end = host.rfind(']').map_or(0, |end| end + 1);
    host[end..].find(':').map_or(host, |colon| &host[..end + colon])
}

/// A key computed from an extension of the request: an account that an earlier layer has
/// authenticated, for example.
///
/// ```
/// use tidegate::{Bucket, Limiter};
/// use tidegate_tower::{LimitLayer, extension};
///
/// #[derive(Clone)]
/// struct Account { id: u64 }
///
/// let limiter: Limiter<u64> = Limiter::new(Bucket::per_minute(100));
/// let layer = LimitLayer::new(limiter, extension(|account: &Account| account.id));
/// ```
///
/// For an attribute of a policy see [`attribute`].
pub fn extension<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> impl KeySource<K>
where
    T: Send + Sync + 'static,
{
    move |parts: &Parts| parts.extensions.get::<T>().map(&key)
}

#[cfg(test)]
mod tests;
