//! The PROXY protocol: the client's address, sent by a load balancer before a connection's first
//! byte.
//!
//! Only for listeners behind such a balancer: a peer that may send it can claim any address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// A connection made on behalf of a client.
    Proxied {
        /// The client.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
    /// The balancer's own connection, or an unknown client: the peer of the socket counts.
    Local,
}

/// A header with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedHeader {
    /// The content.
    pub header: ProxyHeader,
    /// The length of the header in bytes; the connection's own bytes follow.
    pub length: usize,
}

/// The bytes do not begin with a valid PROXY header.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyError {
    /// The bytes are not a PROXY header.
    NotProxy,
    /// The header exceeds the maximum length.
    TooLong,
    /// The header's version is unknown.
    Version,
    /// The header's addresses are invalid.
    Addresses,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotProxy => "the connection does not begin with a PROXY header",
            Self::TooLong => "the PROXY header is too long",
            Self::Version => "the PROXY header has an unknown version or command",
            Self::Addresses => "the PROXY header's addresses are invalid",
        })
    }
}

tidegate_core::debug_as_displayed!(ProxyError);

impl std::error::Error for ProxyError {}

/// The maximum length of a header in bytes.
pub const LONGEST: usize = 4_096;

/// Parses the header at the beginning of a connection, version 1 or 2; `None` if more bytes are
/// needed.
pub fn parse(bytes: &[u8]) -> Result<Option<ParsedHeader>, ProxyError> {
    if begins_alike(bytes, &SIGNATURE_V2) {
        return parse_v2(bytes);
    }
    if begins_alike(bytes, b"PROXY ") {
        return parse_v1(bytes);
    }
    Err(ProxyError::NotProxy)
}

/// Whether one of the two is a prefix of the other.
fn begins_alike(bytes: &[u8], sign: &[u8]) -> bool {
    let length = bytes.len().min(sign.len());
    bytes[..length] == sign[..length]
}

fn parse_v1(bytes: &[u8]) -> Result<Option<ParsedHeader>, ProxyError> {
    let within = &bytes[..bytes.len().min(LONGEST_V1)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LONGEST_V1 { Ok(None) } else { Err(ProxyError::TooLong) };
    };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| ProxyError::Addresses)?;
    let length = end + 2;
    let mut words = line.split(' ').skip(1);
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        return Ok(Some(ParsedHeader { header: ProxyHeader::Local, length }));
    }
    let words: Vec<_> = words.take(5).collect();
    let [source, destination, source_port, destination_port] = words[..] else {
        return Err(ProxyError::Addresses);
    };
    let address = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::V4).ok(),
        "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::V6).ok(),
        _ => None,
    };
    let end = |text: &str, port_text: &str| {
        let is_plain = port_text.bytes().all(|byte| byte.is_ascii_digit())
            && (port_text == "0" || !port_text.starts_with('0'));
        let port = port_text.parse().ok().filter(|_| is_plain)?;
        Some(SocketAddr::new(address(text)?, port))
    };
    let source = end(source, source_port).ok_or(ProxyError::Addresses)?;
    let destination = end(destination, destination_port).ok_or(ProxyError::Addresses)?;
    Ok(Some(ParsedHeader { header: ProxyHeader::Proxied { source, destination }, length }))
}

fn parse_v2(bytes: &[u8]) -> Result<Option<ParsedHeader>, ProxyError> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<16>() else { return Ok(None) };
    let [.., command, family, length_high, length_low] = *fixed;
    let body_length = usize::from(u16::from_be_bytes([length_high, length_low]));
    let length = fixed.len() + body_length;
    if length > LONGEST {
        return Err(ProxyError::TooLong);
    }
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyError::Version),
    };
    let Some(body) = rest.get(..body_length) else { return Ok(None) };
    let header = match family {
        _ if is_local => ProxyHeader::Local,
        TCP_V4 => proxied::<4>(body)?,
        TCP_V6 => proxied::<16>(body)?,
        UNSPECIFIED | UNIX => ProxyHeader::Local,
        _ => return Err(ProxyError::Addresses),
    };
    Ok(Some(ParsedHeader { header, length }))
}

/// Two addresses of `N` bytes each, then two ports.
fn proxied<const N: usize>(body: &[u8]) -> Result<ProxyHeader, ProxyError>
where
    IpAddr: From<[u8; N]>,
{
    let read = || {
        let (source, rest) = body.split_first_chunk::<N>()?;
        let (destination, rest) = rest.split_first_chunk::<N>()?;
        let (source_port, rest) = rest.split_first_chunk::<2>()?;
        let (destination_port, _) = rest.split_first_chunk::<2>()?;
        let end = |address, port| SocketAddr::new(IpAddr::from(address), u16::from_be_bytes(port));
        Some(ProxyHeader::Proxied {
            source: end(*source, *source_port),
            destination: end(*destination, *destination_port),
        })
    };
    read().ok_or(ProxyError::Addresses)
}

const UNSPECIFIED: u8 = 0x00;
const TCP_V4: u8 = 0x11;
const TCP_V6: u8 = 0x21;
/// A Unix socket on the balancer's own machine.
const UNIX: u8 = 0x31;

const SIGNATURE_V2: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The maximum length of a version 1 line, including its end.
const LONGEST_V1: usize = 107;

#[cfg(test)]
mod tests;
