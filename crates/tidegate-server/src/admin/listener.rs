//! The admin listener: HTTP for those who look after the daemon.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use serde_json::Value;
use tidegate::{Cooldown, Limiter};

pub(crate) use super::token::Tokens;
use super::{AdminError, AdminRequest, AdminResponse, Payload, Principal, Role};
use crate::accept::{Connection, PeerId, Protocol};
use crate::daemon::SharedDaemon;
use crate::http::serve_connection;
use crate::http::timeouts::{ConnectionPhase, PhaseTracker};
use crate::listener::Listener;

/// Serves those who look after the daemon, over HTTP/1.1.
#[derive(Debug)]
pub(crate) struct AdminHttp {
    daemon: SharedDaemon,
    tokens: Tokens,
    /// Wrong tokens are told of, but not more often than anybody reads.
    warnings: Limiter<str, Cooldown>,
}

impl AdminHttp {
    pub(crate) fn new(daemon: SharedDaemon) -> Self {
        let tokens = Tokens::of(&daemon.settings);
        let warnings = Limiter::new(Cooldown::new(WARN_EVERY).expect("it is not 0"));
        Self { daemon, tokens, warnings }
    }

    /// An answer, and for what its connection waits meanwhile.
    async fn watched(
        &self,
        watch: &PhaseTracker,
        peer: PeerId,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        watch.enter(ConnectionPhase::Body);
        let reply = self.handle(peer, request).await;
        watch.enter(ConnectionPhase::Writing);
        Ok(reply)
    }

    async fn handle(&self, peer: PeerId, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let wants_text = request.method() == http::Method::GET
            && request.uri().path() == "/admin/v1/policy"
            && header(request.headers(), ACCEPT.as_str())
                .is_some_and(|it| it.contains("text/plain") || it.contains("application/toml"));
        let reply = match self.done(peer, request).await {
            Ok(AdminBody::Json(reply)) => reply,
            Ok(AdminBody::Text(text)) => return text_response(text),
            Err(error) => error.into(),
        };
        match &reply.body["policy"] {
            Value::String(policy) if wants_text => text_response(policy.clone()),
            _ => response(&reply),
        }
    }

    async fn done(
        &self,
        peer: PeerId,
        request: Request<Incoming>,
    ) -> Result<AdminBody, AdminError> {
        let path = request.uri().path().to_owned();
        if self.tokens.are_none() {
            refuse_browsers(request.headers())?;
        }
        match &*path {
            "/healthz" => return Ok(AdminBody::Text("ok\n".into())),
            "/readyz" => return Ok(AdminBody::Json(self.readiness())),
            _ => {}
        }
        let Some(role) = self.tokens.role(bearer(request.headers())) else {
            if self.warnings.check("").is_allowed() {
                tracing::warn!(%peer, "the admin listener was shown no token, or a wrong one");
            }
            let detail = "send the admin token: `Authorization: Bearer …`";
            return Err(AdminError::new(401, "Unauthorized", detail));
        };
        if path == "/metrics" {
            return Ok(AdminBody::Text(self.daemon.metrics_text()));
        }
        let (head, body) = request.into_parts();
        let bounds = &self.daemon.settings.bounds;
        let is_policy = role == Role::Full && path == "/admin/v1/policy";
        let most = if is_policy { POLICY_BYTES_MAX } else { bounds.body_bytes };
        let body = tokio::time::timeout(bounds.request_time, Limited::new(body, most).collect());
        let body = match body.await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                let detail = format!("a body may have {most} bytes");
                return Err(AdminError::new(413, "Content Too Large", detail));
            }
            Ok(Err(error)) => return Err(AdminError::unreadable(format!("the body: {error}"))),
            Err(_) => {
                return Err(AdminError::new(408, "Request Timeout", "the body took too long"));
            }
        };
        let who = describe_peer(peer, &self.tokens);
        let call = AdminRequest {
            method: head.method.as_str(),
            path: &path,
            query: head.uri.query().unwrap_or(""),
            payload: Payload::of_bytes(&body)?,
        };
        let principal = Principal { role, who: &who };
        Ok(AdminBody::Json(super::handle(&self.daemon, &principal, call).await))
    }

    fn readiness(&self) -> AdminResponse {
        let readiness = self.daemon.readiness();
        let status = if readiness.ready { 200 } else { 503 };
        AdminResponse { status, body: serde_json::to_value(readiness).unwrap_or_default() }
    }
}

/// What is answered.
enum AdminBody {
    Json(AdminResponse),
    Text(String),
}

impl Protocol for AdminHttp {
    async fn serve(&self, connection: Connection) {
        let Connection { io, peer, shutdown, permit } = connection;
        let watch = &PhaseTracker::new(self.daemon.settings.bounds);
        let service = service_fn(|request| self.watched(watch, peer, request));
        serve_connection(&self.daemon, Listener::Admin, (io, watch), shutdown, service).await;
        drop(permit);
    }
}

/// Where no token is needed, a page in somebody's browser must not get in: it shows where it is from, or
/// calls this machine by a name that was made to lead here.
fn refuse_browsers(headers: &HeaderMap) -> Result<(), AdminError> {
    let refused = |what: &str| {
        let detail = format!("{what}; set `admin_token` to let browsers in");
        Err(AdminError::new(403, "Forbidden", detail))
    };
    if headers.contains_key(ORIGIN) {
        return refused("the request is from a page in a browser (it has an Origin)");
    }
    match header(headers, HOST.as_str()) {
        Some(host) if is_address_or_localhost(host) => Ok(()),
        _ => refused("the Host is neither an address nor localhost"),
    }
}

fn is_address_or_localhost(host: &str) -> bool {
    if host.parse::<std::net::SocketAddr>().is_ok() {
        return true;
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    // Two of them mean that somebody plays tricks.
    all.next().is_none().then_some(first)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = header(headers, AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn describe_peer(peer: PeerId, tokens: &Tokens) -> String {
    let shown = if tokens.are_none() { "anybody" } else { "admin token" };
    match peer {
        PeerId::Address(address) => format!("{shown} at {}", address.ip().to_canonical()),
        PeerId::Process(process) => format!("{shown} of uid {}", process.uid()),
    }
}

fn response(reply: &AdminResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{}\n", reply.body)));
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let is_problem = reply.status >= 400;
    let kind = if is_problem { tidegate_proto::problem::CONTENT_TYPE } else { "application/json" };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if reply.status == 401 {
        headers.insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        // Whoever has no token has nothing to wait for.
        headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Value::Array(allowed) = &reply.body["allow"] {
        let allowed: Vec<_> = allowed.iter().filter_map(Value::as_str).collect();
        if let Ok(allowed) = allowed.join(", ").parse() {
            headers.insert(ALLOW, allowed);
        }
    }
    response
}

fn text_response(text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

const WARN_EVERY: Duration = Duration::from_secs(1);

/// As large as a policy file may be.
const POLICY_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::is_address_or_localhost;

    #[test]
    fn names_that_others_can_make_are_not_this_machine() {
        for host in
            ["127.0.0.1:9090", "127.0.0.1", "[::1]:9090", "[::1]", "localhost", "LOCALHOST:9090"]
        {
            assert!(is_address_or_localhost(host), "{host}");
        }
        for host in
            ["evil.example:9090", "localhost.evil.example", "127.0.0.1.evil.example", "", ":9090"]
        {
            assert!(!is_address_or_localhost(host), "{host}");
        }
    }
}
