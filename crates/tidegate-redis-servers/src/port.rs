//! Ports on loopback.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

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
    bound: Socket,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let (number, bound) =
            reserve().unwrap_or_else(|error| panic!("cannot reserve a port of 127.0.0.1: {error}"));
        Self { number, bound }
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        loopback(self.number)
    }

    /// Makes this process the server of the port. Nothing blocks.
    pub(crate) fn listen(&self) -> io::Result<()> {
        self.bound.set_nonblocking(true)?;
        self.bound.listen(BACKLOG)
    }

    /// Ends [`listen`](Self::listen) at once; it may begin again. To close the socket would not do: a process
    /// that is being started by another thread has a copy of it until it runs its program.
    pub(crate) fn refuse(&self) -> io::Result<()> {
        self.bound.shutdown(Shutdown::Read)
    }

    /// A connection that has arrived.
    pub(crate) fn accept(&self) -> io::Result<TcpStream> {
        self.bound.accept().map(|(connection, _)| connection.into())
    }

    /// The socket, to wait for connections.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.bound.as_fd()
    }
}

pub(crate) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

fn reserve() -> io::Result<(u16, Socket)> {
    let chosen = bind(0)?;
    let address = chosen.local_addr()?.as_socket();
    let port = address.ok_or_else(|| io::Error::other("the address is not one of IPv4"))?.port();
    // Again, by its number: a socket keeps a port that the system chose only until it ends to listen.
    Ok((port, bind(port)?))
}

fn bind(port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&loopback(port).into())?;
    Ok(socket)
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 256;

#[cfg(test)]
mod tests;
