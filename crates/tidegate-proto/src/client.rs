//! The client's address behind proxies.
//!
//! Only the peer of the socket is certain. A trusted proxy has appended the address of its own peer
//! to a header; the entry before that is what *that* peer claims, and so on. So entries are read
//! from the right, and the first that is not a trusted proxy is the client. Entries further left
//! may be forged.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The header into which proxies write addresses. One of them is trusted, never a mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For: 192.0.2.7, 10.0.0.1`
    #[default]
    XForwardedFor,
    /// `Forwarded: for=192.0.2.7;proto=https, for="[2001:db8::1]:443"` (RFC 7239)
    Forwarded,
    /// `X-Real-IP: 192.0.2.7`: one address, which the proxy sets itself.
    XRealIp,
    /// `CF-Connecting-IP: 192.0.2.7`: one address, which the proxy sets itself.
    CfConnectingIp,
}

/// A header that should contain one address and does not.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The header occurs twice: nothing determines which one counts.
    Twice(ForwardedHeader),
    /// The header is not an address.
    NotAnAddress(ForwardedHeader),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice(header) => write!(f, "the header `{}` appears twice", header.name()),
            Self::NotAnAddress(header) => {
                write!(f, "the header `{}` is not an address", header.name())
            }
        }
    }
}

tidegate_core::debug_as_displayed!(ClientError);

impl std::error::Error for ClientError {}

/// A name that is none of the headers.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownHeader;

impl fmt::Display for UnknownHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected ")?;
        for (index, header) in ForwardedHeader::ALL.iter().enumerate() {
            let separator = match index {
                0 => "",
                3 => " or ",
                _ => ", ",
            };
            write!(f, "{separator}{}", header.name())?;
        }
        Ok(())
    }
}

tidegate_core::debug_as_displayed!(UnknownHeader);

impl std::error::Error for UnknownHeader {}

impl FromStr for ForwardedHeader {
    type Err = UnknownHeader;

    /// The header of this name, in any case.
    fn from_str(name: &str) -> Result<Self, UnknownHeader> {
        let named = |header: &Self| header.name().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(named).ok_or(UnknownHeader)
    }
}

impl ForwardedHeader {
    /// All headers.
    pub const ALL: [Self; 4] =
        [Self::XForwardedFor, Self::Forwarded, Self::XRealIp, Self::CfConnectingIp];

    /// The name of the header, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::XRealIp => "x-real-ip",
            Self::CfConnectingIp => "cf-connecting-ip",
        }
    }

    /// The client's address: the first from the right that is not trusted.
    ///
    /// `lines` are all lines of the header, in their order. If all entries are trusted, it is the
    /// leftmost; an unreadable entry ends the walk at the last readable one.
    /// `::ffff:a.b.c.d` is `a.b.c.d`.
    ///
    /// A header with one address is not a list that proxies append to: from a trusted peer it is
    /// the client, and it is an error if it occurs twice or is not an address. Without it the
    /// client is the peer.
    ///
    /// ```
    /// use tidegate_proto::client::ForwardedHeader;
    ///
    /// let proxy = "10.0.0.1".parse()?;
    /// let lines = [b"203.0.113.9, 192.0.2.7".as_slice(), b"10.0.0.2".as_slice()];
    /// let is_trusted = |ip: std::net::IpAddr| ip.to_string().starts_with("10.");
    /// let client = ForwardedHeader::XForwardedFor.client(proxy, lines, is_trusted)?;
    /// assert_eq!(client.to_string(), "192.0.2.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client<'a, I>(
        self,
        peer: IpAddr,
        lines: I,
        is_trusted: impl Fn(IpAddr) -> bool,
    ) -> Result<IpAddr, ClientError>
    where
        I: IntoIterator<Item = &'a [u8]>,
        I::IntoIter: DoubleEndedIterator,
    {
        let entry: fn(&[u8]) -> Option<IpAddr> = match self {
            Self::XForwardedFor => |entry| node(trimmed(entry)),
            Self::Forwarded => forwarded_for,
            Self::XRealIp | Self::CfConnectingIp => {
                return self.one_address(peer.to_canonical(), lines, is_trusted);
            }
        };
        Ok(walked(peer.to_canonical(), lines, is_trusted, entry))
    }

    /// The client where the header has one address.
    fn one_address<'a>(
        self,
        peer: IpAddr,
        lines: impl IntoIterator<Item = &'a [u8]>,
        is_trusted: impl Fn(IpAddr) -> bool,
    ) -> Result<IpAddr, ClientError> {
        let mut lines = lines.into_iter();
        match (lines.next(), lines.next()) {
            _ if !is_trusted(peer) => Ok(peer),
            (None, _) => Ok(peer),
            (Some(_), Some(_)) => Err(ClientError::Twice(self)),
            (Some(line), None) => {
                let address = node(trimmed(line)).ok_or(ClientError::NotAnAddress(self))?;
                Ok(address.to_canonical())
            }
        }
    }
}

/// Walks a list from the right to the first address that is not trusted.
fn walked<'a, I>(
    peer: IpAddr,
    lines: I,
    is_trusted: impl Fn(IpAddr) -> bool,
    address_of: fn(&[u8]) -> Option<IpAddr>,
) -> IpAddr
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: DoubleEndedIterator,
{
    let mut client = peer;
    for line in lines.into_iter().rev() {
        for entry in (FromTheRight { rest: Some(line) }) {
            if !is_trusted(client) {
                return client;
            }
            match address_of(entry) {
                Some(address) => client = address.to_canonical(),
                None => return client,
            }
        }
    }
    client
}

/// The address that a client is counted under: v4 unchanged, v6 by its leading bits, because one
/// customer has a whole network. `::ffff:a.b.c.d` counts as `a.b.c.d`.
///
/// ```
/// use tidegate_proto::client::counted_as;
///
/// assert_eq!(counted_as("2001:db8:1:2:3::4".parse()?, 64).to_string(), "2001:db8:1:2::");
/// assert_eq!(counted_as("::ffff:192.0.2.7".parse()?, 64).to_string(), "192.0.2.7");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn counted_as(address: IpAddr, v6_bits: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(v6_bits.into())).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
        v4 => v4,
    }
}

/// Iterator over the entries of a list, from the right. Commas in quotes separate nothing.
///
/// From this side an entry is complete before anything left of it is read: a quote that a client
/// has left open cannot swallow what proxies appended.
struct FromTheRight<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for FromTheRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let mut is_quoted = false;
        for (at, byte) in rest.iter().enumerate().rev() {
            match byte {
                b'"' if !is_escaped(rest, at) => is_quoted = !is_quoted,
                b',' if !is_quoted => {
                    self.rest = Some(&rest[..at]);
                    return Some(&rest[at + 1..]);
                }
                _ => {}
            }
        }
        self.rest = None;
        Some(rest)
    }
}

/// Whether an odd number of backslashes precedes this byte.
fn is_escaped(bytes: &[u8], at: usize) -> bool {
    bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in the one `for` of an element of `Forwarded`.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in pairs(element).filter(|pair| !trimmed(pair).is_empty()) {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..at], &pair[at + 1..]);
        if trimmed(name).eq_ignore_ascii_case(b"for") {
            let value = unquoted(trimmed(value))?;
            if found.replace(node(value)?).is_some() {
                return None;
            }
        }
    }
    found
}

/// The parts between semicolons that are not in quotes.
fn pairs(element: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    element.split(move |byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b';' => return !is_quoted,
            _ => {}
        }
        false
    })
}

/// The text inside quotes, or unquoted text. No address needs an escape.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    let is_quote = |byte: &u8| *byte == b'"';
    let inner = match value {
        [b'"', inner @ .., b'"'] => inner,
        plain => plain,
    };
    (!inner.iter().any(is_quote)).then_some(inner)
}

/// An address, with or without a port.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(bracketed).or_else(with_port)
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

#[cfg(test)]
mod tests;
