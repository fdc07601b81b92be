//! The accept loop: connections are bounded, in total and per address. One too many gets a reason.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate::policy::{Limit, Policy, PolicyErrors, Rule, Slots};
use tidegate::{Engine, Lease, Request};
use tidegate_proto::client::counted_as;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::problem::DeskError;

/// The bounds of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In total.
    pub all: u64,
    /// Of one address: an IPv4 address, or the /64 of an IPv6 address.
    pub per_address: u64,
}

impl ConnectionLimits {
    /// Slots for connections, which are released when they end.
    fn slots(self) -> Result<Engine, PolicyErrors> {
        let slots = |max| Limit::Slots(Slots::new(max).queue(0).expires(FOR_EVER));
        let address = Rule::new("address", slots(self.per_address)).key(["address"]);
        let address = address.expect("an address is an attribute");
        Policy::new([address, Rule::new("all", slots(self.all))]).map(Engine::new)
    }
}

/// Serves routes until `stop` is ready, then lets requests in progress complete, for 3 s at most.
///
/// No error of a connection, or of accepting one, ends it. A client that does not send the head of
/// a request within 10 s is disconnected. A connection beyond the limits gets a 503 with the reason.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) -> Result<(), PolicyErrors> {
    let (slots, refusals) = (limits.slots()?, Arc::new(Semaphore::new(MAX_REFUSALS)));
    let stopping = watch::Sender::new(false);
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of file descriptors, for example: the next attempt may succeed.
            sleep(RETRY_ACCEPT_AFTER).await;
            continue;
        };
        // Small responses should leave at once; without this they leave a little later.
        let _ = stream.set_nodelay(true);
        let address = counted_as(peer.ip(), V6_BITS).to_string();
        let attributes = [("address", address.as_str())];
        let permit = slots.acquire(&Request::new("default", &attributes), Some(Duration::ZERO));
        match permit.await {
            Ok(permit) => {
                let served = served(stream, app.clone(), stopping.subscribe());
                tokio::spawn(async move { while_permitted(permit, peer, served).await });
            }
            Err(_) => refuse(stream, (peer, limits), &refusals),
        }
    }
    drop(listener);
    stopping.send_replace(true);
    if timeout(MAX_GRACE, stopping.closed()).await.is_err() {
        tracing::warn!("stopped with requests in progress");
    }
    Ok(())
}

async fn while_permitted(
    permit: Lease,
    peer: SocketAddr,
    served: impl Future<Output = hyper::Result<()>>,
) {
    if let Err(error) = served.await {
        tracing::debug!(%peer, %error, "connection failed");
    }
    drop(permit);
}

/// Serves one connection until it ends.
async fn served(
    stream: TcpStream,
    app: Router,
    mut stopping: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        app.clone().oneshot(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_HEADER_TIME)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        result = &mut connection => result,
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// Responds to the first request with the reason. These connections are bounded and short, too:
/// beyond that they are closed without a word.
fn refuse(
    stream: TcpStream,
    (peer, limits): (SocketAddr, ConnectionLimits),
    refusals: &Arc<Semaphore>,
) {
    let Ok(permit) = Arc::clone(refusals).try_acquire_owned() else {
        tracing::debug!(%peer, "connection closed: too many are being refused");
        return;
    };
    tracing::debug!(%peer, "connection refused: too many");
    tokio::spawn(async move {
        let service = service_fn(async |_: hyper::Request<Incoming>| {
            Ok::<_, std::convert::Infallible>(too_many(limits))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .keep_alive(false)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        // A client that sends nothing is not waited for.
        let _ = timeout(MAX_REFUSAL_TIME, connection).await;
        drop(permit);
    });
}

fn too_many(limits: ConnectionLimits) -> Response {
    let ConnectionLimits { all, per_address } = limits;
    let why = format!(
        "Too many connections: {per_address} from one address and {all} in total are served at \
         once. Try again later."
    );
    let mut response = DeskError::Invalid { status: 503, why }.into_response();
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// An IPv6 subscriber has at least this network.
const V6_BITS: u8 = 64;

/// A task releases its slot however it ends, so slots need no expiry.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The time-out of a request's head, and its maximum size.
const MAX_HEADER_TIME: Duration = Duration::from_secs(10);
const MAX_HEADER_BYTES: usize = 16_384;

/// How many connections are being refused at once, and how long each may take.
const MAX_REFUSALS: usize = 256;
const MAX_REFUSAL_TIME: Duration = Duration::from_secs(2);

/// How long to wait after a connection could not be accepted.
const RETRY_ACCEPT_AFTER: Duration = Duration::from_millis(50);

/// How long requests in progress may take once the server stops.
pub(crate) const MAX_GRACE: Duration = Duration::from_secs(3);
