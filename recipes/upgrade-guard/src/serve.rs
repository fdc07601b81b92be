//! The server: the accept loop of tidegate-listen, with a reserve for the health check.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use tidegate_listen::{Accept, Connections, Http, PeerId, PermitLimits};
use tokio::io::{AsyncRead, AsyncWrite};

/// Serves routes until `stop` is ready, then lets requests in progress complete.
///
/// 2 048 connections at a time, of which an address may have half; see [`serve_within`].
pub async fn serve<L>(listener: L, app: Router, stop: impl Future<Output = ()>)
where
    L: Listener<Addr = SocketAddr>,
{
    let limits = PermitLimits::new(2_048).per_peer(Some(1_024));
    serve_within(AxumListener(listener), limits, app, stop).await;
}

/// Serves routes with these limits until `stop` is ready, then lets requests in progress complete.
///
/// Connections are bounded, in total and per address, and have time-outs until they are upgraded;
/// `/healthz` is served even if there are too many. The routes have to close their WebSockets
/// themselves.
pub async fn serve_within<A>(
    source: A,
    limits: PermitLimits,
    app: Router,
    stop: impl Future<Output = ()>,
) where
    A: Accept,
    A::Io: AsyncRead + AsyncWrite + Unpin,
{
    let permits = Connections::default().listener("http", limits);
    let http = Http::new(app).reserve_for(|request| request.uri.path() == "/healthz");
    tidegate_listen::serve(source, permits, http, stop, MAX_GRACE).await;
}

/// A listener of axum as a source of connections.
struct AxumListener<L>(L);

impl<L: Listener<Addr = SocketAddr>> Accept for AxumListener<L> {
    type Io = L::Io;

    async fn accept(&mut self) -> io::Result<(L::Io, PeerId)> {
        let (io, address) = self.0.accept().await;
        Ok((io, PeerId::Address(address)))
    }
}

/// How long requests in progress and open sockets may take once the server stops.
const MAX_GRACE: Duration = Duration::from_secs(3);
