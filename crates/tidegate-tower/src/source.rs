//! Sources of keys and attributes.

use std::borrow::Cow;

use http::request::Parts;

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
    fn value<'a>(&self, parts: &'a Parts) -> Option<Cow<'a, str>>;
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
    fn value<'a>(&self, parts: &'a Parts) -> Option<Cow<'a, str>> {
        (self.0)(parts)
    }
}

/// The value of a header, as key or attribute.
///
/// A request with the header twice has no value: it would be ambiguous.
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

    fn text<'a>(&self, parts: &'a Parts) -> Option<&'a str> {
        let mut values = parts.headers.get_all(&self.name).iter();
        let (first, second) = (values.next()?, values.next());
        if second.is_some() { None } else { std::str::from_utf8(first.as_bytes()).ok() }
    }
}

impl KeySource<String> for Header {
    fn key(&self, parts: &Parts) -> Option<String> {
        self.text(parts).map(ToOwned::to_owned)
    }
}

impl Attribute for Header {
    fn value<'a>(&self, parts: &'a Parts) -> Option<Cow<'a, str>> {
        self.text(parts).map(Cow::Borrowed)
    }
}

/// A part of the request line, as attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uri {
    /// The method: `GET`.
    Method,
    /// The path as the client sent it, without the query.
    Path,
    /// The requested host, in lower case and without a port.
    Host,
}

/// The method, as attribute.
#[must_use]
pub const fn method() -> Uri {
    Uri::Method
}

/// The path, as attribute.
#[must_use]
pub const fn path() -> Uri {
    Uri::Path
}

/// The host, as attribute.
#[must_use]
pub const fn host() -> Uri {
    Uri::Host
}

impl Attribute for Uri {
    fn value<'a>(&self, parts: &'a Parts) -> Option<Cow<'a, str>> {
        match self {
            Self::Method => Some(Cow::Borrowed(parts.method.as_str())),
            Self::Path => Some(Cow::Borrowed(path::request_path(parts))),
            Self::Host => host_of(parts),
        }
    }
}

/// The host without its port: HTTP/2 has it in the URI, HTTP/1 in a header.
fn host_of(parts: &Parts) -> Option<Cow<'_, str>> {
    let host = match parts.uri.host() {
        Some(host) => host,
        None => {
            let header = parts.headers.get(http::header::HOST)?.to_str().ok()?;
            let end = header.rfind(']').map_or(0, |end| end + 1);
            match header[end..].find(':') {
                Some(colon) => &header[..end + colon],
                None => header,
            }
        }
    };
    let is_lower = !host.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(if is_lower { Cow::Borrowed(host) } else { Cow::Owned(host.to_ascii_lowercase()) })
}

/// A key computed from an extension of the request: an account that an earlier layer has
/// authenticated, for example.
///
/// ```
/// use tidegate::{Bucket, Limiter, Rate};
/// use tidegate_tower::{LimitLayer, extension};
///
/// #[derive(Clone)]
/// struct Account { id: u64 }
///
/// let limiter: Limiter<u64> = Limiter::new(Bucket::of(Rate::per_minute(100)?)?);
/// let layer = LimitLayer::new(limiter, extension(|account: &Account| account.id));
/// # Ok::<(), tidegate::LimitError>(())
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
