use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use tokio::net::unix::UCred;

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub enum PeerId {
    /// A peer at an address.
    Address(SocketAddr),
    /// A local process, with the credentials that the kernel reports.
    Process(UCred),
}

impl PeerId {
    /// The address of the peer; `None` for a local process.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Process(_) => None,
        }
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Process(process) => write!(f, "user {}", process.uid()),
        }
    }
}

/// What counts as one peer where connections are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// An IPv4 address, or a /64 network of IPv6, which one peer usually has whole.
    Network(IpAddr),
    /// A user of this machine.
    User(u32),
}

impl Peer {
    /// The network of an address: `::ffff:a.b.c.d` is `a.b.c.d`, other IPv6 addresses are cut to
    /// their /64.
    ///
    /// ```
    /// use tidegate_listen::Peer;
    ///
    /// let of = |text: &str| Peer::network_of(text.parse().unwrap());
    /// assert_eq!(of("2001:db8:0:1::7"), of("2001:db8:0:1:ffff::9"));
    /// assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    /// ```
    #[must_use]
    pub fn network_of(ip: IpAddr) -> Self {
        Self::Network(match ip.to_canonical() {
            IpAddr::V6(ip) => {
                let network = ip.to_bits() & !u128::from(u64::MAX);
                Ipv6Addr::from_bits(network).into()
            }
            ip => ip,
        })
    }
}

impl From<PeerId> for Peer {
    fn from(peer: PeerId) -> Self {
        match peer {
            PeerId::Address(address) => Self::network_of(address.ip()),
            PeerId::Process(process) => Self::User(process.uid()),
        }
    }
}

impl From<SocketAddr> for PeerId {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}
