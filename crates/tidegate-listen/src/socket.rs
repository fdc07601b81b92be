use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use crate::peer::PeerId;

/// A source of connections: a [`ListenSocket`], or one that reads an address
/// from the connection first.
pub trait Accept: Send + 'static {
    /// The byte stream of a connection.
    type Io: Send + 'static;

    /// The next connection. Must be cancel-safe.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, PeerId)>> + Send;

    /// A connection that the system has made already, without the runtime, which may not have
    /// noticed it. `None` if there is none; by default the runtime has to notice it.
    fn accept_arrived(&mut self) -> io::Result<Option<(Self::Io, PeerId)>> {
        Ok(None)
    }
}

/// The socket of a listener.
#[derive(Debug)]
pub enum ListenSocket {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix domain socket.
    Unix(UnixListener),
}

/// The byte stream of a connection.
#[derive(Debug)]
pub enum PeerStream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix domain socket.
    Unix(UnixStream),
    /// Over TCP with TLS.
    #[cfg(feature = "tls")]
    Tls(Box<crate::tls_stream::TlsStream>),
}

impl ListenSocket {
    /// Binds the first address of a name that can be bound, such as `127.0.0.1:8080` or
    /// `localhost:0`. 4 096 connections may wait to be accepted.
    pub async fn bind(address: impl tokio::net::ToSocketAddrs) -> io::Result<Self> {
        bind_tcp(address).await.map(Self::Tcp)
    }

    /// The address of a TCP socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// A TCP listener for [`ListenSocket::Tcp`], or to be wrapped: bound to the first address of a name
/// that can be bound.
pub async fn bind_tcp(address: impl tokio::net::ToSocketAddrs) -> io::Result<TcpListener> {
    let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in tokio::net::lookup_host(address).await? {
        let bound = || {
            let socket =
                if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // The port of a process that has just ended can be used at once.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        match bound() {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

impl Accept for ListenSocket {
    type Io = PeerStream;

    async fn accept(&mut self) -> io::Result<(PeerStream, PeerId)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Responses are small and written whole: waiting for more data gains nothing.
                stream.set_nodelay(true)?;
                Ok((PeerStream::Tcp(stream), PeerId::Address(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let process = stream.peer_cred()?;
                Ok((PeerStream::Unix(stream), PeerId::Process(process)))
            }
        }
    }

    fn accept_arrived(&mut self) -> io::Result<Option<(PeerStream, PeerId)>> {
        let socket = match self {
            Self::Tcp(listener) => SockRef::from(&*listener),
            Self::Unix(listener) => SockRef::from(&*listener),
        };
        let (accepted, address) = match socket.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            accepted => accepted?,
        };
        accepted.set_nonblocking(true)?;
        let descriptor = OwnedFd::from(accepted);
        Ok(Some(match self {
            Self::Tcp(_) => {
                let address = address.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
                let stream = TcpStream::from_std(descriptor.into())?;
                stream.set_nodelay(true)?;
                (PeerStream::Tcp(stream), PeerId::Address(address))
            }
            Self::Unix(_) => {
                let stream = UnixStream::from_std(descriptor.into())?;
                let process = stream.peer_cred()?;
                (PeerStream::Unix(stream), PeerId::Process(process))
            }
        }))
    }
}

impl From<TcpListener> for ListenSocket {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for ListenSocket {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

impl AsFd for PeerStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.as_fd(),
        }
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

/// Connections that wait to be accepted.
pub(crate) const BACKLOG: u32 = 4_096;
