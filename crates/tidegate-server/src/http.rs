//! HTTP with JSON.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use tidegate::policy::Scope;
use tidegate::{Report, hold::HoldId};
use tidegate_listen::http::{ConnectionPhase, PhaseTracker, TrackedStream};
use tidegate_listen::{Connection, PeerId, PeerStream, Protocol, ShutdownSignal};

use crate::access::{AccessDenial, ConnectionAccess, Principal, browser};
use crate::body::DecisionId;
use crate::daemon::{Daemon, SharedDaemon};
use crate::listener::Listener;
use credentials::SecretHeaders;
use problem::RequestProblem;
use response::HttpResponse;
use routes::{Endpoint, Methods, Needed, Route};

mod check;
pub(crate) mod credentials;
mod explain;
mod forward;
mod holds;
mod leases;
pub(crate) mod problem;
mod request_body;
pub(crate) mod response;
pub(crate) mod routes;
mod usage;

/// The protocol of the HTTP listener: HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Http {
    daemon: SharedDaemon,
}

impl Http {
    pub(crate) fn new(daemon: SharedDaemon) -> Self {
        Self { daemon }
    }
}

impl Protocol for Http {
    async fn serve(&self, connection: Connection) {
        let Connection { io, peer, shutdown, permit, certificate, .. } = connection;
        let access = self.daemon.access.connect(permit.state(), certificate.as_ref());
        let watch = &PhaseTracker::new(self.daemon.settings.bounds.timeouts(), permit);
        let daemon = &self.daemon;
        let exchange =
            ConnectionContext { daemon, peer, access, shutdown: shutdown.clone(), watch };
        let service = service_fn(|request| exchange.handle(request));
        serve_connection(&self.daemon, Listener::Http, io, watch, shutdown, service).await;
    }
}

/// Serves HTTP/1.1 on a connection until the peer closes it, a time-out expires, or shutdown
/// begins.
pub(crate) async fn serve_connection<S, B>(
    daemon: &Daemon,
    listener: Listener,
    io: PeerStream,
    watch: &PhaseTracker,
    mut shutdown: ShutdownSignal,
    service: S,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = Infallible> + 'static,
{
    let head_bytes = daemon.settings.bounds.head_bytes.max(LEAST_HEAD_BYTES);
    let mut http = std::pin::pin!(
        http1::Builder::new()
            // The phase tracker has this time-out.
            .header_read_timeout(None)
            .max_buf_size(head_bytes)
            // Responses are small: one buffer is faster than two.
            .writev(false)
            .serve_connection(TokioIo::new(TrackedStream::new(io, watch)), service)
    );
    let served = tokio::select! {
        biased;
        served = watch.over(http.as_mut()) => served,
        () = shutdown.wanted() => {
            if watch.phase() == ConnectionPhase::Head {
                // No request has begun, and the rest of the head may never arrive.
                return;
            }
            http.as_mut().graceful_shutdown();
            watch.over(http).await
        }
    };
    match served {
        None => tracing::debug!(%listener, "connection closed: time-out"),
        Some(Err(error)) => {
            if error.is_parse() {
                daemon.metrics.listener(listener).malformed.add(1);
            }
            tracing::debug!(%listener, %error, "connection failed");
        }
        Some(Ok(())) => {}
    }
}

/// The length of a response's body.
pub(crate) fn body_len(response: &Response<impl Body>) -> usize {
    usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX)
}

/// The context of all requests of a connection.
struct ConnectionContext<'c> {
    daemon: &'c SharedDaemon,
    peer: PeerId,
    access: ConnectionAccess,
    shutdown: ShutdownSignal,
    watch: &'c PhaseTracker,
}

/// One request, with its whole body.
struct BufferedRequest<'a> {
    daemon: &'a Daemon,
    principal: &'a Principal,
    peer: PeerId,
    head: &'a Parts,
    /// The reservation or lease that the path names.
    id: &'a str,
    body: Bytes,
}

impl BufferedRequest<'_> {
    /// The request as one of its client, if it may send it.
    fn request<'r>(
        &self,
        scope: Scope,
        request: tidegate::Request<'r>,
    ) -> Result<tidegate::Request<'r>, AccessDenial> {
        self.principal.request(scope, request)
    }

    /// The reservation or lease that the path names, if the client may settle it.
    fn hold(&self, scope: Scope) -> Result<HoldId, RequestProblem> {
        let id = holds::parse_hold(self.id)?;
        self.principal.hold(scope, id)?;
        Ok(id)
    }

    /// Counts a decision.
    fn observe(&self, request: &tidegate::Request<'_>, report: &Report) -> DecisionId {
        self.daemon.observe(Listener::Http, request, report)
    }
}

impl ConnectionContext<'_> {
    async fn handle(&self, request: Request<Incoming>) -> Result<HttpResponse, Infallible> {
        self.watch.enter(ConnectionPhase::Body);
        let (head, body) = request.into_parts();
        let response = match routes::find(&head.method, head.uri.path()) {
            Ok((route, id)) => {
                let response = self.act(route, id, &head, body).await;
                let is_for_proxies = route.act.is_for_proxies();
                response.map_err(|it| if is_for_proxies { it.for_proxy() } else { it })
            }
            Err(problem) => Err(problem),
        };
        let response = response.unwrap_or_else(|problem| {
            if let Some(denial) = &problem.denial {
                self.daemon.access.note(Listener::Http, self.peer, denial);
            } else if problem.status.is_client_error() && problem.status != StatusCode::GONE {
                self.daemon.metrics.listener(Listener::Http).malformed.add(1);
            }
            problem.into_response()
        });
        self.watch.respond(body_len(&response));
        Ok(response)
    }

    async fn act(
        &self,
        route: &Route,
        id: &str,
        head: &Parts,
        body: Incoming,
    ) -> Result<HttpResponse, RequestProblem> {
        let daemon = self.daemon;
        let principal = &self.principal(route, &head.headers)?;
        let body = match route.methods {
            Methods::Post => {
                let body = self.body(route, &head.headers, body).await?;
                self.watch.enter(ConnectionPhase::Deciding);
                body
            }
            Methods::Get | Methods::Delete | Methods::Any => Bytes::new(),
        };
        let since = daemon.now();
        let call = &mut BufferedRequest { daemon, principal, peer: self.peer, head, id, body };
        let response = self.dispatch(route.act, call).await;
        if route.act.is_about_limits() {
            daemon.observe_durations(Listener::Http, since, 1);
        }
        response
    }

    async fn dispatch(
        &self,
        act: Endpoint,
        call: &mut BufferedRequest<'_>,
    ) -> Result<HttpResponse, RequestProblem> {
        let daemon = call.daemon;
        match act {
            Endpoint::Check => check::check(call).await,
            Endpoint::CheckBatch => check::batch(call).await,
            Endpoint::Reserve => holds::reserve(call).await,
            Endpoint::Commit => holds::commit(call).await,
            Endpoint::Cancel => holds::cancel(call).await,
            Endpoint::Refund => holds::refund(call).await,
            Endpoint::Acquire => {
                leases::acquire(call, self.watch.permit(), self.shutdown.clone()).await
            }
            Endpoint::Renew => leases::renew(call).await,
            Endpoint::Release => leases::release(call).await,
            Endpoint::Explain => explain::explain(call).await,
            Endpoint::Usage => usage::usage(call).await,
            Endpoint::Forward => forward::forward(call).await,
            Endpoint::Nginx => forward::nginx(call).await,
            Endpoint::Rls => {
                let (status, body) = crate::rls::json(daemon, call.principal, &call.body).await?;
                let is_decision = matches!(status, StatusCode::OK | StatusCode::TOO_MANY_REQUESTS);
                let kind = if is_decision { response::JSON } else { response::TEXT };
                Ok(response::typed(status, kind, body.into()))
            }
            Endpoint::Healthcheck => {
                let readiness = daemon.readiness(&self.shutdown);
                let (status, body) = crate::rls::healthcheck(&readiness);
                Ok(response::text(status, body))
            }
            Endpoint::Healthz => Ok(response::text(StatusCode::OK, "ok\n")),
            Endpoint::Readyz => {
                let readiness = daemon.readiness(&self.shutdown);
                let status = readiness.status(call.head.uri.query());
                Ok(response::json(status, &readiness))
            }
            Endpoint::Metrics => {
                call.principal.may_everywhere(Scope::Read)?;
                Ok(response::typed(StatusCode::OK, METRICS, daemon.metrics_text().into()))
            }
            Endpoint::OpenApi => Ok(response::openapi()),
        }
    }

    /// Who the client is, if it may use the endpoint at all.
    fn principal(&self, route: &Route, headers: &HeaderMap) -> Result<Principal, AccessDenial> {
        let needs = route.act.needs();
        if needs == Needed::Nothing {
            return Ok(Principal::open());
        }
        let daemon = self.daemon;
        let place = match route.act.is_for_proxies() {
            true => SecretHeaders::TokenOnly,
            false => SecretHeaders::Both,
        };
        let secret = match daemon.access.needs_tokens() {
            true => credentials::secret(headers, place)?,
            // Whatever it is, it does not matter.
            false => None,
        };
        let has_token = secret.is_some();
        let principal = daemon.access.authenticate(&self.access, secret, daemon.wall())?;
        if principal.is_open() {
            browser::check_host(headers, daemon.settings.hosts.iter().map(|host| &**host))?;
        }
        // A browser adds its certificate to requests of any page, but no token.
        match route.act {
            _ if has_token => {}
            Endpoint::Forward => browser::check_forwarded(headers, &forward::FORWARDED.added())?,
            Endpoint::Nginx => browser::check_forwarded(headers, &forward::ORIGINAL.added())?,
            _ => {}
        }
        principal.charge(1)?;
        if let Needed::Scope(scope) = needs {
            principal.may(scope)?;
        }
        Ok(principal)
    }

    /// The whole body of a request that may have one.
    async fn body(
        &self,
        route: &Route,
        headers: &HeaderMap,
        mut body: Incoming,
    ) -> Result<Bytes, RequestProblem> {
        if headers.contains_key(ORIGIN) {
            // A page can make a browser send requests to this machine too, unknown to its user.
            return Err(AccessDenial::Origin.into());
        }
        // envoyproxy/ratelimit accepts any type, so its clients may send any.
        let accepts_any = matches!(route.act, Endpoint::Rls);
        if !accepts_any && !headers.get(CONTENT_TYPE).is_none_or(is_json) {
            let detail = "the body must be JSON: send `content-type: application/json`";
            return Err(RequestProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let most = self.daemon.settings.bounds.body_bytes;
        let too_large = || {
            let detail = format!("the body is larger than {most} bytes");
            RequestProblem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        };
        // A client may read no response while it sends, so up to twice the bound is read.
        let tolerated = most.saturating_mul(2);
        if body.size_hint().lower() > tolerated as u64 {
            return Err(too_large());
        }
        let mut whole = Bytes::new();
        let mut more = BytesMut::new();
        let mut length = 0_usize;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                RequestProblem::new(
                    StatusCode::BAD_REQUEST,
                    format!("the body is incomplete: {error}"),
                )
            })?;
            let Ok(data) = frame.into_data() else { continue };
            length = length.saturating_add(data.len());
            if length > tolerated {
                break;
            } else if length > most {
                more.clear();
            } else if whole.is_empty() {
                whole = data;
                if body.is_end_stream() {
                    break;
                }
            } else {
                if more.is_empty() {
                    more.extend_from_slice(&whole);
                }
                more.extend_from_slice(&data);
            }
        }
        if length > most {
            return Err(too_large());
        }
        Ok(if more.is_empty() { whole } else { more.freeze() })
    }
}

/// Whether the type of a body is JSON, or the default of `curl -d`.
fn is_json(content_type: &HeaderValue) -> bool {
    let kind = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let kind = kind.trim_ascii();
    let is = |name: &str| kind.eq_ignore_ascii_case(name.as_bytes());
    is("application/json")
        || is("application/x-www-form-urlencoded")
        || kind.last_chunk().is_some_and(|end: &[u8; 5]| end.eq_ignore_ascii_case(b"+json"))
}

/// The least that hyper accepts.
const LEAST_HEAD_BYTES: usize = 8 << 10;
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
