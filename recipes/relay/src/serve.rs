//! The listener: accepts for as long as it may, and bounds those who only connect.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::IntoMakeServiceWithConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower::{Service, ServiceExt};

/// Serves `app` until `stop` is ready, then lets requests that have begun come to their end.
///
/// An error of one connection, or of accepting one, never ends it. WebSockets are the app's own: it
/// has to close them.
pub async fn serve(listener: TcpListener, app: Router, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let mut app = app.into_make_service_with_connect_info::<SocketAddr>();
    let requests = Arc::new(Semaphore::new(MAX_REQUESTS));
    let stopping = watch::Sender::new(false);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer)) => match Arc::clone(&requests).try_acquire_owned() {
                Ok(place) => {
                    let guest = Guest { peer, stopping: stopping.subscribe(), _place: place };
                    begin(&mut app, stream, guest).await;
                }
                Err(_) => tracing::warn!(%peer, "refused a connection: too many requests at once"),
            },
            Err(error) => rest(&error).await,
        }
    }
    drop(listener);
    stopping.send_replace(true);
    if timeout(MAX_GRACE, stopping.closed()).await.is_err() {
        tracing::warn!("requests were still under way when the server stopped");
    }
}

/// Somebody who has connected.
struct Guest {
    peer: SocketAddr,
    stopping: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

/// Serves one connection in a task of its own, until it is over or becomes a WebSocket.
async fn begin(
    app: &mut IntoMakeServiceWithConnectInfo<Router, SocketAddr>,
    stream: TcpStream,
    mut guest: Guest,
) {
    let peer = guest.peer;
    // Small messages should leave at once. If that cannot be had, they leave a little later.
    let _ = stream.set_nodelay(true);
    let service = match service_for(app, peer).await {
        Ok(service) => service.map_request(|request: hyper::Request<_>| request.map(Body::new)),
        Err(never) => match never {},
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_HEADER_TIME)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
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

/// Waits a little after an error of accepting, unless it was only about one connection.
async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    let is_about_one = matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    );
    if !is_about_one {
        tracing::error!(%error, "cannot accept connections, trying again");
        sleep(ACCEPT_PAUSE).await;
    }
}

/// The most connections at a time that are still plain HTTP.
const MAX_REQUESTS: usize = 2_048;

/// How long a client may take to send the head of a request.
const MAX_HEADER_TIME: Duration = Duration::from_secs(10);

/// How large the head of a request may be.
const MAX_HEADER_BYTES: usize = 16_384;

/// How long requests that have begun may take once the server stops.
const MAX_GRACE: Duration = Duration::from_secs(3);

/// For when there are no more file descriptors: somebody has to leave first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
