//! The accept loop, with bounds on connections that send nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::IntoMakeServiceWithConnectInfo;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tidegate::policy::{Limit, Policy, Rule, Slots};
use tidegate::{Engine, Lease, Request};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::{Service, ServiceExt};

/// Serves routes until `stop` is ready, then lets requests in progress complete.
///
/// An error of one connection, or of accepting one, never ends it. A client that does not send the
/// head of a request within 10 s is disconnected. The routes have to close their WebSockets
/// themselves.
pub async fn serve<L>(mut listener: L, app: Router, stop: impl Future<Output = ()>)
where
    L: Listener<Addr = SocketAddr>,
{
    let mut stop = pin!(stop);
    let mut app = app.into_make_service_with_connect_info::<SocketAddr>();
    let slots = connection_limits();
    let stopping = watch::Sender::new(false);
    loop {
        let (io, peer) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let address = peer.ip().to_canonical().to_string();
        let attributes = [("address", address.as_str())];
        let request = Request::new("default", &attributes);
        match slots.acquire(&request, Some(Duration::ZERO)).await {
            Ok(permit) => {
                let accepted = Connection { peer, stopping: stopping.subscribe(), _permit: permit };
                begin::<L>(&mut app, io, accepted).await;
            }
            Err(_) => tracing::warn!(%peer, "connection refused: too many requests in progress"),
        }
    }
    drop(listener);
    stopping.send_replace(true);
    if timeout(MAX_GRACE, stopping.closed()).await.is_err() {
        tracing::warn!("stopped with requests in progress");
    }
}

/// Waits for SIGTERM or SIGINT. Signals count from the call on, so call it before announcing that
/// the process is ready.
pub fn stopped() -> impl Future<Output = ()> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    async {
        let [Ok(mut terminated), Ok(mut interrupted)] = signals else {
            tracing::error!("cannot handle SIGTERM and SIGINT");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    }
}

/// The slots for connections that are still plain HTTP. One address cannot hold them all.
fn connection_limits() -> Engine {
    let slots = |max| Limit::Slots(Slots::new(max).queue(0).expires(FOR_EVER));
    let address = Rule::new("address", slots(MAX_REQUESTS / 2)).key(["address"]);
    let address = address.expect("an address is an attribute");
    let all = Rule::new("all", slots(MAX_REQUESTS));
    Engine::new(Policy::new([address, all]).expect("these rules are valid"))
}

/// An accepted connection.
struct Connection {
    peer: SocketAddr,
    stopping: watch::Receiver<bool>,
    _permit: Lease,
}

/// Serves one connection in its own task, until it ends or becomes a WebSocket.
async fn begin<L: Listener>(
    app: &mut IntoMakeServiceWithConnectInfo<Router, SocketAddr>,
    io: L::Io,
    mut accepted: Connection,
) {
    let peer = accepted.peer;
    let service = match service_for(app, peer).await {
        Ok(service) => service.map_request(|request: hyper::Request<_>| request.map(Body::new)),
        Err(never) => match never {},
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_HEADER_TIME)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(io), TowerToHyperService::new(service))
        .with_upgrades();
    tokio::spawn(async move {
        let mut connection = pin!(connection);
        let result = tokio::select! {
            result = &mut connection => result,
            _ = accepted.stopping.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%peer, %error, "connection failed");
        }
        drop(accepted);
    });
}

async fn service_for(
    app: &mut IntoMakeServiceWithConnectInfo<Router, SocketAddr>,
    peer: SocketAddr,
) -> Result<
    <IntoMakeServiceWithConnectInfo<Router, SocketAddr> as Service<SocketAddr>>::Response,
    Infallible,
> {
    ServiceExt::<SocketAddr>::ready(app).await?.call(peer).await
}

/// The maximum number of connections that are still plain HTTP.
const MAX_REQUESTS: u64 = 2_048;

/// A task releases its slot however it ends, so slots need no expiry.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The time-out of a request's head.
const MAX_HEADER_TIME: Duration = Duration::from_secs(10);

/// The maximum size of a request's head.
const MAX_HEADER_BYTES: usize = 16_384;

/// How long requests in progress may take once the server stops.
const MAX_GRACE: Duration = Duration::from_secs(3);
