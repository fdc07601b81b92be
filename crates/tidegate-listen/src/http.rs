//! HTTP/1.1 for services of tower, with bounds of time and size.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tower_service::Service;

use crate::accept::{ARRIVAL_TIME, Connection, Protocol};
use crate::linger::linger;
use crate::peer::PeerId;
use crate::permits::Refusal;
pub use body::{RequestBody, ResponseBody};
pub use timeouts::{ConnectionPhase, PhaseTracker, Timeouts, TrackedStream};

mod body;
mod timeouts;

/// HTTP/1.1 as a [`Protocol`]: serves a tower service, such as an axum router, with bounds of time
/// and size, graceful shutdown and upgrades.
///
/// The request's extensions contain the [`PeerId`]. Requests of an upgraded connection are the
/// service's own affair: it keeps its permit until the socket is dropped, counts as busy, and has no
/// time-outs here.
///
/// ```no_run
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tidegate_listen::{Connections, Http, ListenSocket, PermitLimits, serve, terminated};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let app: Router = Router::new().route("/health", get(|| async { "ok\n" }));
/// let http = Http::new(app).reserve_for(|request| request.uri.path() == "/health");
/// let permits = Connections::default().listener("http", PermitLimits::new(10_000));
/// let socket = ListenSocket::bind("127.0.0.1:8080").await?;
/// serve(socket, permits, http, terminated(), Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Http<S> {
    service: S,
    timeouts: Timeouts,
    head_bytes: usize,
    surplus: Surplus,
    is_reserved: Option<Reserved>,
    refusal: RefusalResponse,
}

type Reserved = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
type RefusalResponse = Arc<dyn Fn(Refusal) -> Response<Bytes> + Send + Sync>;

/// What connections without a permit get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surplus {
    /// A `503` with the reason and `Retry-After`, as far as the reserve goes; beyond it they are
    /// closed.
    #[default]
    Respond,
    /// They are closed unread.
    Close,
}

impl<S> Http<S> {
    /// Serves this service.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self {
            service,
            timeouts: Timeouts::default(),
            head_bytes: 16 << 10,
            surplus: Surplus::default(),
            is_reserved: None,
            refusal: Arc::new(too_many),
        }
    }

    /// Other time-outs.
    #[must_use]
    pub fn timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    /// The size of a request's head, 16 KiB by default and 8 KiB at least.
    #[must_use]
    pub fn head_bytes(self, head_bytes: usize) -> Self {
        Self { head_bytes, ..self }
    }

    /// What connections without a permit get.
    #[must_use]
    pub fn surplus(self, surplus: Surplus) -> Self {
        Self { surplus, ..self }
    }

    /// Requests that are served also on connections without a permit, such as a health check. They
    /// use the [reserve](crate::PermitLimits::reserve). Has no effect with [`Surplus::Close`].
    #[must_use]
    pub fn reserve_for(self, is_reserved: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self { is_reserved: Some(Arc::new(is_reserved)), ..self }
    }

    /// The response on connections without a permit, in place of a `503` in plain text: for services
    /// whose errors have a format. Without a `Retry-After` it gets one of a second.
    #[must_use]
    pub fn refusal_response(
        self,
        response: impl Fn(Refusal) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        Self { refusal: Arc::new(response), ..self }
    }

    /// The response to a refused connection, which is closed after it.
    fn refused(&self, why: Refusal) -> Response<Full<Bytes>> {
        let mut response = (self.refusal)(why).map(Full::new);
        let headers = response.headers_mut();
        headers.entry(header::RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }

    fn builder(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        // The phase tracker has this time-out.
        builder.header_read_timeout(None).max_buf_size(self.head_bytes.max(LEAST_HEAD_BYTES));
        builder
    }
}

impl<S> fmt::Debug for Http<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timeouts, head_bytes, surplus, .. } = self;
        f.debug_struct("Http")
            .field("timeouts", timeouts)
            .field("head_bytes", head_bytes)
            .field("surplus", surplus)
            .finish_non_exhaustive()
    }
}

/// An error of a service or of its body, of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a service or of its body. It ends the connection.
pub struct ServiceError(BoxError);

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

tidegate::debug_as_displayed!(ServiceError);

impl std::error::Error for ServiceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl ServiceError {
    fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }
}

impl<S, B, I> Protocol<I> for Http<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    async fn serve(&self, connection: Connection<I>) {
        let Connection { io, peer, mut shutdown, permit, .. } = connection;
        let tracker = Arc::new(PhaseTracker::new(self.timeouts, permit));
        let handler = service_fn(|request: Request<Incoming>| {
            handle(self.service.clone(), Arc::clone(&tracker), peer, request)
        });
        let io = TrackedStream::new(io, Arc::clone(&tracker)).close_upgraded_by(close_upgraded);
        let io = TokioIo::new(io);
        let mut http = pin!(self.builder().serve_connection(io, handler).with_upgrades());
        let served = tokio::select! {
            biased;
            served = tracker.over(http.as_mut()) => served,
            () = shutdown.wanted() => {
                // A request that has arrived may not have been read yet.
                match timeout(ARRIVAL_TIME, tracker.over(http.as_mut())).await {
                    Ok(served) => served,
                    // No request has begun, and the rest of the head may never arrive.
                    Err(_) if tracker.phase() == ConnectionPhase::Head => return,
                    Err(_) => {
                        http.as_mut().graceful_shutdown();
                        tracker.over(http.as_mut()).await
                    }
                }
            }
        };
        match served {
            None => tracing::debug!(%peer, "connection closed: time-out"),
            Some(Err(error)) => tracing::debug!(%peer, %error, "connection failed"),
            Some(Ok(())) if tracker.phase() == ConnectionPhase::Upgraded => {
                // The service has the socket. Shutdown waits for it, too.
                tracker.stream_dropped().await;
            }
            Some(Ok(())) => {}
        }
    }

    async fn refuse(&self, connection: Connection<I>, why: Refusal) {
        if self.surplus == Surplus::Close {
            return;
        }
        let Connection { io, peer, mut shutdown, permit, .. } = connection;
        let head_time = self.timeouts.head_time.min(REFUSED_HEAD_TIME);
        let tracker = Arc::new(PhaseTracker::new(Timeouts { head_time, ..self.timeouts }, permit));
        let handler = service_fn(|request: Request<Incoming>| {
            let (parts, body) = request.into_parts();
            let is_reserved = self.is_reserved.as_ref().is_some_and(|is| is(&parts));
            let (service, tracker) = (self.service.clone(), Arc::clone(&tracker));
            let refused = self.refused(why);
            async move {
                if is_reserved {
                    let request = Request::from_parts(parts, body);
                    return handle(service, tracker, peer, request).await;
                }
                tracker.enter(ConnectionPhase::Deciding);
                Ok::<_, ServiceError>(tracker.response(refused))
            }
        });
        let io = TokioIo::new(TrackedStream::new(io, Arc::clone(&tracker)));
        let http = self.builder().keep_alive(false).serve_connection(io, handler);
        let http = pin!(http.without_shutdown());
        let served = tokio::select! {
            biased;
            served = tracker.over(http) => served,
            () = shutdown.wanted() => return,
        };
        if let Some(Ok(parts)) = served {
            linger(parts.io.into_inner().into_inner()).await;
        }
    }
}

/// Calls the service with a request, and tracks both bodies.
async fn handle<S, B>(
    mut service: S,
    tracker: Arc<PhaseTracker>,
    peer: PeerId,
    mut request: Request<Incoming>,
) -> Result<Response<ResponseBody>, ServiceError>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    request.extensions_mut().insert(peer);
    let request = request.map(|body| RequestBody::new(body, Arc::clone(&tracker)));
    poll_fn(|context| service.poll_ready(context)).await.map_err(ServiceError::new)?;
    let response = service.call(request).await.map_err(ServiceError::new)?;
    Ok(tracker.response(response))
}

/// Closes an upgraded stream in the background; it keeps its permit until then.
fn close_upgraded<I>(io: I, tracker: &Arc<PhaseTracker>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tracker = Arc::clone(tracker);
    // Without a runtime the process ends.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            linger(io).await;
            drop(tracker);
        });
    }
}

/// The response on a connection without a permit, unless the service has its own.
fn too_many(why: Refusal) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{why}; try again later\n")));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// The least that hyper accepts.
const LEAST_HEAD_BYTES: usize = 8 << 10;
/// The most time for the head of a request that is going to be refused.
const REFUSED_HEAD_TIME: Duration = Duration::from_secs(5);
