//! Ports on loopback.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Socket, Type};

/// A free port of 127.0.0.1 that the system gives to no other process while this value lives.
///
/// The socket behind it is bound and does not listen: connections are refused until a server listens, and
/// the system chooses the port neither for another `bind` to port 0 nor for an outgoing connection. A server
/// that binds it by number with `SO_REUSEADDR`, as Redis, Valkey and the standard library do, gets it, again
/// after every restart.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _bound: Socket,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let (number, bound) =
            reserve().unwrap_or_else(|error| panic!("cannot reserve a port of 127.0.0.1: {error}"));
        Self { number, _bound: bound }
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        loopback(self.number)
    }
}

pub(crate) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

fn reserve() -> io::Result<(u16, Socket)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&loopback(0).into())?;
    let address = socket.local_addr()?.as_socket();
    let port = address.ok_or_else(|| io::Error::other("the address is not one of IPv4"))?.port();
    Ok((port, socket))
}

#[cfg(test)]
mod tests;
