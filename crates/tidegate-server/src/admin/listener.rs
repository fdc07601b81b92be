//! The admin API over HTTP.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use http::header::{ACCEPT, ALLOW, AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use serde_json::Value;
use tidegate::{Cooldown, Limiter};

pub(crate) use super::token::Tokens;
use super::{AdminError, AdminRequest, AdminResponse, Payload, Principal, Role};
use crate::daemon::SharedDaemon;
use crate::http::response::{HttpResponse, JSON, PROBLEM, TEXT, typed};
use crate::http::{body_len, serve_connection};
use crate::listener::Listener;
use tidegate_listen::http::{ConnectionPhase, PhaseTracker};
use tidegate_listen::{Connection, PeerId, Protocol};

/// The protocol of the admin listener: HTTP/1.1.
#[derive(Debug)]
pub(crate) struct AdminHttp {
    daemon: SharedDaemon,
    tokens: Tokens,
    /// Limits the warnings of wrong tokens.
    warnings: Limiter<str, Cooldown>,
}

impl AdminHttp {
    pub(crate) fn new(daemon: SharedDaemon) -> Self {
        let tokens = Tokens::of(&daemon.settings);
        let warnings = Limiter::new(Cooldown::new(WARN_EVERY).expect("the cooldown is not zero"));
        Self { daemon, tokens, warnings }
    }

    /// The response, with the phase of the connection tracked.
    async fn tracked(
        &self,
        watch: &PhaseTracker,
        peer: PeerId,
        request: Request<Incoming>,
    ) -> Result<HttpResponse, Infallible> {
        watch.enter(ConnectionPhase::Body);
        let since = self.daemon.now();
        let is_of_admin = request.uri().path().starts_with("/admin/");
        let reply = self.handle(peer, request).await;
        if is_of_admin {
            self.daemon.observe_durations(Listener::Admin, since, 1);
        }
        watch.respond(body_len(&reply));
        Ok(reply)
    }

    async fn handle(&self, peer: PeerId, request: Request<Incoming>) -> HttpResponse {
        let wants_text = request.method() == http::Method::GET
            && request.uri().path() == "/admin/v1/policy"
            && header(request.headers(), ACCEPT.as_str())
                .is_some_and(|it| it.contains("text/plain") || it.contains("application/toml"));
        let reply = match self.try_handle(peer, request).await {
            Ok(AdminBody::Json(reply)) => reply,
            Ok(AdminBody::Text(text)) => return text_response(text),
            Err(error) => error.into(),
        };
        match &reply.body["policy"] {
            Value::String(policy) if wants_text => text_response(policy.clone()),
            _ => response(&reply),
        }
    }

    async fn try_handle(
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
            self.daemon.metrics.listener(Listener::Admin).wrong_secrets.add(1);
            if self.warnings.check("").is_allowed() {
                tracing::warn!(%peer, "admin request without a valid token");
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
                let detail = format!("the body is larger than {most} bytes");
                return Err(AdminError::new(413, "Content Too Large", detail));
            }
            Ok(Err(error)) => return Err(AdminError::unreadable(format!("the body: {error}"))),
            Err(_) => {
                return Err(AdminError::new(
                    408,
                    "Request Timeout",
                    "the body did not arrive in time",
                ));
            }
        };
        let actor = describe_peer(peer, &self.tokens);
        let call = AdminRequest {
            method: head.method.as_str(),
            path: &path,
            query: head.uri.query().unwrap_or(""),
            payload: Payload::of_bytes(&body)?,
        };
        let principal = Principal { role, actor: &actor };
        Ok(AdminBody::Json(super::handle(&self.daemon, &principal, call).await))
    }

    fn readiness(&self) -> AdminResponse {
        let readiness = self.daemon.readiness();
        let status = if readiness.ready { 200 } else { 503 };
        AdminResponse { status, body: serde_json::to_value(readiness).unwrap_or_default() }
    }
}

/// The body of a response.
enum AdminBody {
    Json(AdminResponse),
    Text(String),
}

impl Protocol for AdminHttp {
    async fn serve(&self, connection: Connection) {
        let Connection { io, peer, shutdown, permit, .. } = connection;
        let watch = &PhaseTracker::new(self.daemon.settings.bounds.timeouts(), permit);
        let service = service_fn(|request| self.tracked(watch, peer, request));
        serve_connection(&self.daemon, Listener::Admin, (io, watch), shutdown, service).await;
    }
}

/// Rejects requests of pages in a browser, where no token is needed: they have an `Origin`, or a
/// `Host` whose name was made to resolve to this machine.
fn refuse_browsers(headers: &HeaderMap) -> Result<(), AdminError> {
    let refused = |what: &str| {
        let detail = format!("{what}; set `admin_token` to allow browsers");
        Err(AdminError::new(403, "Forbidden", detail))
    };
    if headers.contains_key(ORIGIN) {
        return refused("the request has an Origin, so it is from a page in a browser");
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
    // Repeated headers are ambiguous.
    all.next().is_none().then_some(first)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = header(headers, AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn describe_peer(peer: PeerId, tokens: &Tokens) -> String {
    let kind = if tokens.are_none() { "client" } else { "admin token" };
    match peer {
        PeerId::Address(address) => format!("{kind} at {}", address.ip().to_canonical()),
        PeerId::Process(process) => format!("{kind} of uid {}", process.uid()),
    }
}

fn response(reply: &AdminResponse) -> HttpResponse {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if reply.status >= 400 { PROBLEM } else { JSON };
    let mut response = typed(status, kind, format!("{}\n", reply.body).into());
    let headers = response.headers_mut();
    if reply.status == 401 {
        headers.insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        // No further request of this connection can succeed without a token.
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

fn text_response(text: String) -> HttpResponse {
    typed(StatusCode::OK, TEXT, text.into())
}

const WARN_EVERY: Duration = Duration::from_secs(1);

/// The largest policy.
const POLICY_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::is_address_or_localhost;

    #[test]
    fn only_addresses_and_localhost_are_trusted_hosts() {
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
