//! The admin API over HTTP.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use serde_json::Value;
use tidegate::policy::Scope;

use super::events::{self, AdminHttpResponse, whole};
use super::session::is_tls;
use super::{AdminClient, AdminError, AdminRequest, AdminResponse, RawPayload};
use crate::access::browser::{self, OriginRule};
use crate::access::{AccessDenial, ConnectionAccess, CurrentSession, Principal};
use crate::daemon::{Daemon, SharedDaemon};
use crate::dashboard::DashboardFile;
use crate::http::credentials::{SecretHeaders, secret};
use crate::http::response::{HttpResponse, JSON, PROBLEM, TEXT, openapi, typed};
use crate::http::{body_len, serve_connection};
use crate::listener::Listener;
use tidegate_listen::http::{ConnectionPhase, PhaseTracker};
use tidegate_listen::{Connection, PeerId, Permit, Protocol, ShutdownSignal};

/// The protocol of the admin listener: HTTP/1.1.
#[derive(Debug)]
pub(crate) struct AdminHttp {
    pub(super) daemon: SharedDaemon,
}

/// The client of a connection.
pub(super) struct AdminConnection {
    pub(super) peer: PeerId,
    pub(super) access: ConnectionAccess,
    shutdown: ShutdownSignal,
    permit: Arc<Permit>,
}

/// The client of a request.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) principal: Principal,
    /// The session of the dashboard, if the client has used its cookie.
    pub(super) session: Option<CurrentSession>,
}

impl Login {
    /// Whether it still is what it was.
    pub(super) fn is_open(&self, daemon: &Daemon) -> bool {
        let times = daemon.session_times();
        match &self.session {
            Some(session) => daemon.sessions.renewed(session, times).is_some(),
            None => !self.principal.is_over(times.wall),
        }
    }
}

impl AdminHttp {
    pub(crate) const fn new(daemon: SharedDaemon) -> Self {
        Self { daemon }
    }

    /// The response, with the phase of the connection tracked.
    async fn tracked(
        &self,
        watch: &PhaseTracker,
        client: &AdminConnection,
        request: Request<Incoming>,
    ) -> Result<AdminHttpResponse, Infallible> {
        watch.enter(ConnectionPhase::Body);
        let since = self.daemon.now();
        let is_of_admin = request.uri().path().starts_with("/admin/");
        let reply = match request.uri().path() {
            "/admin/v1/events" => self.events(client, &request),
            _ => whole(self.handle(client, request).await),
        };
        if reply.body().is_stream() {
            watch.enter(ConnectionPhase::Deciding);
            return Ok(reply);
        }
        if is_of_admin {
            self.daemon.observe_durations(Listener::Admin, since, 1);
        }
        watch.respond(body_len(&reply));
        Ok(reply)
    }

    /// The stream of events, or why there is none.
    fn events(&self, client: &AdminConnection, request: &Request<Incoming>) -> AdminHttpResponse {
        let stream = || {
            if request.method() != Method::GET {
                return Err(AdminError::method(&["GET"]));
            }
            let login = self.login(client, request.method(), request.headers())?;
            login.principal.may_everywhere(Scope::Inspect)?;
            events::stream(&self.daemon, login, client.shutdown.clone())
        };
        stream().unwrap_or_else(|error| whole(self.problem(client, error)))
    }

    /// The response to a request that failed.
    fn problem(&self, client: &AdminConnection, error: AdminError) -> HttpResponse {
        let reply = AdminResponse::from(error);
        if let Some(denial) = &reply.denial {
            self.daemon.access.note(Listener::Admin, client.peer, denial);
        }
        response(&reply)
    }

    async fn handle(&self, client: &AdminConnection, request: Request<Incoming>) -> HttpResponse {
        if let Some(file) = DashboardFile::at(request.uri().path()) {
            return match *request.method() {
                Method::GET | Method::HEAD => file.response(),
                _ => self.problem(client, AdminError::method(&["GET"])),
            };
        }
        let wants_text = request.method() == http::Method::GET
            && request.uri().path() == "/admin/v1/policy"
            && header(request.headers(), ACCEPT.as_str())
                .is_some_and(|it| it.contains("text/plain") || it.contains("application/toml"));
        let reply = match self.try_handle(client, request).await {
            Ok(AdminBody::Json(reply)) => reply,
            Ok(AdminBody::Text(text)) => return text_response(text),
            Ok(AdminBody::Response(response)) => return response,
            Err(error) => error.into(),
        };
        if let Some(denial) = &reply.denial {
            self.daemon.access.note(Listener::Admin, client.peer, denial);
        }
        match &reply.body["policy"] {
            Value::String(policy) if wants_text => text_response(policy.clone()),
            _ => response(&reply),
        }
    }

    async fn try_handle(
        &self,
        client: &AdminConnection,
        request: Request<Incoming>,
    ) -> Result<AdminBody, AdminError> {
        let path = request.uri().path().to_owned();
        match &*path {
            "/healthz" => return Ok(AdminBody::Text("ok\n".into())),
            "/readyz" => {
                return Ok(AdminBody::Response(self.readiness(client, request.uri().query())));
            }
            _ => {}
        }
        if path == "/admin/v1/session" {
            let (head, body) = request.into_parts();
            let body = self.body(body, TOKEN_BYTES_MAX).await?;
            let payload = RawPayload::Any(body).decode_table().await?;
            let session = self.session(client, &head.method, &head.headers, payload)?;
            return Ok(AdminBody::Response(session));
        }
        let Login { principal, .. } = self.login(client, request.method(), request.headers())?;
        if path == "/metrics" {
            let may_read = principal.may_everywhere(Scope::Read);
            may_read.or_else(|_| principal.may_everywhere(Scope::Inspect))?;
            return Ok(AdminBody::Text(self.daemon.metrics_text()));
        }
        if path == "/openapi.json" {
            return Ok(AdminBody::Response(openapi()));
        }
        let (head, body) = request.into_parts();
        let has_policy = match &*path {
            "/admin/v1/policy" => principal.may(Scope::Admin).is_ok(),
            "/admin/v1/preview" => principal.may(Scope::Inspect).is_ok(),
            _ => false,
        };
        let bounds = &self.daemon.settings.bounds;
        let most = if has_policy { POLICY_BYTES_MAX } else { bounds.body_bytes };
        let body = self.body(body, most).await?;
        let actor = describe(client.peer, &principal);
        let call = AdminRequest {
            method: head.method.as_str(),
            path: &path,
            query: head.uri.query().unwrap_or(""),
            payload: match is_toml(&head.headers) {
                true => RawPayload::Toml(body),
                false => RawPayload::Any(body),
            },
        };
        let permit = Some(&*client.permit);
        let client = AdminClient { principal: &principal, actor: &actor, permit };
        Ok(AdminBody::Json(super::handle(&self.daemon, client, call).await))
    }

    /// The whole body of a request.
    async fn body(&self, body: Incoming, most: usize) -> Result<Bytes, AdminError> {
        let time = self.daemon.settings.bounds.request_time;
        match tokio::time::timeout(time, Limited::new(body, most).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                let detail = format!("the body is larger than {most} bytes");
                Err(AdminError::new(413, "Content Too Large", detail))
            }
            Ok(Err(error)) => Err(AdminError::unreadable(format!("the body: {error}"))),
            Err(_) => {
                Err(AdminError::new(408, "Request Timeout", "the body did not arrive in time"))
            }
        }
    }

    /// Who the client is: by a secret, by the cookie of a session, or by its certificate.
    pub(super) fn login(
        &self,
        client: &AdminConnection,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Login, AccessDenial> {
        let daemon = &*self.daemon;
        let needs_tokens = daemon.access.needs_tokens();
        let secret = if needs_tokens { secret(headers, SecretHeaders::Both)? } else { None };
        let session = match needs_tokens && secret.is_none() {
            true => daemon.sessions.current(headers, daemon.session_times())?,
            false => None,
        };
        let principal = match &session {
            Some(session) => {
                client.access.uses(&session.principal);
                session.principal.clone()
            }
            None => daemon.access.authenticate(&client.access, secret, daemon.wall())?,
        };
        if secret.is_none() {
            // A browser adds cookies and certificates to the requests of any page.
            let is_change = !matches!(*method, Method::GET | Method::HEAD);
            let rule = match session.is_some() && is_change {
                true => OriginRule::Needed,
                false => OriginRule::IfSent,
            };
            browser::check_origin(headers, is_tls(daemon), rule)?;
            let is_page = session.is_none() && headers.contains_key(ORIGIN);
            if principal.is_open() || is_page {
                browser::check_host(headers, daemon.settings.hosts.iter().map(|host| &**host))?;
            }
        }
        principal.charge(1)?;
        Ok(Login { principal, session })
    }

    fn readiness(&self, client: &AdminConnection, query: Option<&str>) -> HttpResponse {
        let readiness = self.daemon.readiness(&client.shutdown);
        // Texts only: serializing cannot fail.
        let body = serde_json::to_string(&readiness).unwrap_or_default();
        typed(readiness.status(query), JSON, format!("{body}\n").into())
    }
}

/// The body of a response.
enum AdminBody {
    Json(AdminResponse),
    Text(String),
    Response(HttpResponse),
}

impl Protocol for AdminHttp {
    async fn serve(&self, connection: Connection) {
        let Connection { io, peer, shutdown, permit, certificate, .. } = connection;
        let access = self.daemon.access.connect(permit.state(), certificate.as_ref());
        let client = &AdminConnection {
            peer,
            access,
            shutdown: shutdown.clone(),
            permit: Arc::clone(&permit),
        };
        let watch = &PhaseTracker::new(self.daemon.settings.bounds.timeouts(), permit);
        let service = service_fn(|request| self.tracked(watch, client, request));
        serve_connection(&self.daemon, Listener::Admin, io, watch, shutdown, service).await;
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    // Repeated headers are ambiguous.
    all.next().is_none().then_some(first)
}

/// Whether the client says that the body is TOML.
fn is_toml(headers: &HeaderMap) -> bool {
    let kind = header(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/toml")
}

/// The author of changes, for the audit log.
fn describe(peer: PeerId, principal: &Principal) -> String {
    let client = principal.describe();
    match peer {
        PeerId::Address(address) => format!("{client} at {}", address.ip().to_canonical()),
        PeerId::Process(process) => format!("{client} of uid {}", process.uid()),
    }
}

pub(super) fn response(reply: &AdminResponse) -> HttpResponse {
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

/// The largest body with a token.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// The largest policy.
const POLICY_BYTES_MAX: usize = 16 << 20;
