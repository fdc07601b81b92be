use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, abortable};
use futures_util::stream::FuturesUnordered;
use tidegate::policy::{Network, RuleError};
use tidegate_listen::{Accept, PeerId, Warnings, is_of_one_connection};
use tidegate_proto::proxy::{ProxyHeader, parse};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

pub use stream::ProxyStream;

mod stream;

/// A listener behind a balancer that sends the PROXY protocol, version 1 or 2: every connection
/// begins with a header that contains the client's address.
///
/// A balancer can claim any address, so only connections from known networks are served: those of
/// [`only_from`](Self::only_from), or without it loopback. A connection without the header is
/// closed.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use tokio::net::TcpListener;
/// use tidegate::{Bucket, Limiter};
/// use tidegate_tower::{ClientIp, LimitLayer, Peer, ProxyListener};
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = TcpListener::bind("127.0.0.1:8080").await?;
/// let listener = ProxyListener::new(listener).only_from(["10.0.0.0/8"])?;
/// let limiter = Limiter::new(Bucket::per_second(10).burst(20));
/// let app = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(LimitLayer::new(limiter, ClientIp::peer()));
/// axum::serve(listener, app.into_make_service_with_connect_info::<Peer>()).await?;
/// # Ok(())
/// # }
/// ```
///
/// Headers are read concurrently, so a slow connection delays no other; 1 024 may be pending at a
/// time. One more closes the one that has been silent longest.
#[derive(Debug)]
pub struct ProxyListener {
    listener: TcpListener,
    /// `None`: loopback only.
    only_from: Option<Vec<Network>>,
    header_timeout: Duration,
    /// Connections whose header has not been read yet.
    pending: FuturesUnordered<Abortable<Pin<Box<Announcing>>>>,
    /// The handles of these connections, by their numbers: the lowest has waited longest.
    handles: BTreeMap<u64, AbortHandle>,
    next: u64,
    /// A pause in accepting, after an error.
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    failures: Warnings,
}

/// A connection whose header is being read.
type Announcing = dyn Future<Output = Announced> + Send;

/// The number of a connection, and the connection if its header was read.
type Announced = (u64, Option<(ProxyStream, SocketAddr)>);

impl ProxyListener {
    /// A listener whose connections all begin with the header.
    #[must_use]
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            only_from: None,
            header_timeout: Duration::from_secs(5),
            pending: FuturesUnordered::new(),
            handles: BTreeMap::new(),
            next: 0,
            pause: None,
            failures: Warnings::new(),
        }
    }

    /// Closes connections from outside these networks, unread. Without it these are all that are
    /// not from loopback.
    pub fn only_from<'n>(
        self,
        balancers: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, RuleError> {
        let networks: Result<Vec<Network>, _> = balancers.into_iter().map(str::parse).collect();
        Ok(self.only_from_networks(networks?))
    }

    /// The same with networks that are parsed already.
    #[must_use]
    pub fn only_from_networks(mut self, balancers: impl IntoIterator<Item = Network>) -> Self {
        self.only_from = Some(balancers.into_iter().collect());
        self
    }

    /// The time that a connection has to send its header, in place of 5 s.
    #[must_use]
    pub fn header_timeout(mut self, header_timeout: Duration) -> Self {
        self.header_timeout = header_timeout;
        self
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection whose header was read, and its client's address. Neither errors of a
    /// single connection nor of the system end this.
    ///
    /// Cancel-safe: connections whose header is being read stay with the listener.
    pub async fn accept(&mut self) -> (ProxyStream, SocketAddr) {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<(ProxyStream, SocketAddr)> {
        loop {
            while let Poll::Ready(Some(announced)) = self.pending.poll_next_unpin(context) {
                let Ok((number, connection)) = announced else { continue };
                self.handles.remove(&number);
                if let Some(connection) = connection {
                    return Poll::Ready(connection);
                }
            }
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
            }
            match self.listener.poll_accept(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok((stream, peer))) => self.begin(stream, peer),
                Poll::Ready(Err(error)) if is_of_one_connection(&error) => {}
                Poll::Ready(Err(error)) => {
                    if let Some(left_out) = self.failures.next() {
                        tracing::error!(%error, left_out, "accept failed; retrying in 1 s");
                    }
                    self.pause = Some(Box::pin(sleep(Duration::from_secs(1))));
                }
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, peer: SocketAddr) {
        let is_balancer = match &self.only_from {
            Some(networks) => networks.iter().any(|network| network.contains(peer.ip())),
            None => peer.ip().to_canonical().is_loopback(),
        };
        if !is_balancer {
            tracing::debug!(%peer, "connection closed: peer is not a balancer");
            return;
        }
        // Small messages should leave at once; without this they leave a little later.
        let _ = stream.set_nodelay(true);
        if self.handles.len() >= MOST_PENDING
            && let Some((_, longest)) = self.handles.pop_first()
        {
            longest.abort();
        }
        let (number, max_wait) = (self.next, self.header_timeout);
        self.next += 1;
        let announcing: Pin<Box<Announcing>> =
            Box::pin(async move { (number, announced(stream, peer, max_wait).await) });
        let (announcing, handle) = abortable(announcing);
        self.handles.insert(number, handle);
        self.pending.push(announcing);
    }
}

/// The connection once its header was read; `None` if that fails or takes too long.
async fn announced(
    stream: TcpStream,
    peer: SocketAddr,
    max_wait: Duration,
) -> Option<(ProxyStream, SocketAddr)> {
    match timeout(max_wait, with_header(stream, peer)).await {
        Ok(Ok(connection)) => Some(connection),
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "connection closed: no valid PROXY header");
            None
        }
        Err(_) => {
            tracing::debug!(%peer, "connection closed: no PROXY header in time");
            None
        }
    }
}

/// Reads the header. The bytes after it belong to the connection.
async fn with_header(
    mut stream: TcpStream,
    peer: SocketAddr,
) -> io::Result<(ProxyStream, SocketAddr)> {
    let mut bytes = BytesMut::with_capacity(512);
    loop {
        match parse(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
            Some(parsed) => {
                let rest = bytes.split_off(parsed.length).freeze();
                let source = match parsed.header {
                    ProxyHeader::Proxied { source, .. } => source,
                    ProxyHeader::Local => peer,
                };
                return Ok((ProxyStream::new(stream, rest, source), source));
            }
            // The parser never needs more than its longest header.
            None if stream.read_buf(&mut bytes).await? == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            None => {}
        }
    }
}

/// The peer of a connection is the client that its header contains.
impl Accept for ProxyListener {
    type Io = ProxyStream;

    async fn accept(&mut self) -> io::Result<(ProxyStream, PeerId)> {
        let (stream, client) = Self::accept(self).await;
        Ok((stream, PeerId::Address(client)))
    }
}

#[cfg(feature = "axum")]
impl axum::serve::Listener for ProxyListener {
    type Io = ProxyStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (ProxyStream, SocketAddr) {
        Self::accept(self).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The maximum number of connections whose header is pending.
const MOST_PENDING: usize = 1_024;
