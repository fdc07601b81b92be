//! Accepts for as long as it may, and bounds those who only connect.

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

/// Serves routes until `stop` is ready, then lets requests that have begun come to their end.
///
/// An error of one connection, or of accepting one, never ends it. A client that does not send the
/// head of a request within 10 s is closed. WebSockets are the routes' own: they have to close them.
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
                let guest = Connection { peer, stopping: stopping.subscribe(), _place: permit };
                begin::<L>(&mut app, io, guest).await;
            }
            Err(_) => tracing::warn!(%peer, "refused a connection: too many requests at once"),
        }
    }
    drop(listener);
    stopping.send_replace(true);
    if timeout(MAX_GRACE, stopping.closed()).await.is_err() {
        tracing::warn!("requests were still under way when the server stopped");
    }
}

/// Waits until the process is asked to stop: by SIGTERM or SIGINT. It hears them from the call on, so
/// call it before anybody is told that the process is there.
pub fn stopped() -> impl Future<Output = ()> {
    let heard = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    async {
        let [Ok(mut terminated), Ok(mut interrupted)] = heard else {
            tracing::error!("cannot hear SIGTERM and SIGINT");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    }
}

/// Places for connections that are still plain HTTP. One address cannot take them all.
fn connection_limits() -> Engine {
    let slots = |max| Limit::Slots(Slots::new(max).queue(0).expires(FOR_EVER));
    let address = Rule::new("address", slots(MAX_REQUESTS / 2)).key(["address"]);
    let address = address.expect("an address is an attribute");
    let all = Rule::new("all", slots(MAX_REQUESTS));
    Engine::new(Policy::new([address, all]).expect("these rules are in order"))
}

/// Somebody who has connected.
struct Connection {
    peer: SocketAddr,
    stopping: watch::Receiver<bool>,
    _place: Lease,
}

/// Serves one connection in a task of its own, until it is over or becomes a WebSocket.
async fn begin<L: Listener>(
    app: &mut IntoMakeServiceWithConnectInfo<Router, SocketAddr>,
    io: L::Io,
    mut guest: Connection,
) {
    let peer = guest.peer;
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
            _ = guest.stopping.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%peer, %error, "a request went wrong");
        }
        drop(guest);
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

/// The most connections at a time that are still plain HTTP.
const MAX_REQUESTS: u64 = 2_048;

/// A task that ends gives its place back, however it ends, so none has to come back by itself.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long a client may take to send the head of a request.
const MAX_HEADER_TIME: Duration = Duration::from_secs(10);

/// How large the head of a request may be.
const MAX_HEADER_BYTES: usize = 16_384;

/// How long requests that have begun may take once the server stops.
const MAX_GRACE: Duration = Duration::from_secs(3);
