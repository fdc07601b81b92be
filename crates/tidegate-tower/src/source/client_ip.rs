use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use tidegate::policy::{Network, RuleError};
use tidegate_proto::client::{ForwardedHeader, counted_as};

use super::{Attribute, AttributeError, KeySource};
use crate::Peer;

/// The client's address, as key or attribute.
///
/// v6 addresses are counted by their /64, because one customer has a whole network;
/// `::ffff:a.b.c.d` counts as `a.b.c.d`.
///
/// ```
/// use tidegate_tower::{ClientIp, ForwardedHeader};
///
/// // Clients connect directly.
/// let direct = ClientIp::peer();
/// // Addresses from the proxies of these networks are trusted.
/// let behind = ClientIp::behind(["10.0.0.0/8", "fd00::/8"])?;
/// let other = behind.clone().header(ForwardedHeader::Forwarded).v6_bits(56);
/// # Ok::<(), tidegate::policy::RuleError>(())
/// ```
///
/// A server has to provide the other end of the connection: see [`Peer`]. Without it every request
/// gets a 500, and the reason is logged.
#[derive(Clone, Debug)]
pub struct ClientIp {
    trusted: Arc<[Network]>,
    header: ForwardedHeader,
    v6_bits: u8,
}

impl ClientIp {
    /// The other end of the connection. Headers are ignored.
    #[must_use]
    pub fn peer() -> Self {
        Self::behind_networks([])
    }

    /// The client that trusted proxies report, each with an address in one of these networks.
    ///
    /// `X-Forwarded-For` is read from the right, because only what a trusted proxy has appended is
    /// certain; the first address outside the networks is the client.
    pub fn behind<'n>(trusted: impl IntoIterator<Item = &'n str>) -> Result<Self, RuleError> {
        let trusted: Result<Vec<Network>, _> = trusted.into_iter().map(str::parse).collect();
        Ok(Self::behind_networks(trusted?))
    }

    /// [`behind`](Self::behind) with parsed networks, such as those of a policy file.
    #[must_use]
    pub fn behind_networks(trusted: impl IntoIterator<Item = Network>) -> Self {
        let trusted = trusted.into_iter().collect();
        Self { trusted, header: ForwardedHeader::XForwardedFor, v6_bits: 64 }
    }

    /// The header that the proxies write, in place of `X-Forwarded-For`. All others are ignored.
    ///
    /// A request with an [`XRealIp`](ForwardedHeader::XRealIp) or
    /// [`CfConnectingIp`](ForwardedHeader::CfConnectingIp) that occurs twice or is no address has no
    /// key, so it is denied.
    #[must_use]
    pub fn header(self, header: ForwardedHeader) -> Self {
        Self { header, ..self }
    }

    /// How many leading bits of a v6 address count, in place of 64.
    #[must_use]
    pub fn v6_bits(self, v6_bits: u8) -> Self {
        Self { v6_bits, ..self }
    }

    /// The client's whole address; `None` if the peer is unknown.
    ///
    /// A header of a trusted proxy that determines no address is an error.
    pub(crate) fn address(&self, parts: &Parts) -> Result<Option<IpAddr>, AttributeError> {
        let Some(Peer(peer)) = Peer::of(&parts.extensions) else { return Ok(None) };
        if self.trusted.is_empty() {
            return Ok(Some(peer.ip().to_canonical()));
        }
        let is_trusted = |address| self.trusted.iter().any(|network| network.contains(address));
        let lines = parts.headers.get_all(self.header.name()).iter();
        let client = self.header.client(peer.ip(), lines.map(|line| line.as_bytes()), is_trusted);
        client.map(Some).map_err(|error| AttributeError::new(error.to_string()))
    }

    /// The address that the client is counted under.
    pub(crate) fn counted(&self, address: IpAddr) -> IpAddr {
        counted_as(address, self.v6_bits)
    }
}

/// A request without a peer is a mistake in the set-up: the server does not provide it.
fn require_peer(parts: &Parts) -> Result<(), AttributeError> {
    match Peer::of(&parts.extensions) {
        Some(_) => Ok(()),
        None => Err(AttributeError::misconfigured(NO_PEER)),
    }
}

const NO_PEER: &str = "the address of the client is unknown, because the server does not provide \
    it: serve with `tidegate_listen::Http`, or in axum \
    `app.into_make_service_with_connect_info::<SocketAddr>()`; elsewhere, insert a \
    `Peer` into the request's extensions";

impl KeySource<IpAddr> for ClientIp {
    fn key(&self, parts: &Parts) -> Option<IpAddr> {
        self.address(parts).ok().flatten().map(|address| self.counted(address))
    }

    fn try_key(&self, parts: &Parts) -> Result<Option<IpAddr>, AttributeError> {
        require_peer(parts)?;
        Ok(self.address(parts)?.map(|address| self.counted(address)))
    }
}

/// As an attribute it is the whole address: a rule's key selects the bits.
impl Attribute for ClientIp {
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, AttributeError> {
        require_peer(parts)?;
        Ok(self.address(parts)?.map(|address| Cow::Owned(text_of(address))))
    }
}

/// An address as text. It runs for every request, so v4 avoids the formatter.
fn text_of(address: IpAddr) -> String {
    let IpAddr::V4(v4) = address else { return address.to_string() };
    let mut text = String::with_capacity(15);
    for (index, octet) in v4.octets().into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        if octet >= 100 {
            text.push(char::from(b'0' + octet / 100));
        }
        if octet >= 10 {
            text.push(char::from(b'0' + octet / 10 % 10));
        }
        text.push(char::from(b'0' + octet % 10));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn v4_text_matches_the_formatter() {
        for octet in 0..=255 {
            let address = IpAddr::V4(Ipv4Addr::new(octet, 0, 255 - octet, 9));
            assert_eq!(super::text_of(address), address.to_string());
        }
    }
}
