//! Logins of the dashboard: `/admin/v1/session`.

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use tidegate::policy::Scope;

use super::listener::{AdminConnection, AdminHttp, Login, response};
use super::{AdminError, AdminResponse, Payload};
use crate::access::browser::{self, OriginRule};
use crate::access::{AccessDenial, Principal, set_cookie};
use crate::daemon::Daemon;
use crate::http::response::HttpResponse;
use crate::listener::Listener;

impl AdminHttp {
    /// Looks at the login of a client, opens a session, or closes it.
    pub(super) fn session(
        &self,
        client: &AdminConnection,
        method: &Method,
        headers: &HeaderMap,
        payload: Payload,
    ) -> Result<HttpResponse, AdminError> {
        match *method {
            Method::GET => self.show_session(client, headers),
            Method::POST => self.open_session(client, headers, payload),
            Method::DELETE => self.close_session(headers),
            _ => Err(AdminError::method(&["GET", "POST", "DELETE"])),
        }
    }

    fn show_session(
        &self,
        client: &AdminConnection,
        headers: &HeaderMap,
    ) -> Result<HttpResponse, AdminError> {
        let body = match self.login(client, &Method::GET, headers) {
            Ok(login) => shown(&login),
            Err(denial) if denial.is_unauthenticated() => json!({
                "login": "needed", "may_inspect": false, "may_change": false, "client": null,
                "version": null, "expires_in_ms": null,
            }),
            Err(denial) => return Err(denial.into()),
        };
        Ok(response(&AdminResponse { status: 200, body, denial: None }))
    }

    fn open_session(
        &self,
        client: &AdminConnection,
        headers: &HeaderMap,
        payload: Payload,
    ) -> Result<HttpResponse, AdminError> {
        let daemon = &*self.daemon;
        browser::check_origin(headers, is_tls(daemon), OriginRule::IfSent)?;
        let mut table = payload.table()?;
        let token = match table.remove("token") {
            Some(Value::String(token)) => token,
            _ => return Err(AdminError::unfit("`token` is missing: the secret of a token")),
        };
        super::edits::nothing_else(&table)?;
        if !daemon.access.needs_tokens() {
            return self.show_session(client, headers);
        }
        let access = &client.access;
        let principal =
            daemon.access.authenticate(access, Some(token.trim().as_bytes()), daemon.wall())?;
        principal.charge(1)?;
        // The scope `admin` includes it.
        may_inspect(&principal)?;
        let opened = daemon.sessions.open(principal.clone(), daemon.session_times());
        let Some((cookie, session)) = opened else {
            let detail = "the system has no random numbers";
            return Err(AdminError::new(503, "Service Unavailable", detail));
        };
        tracing::info!(client = principal.describe(), peer = %client.peer, "dashboard: logged in");
        let body = shown(&Login { principal, session: Some(session) });
        let mut response = response(&AdminResponse { status: 200, body, denial: None });
        put_cookie(&mut response, Some(&cookie), is_tls(daemon));
        Ok(response)
    }

    fn close_session(&self, headers: &HeaderMap) -> Result<HttpResponse, AdminError> {
        let daemon = &*self.daemon;
        browser::check_origin(headers, is_tls(daemon), OriginRule::IfSent)?;
        if let Some(session) = daemon.sessions.current(headers, daemon.session_times())? {
            daemon.sessions.close(&session);
        }
        let mut response = crate::http::response::empty(StatusCode::NO_CONTENT);
        put_cookie(&mut response, None, is_tls(daemon));
        Ok(response)
    }
}

/// Whether the admin listener has TLS.
pub(super) fn is_tls(daemon: &Daemon) -> bool {
    daemon.tls.paths(Listener::Admin).is_some()
}

fn put_cookie(response: &mut HttpResponse, value: Option<&str>, is_tls: bool) {
    if let Ok(cookie) = HeaderValue::from_str(&set_cookie(value, is_tls)) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}

/// Whether a client may look at everything.
fn may_inspect(principal: &Principal) -> Result<(), AccessDenial> {
    principal.may_everywhere(Scope::Inspect)
}

fn shown(login: &Login) -> Value {
    let principal = &login.principal;
    let expires_in_ms = login
        .session
        .as_ref()
        .map(|session| u64::try_from(session.ends_in.as_millis()).unwrap_or(u64::MAX));
    json!({
        "login": if login.session.is_some() { "done" } else { "not_needed" },
        "may_inspect": may_inspect(principal).is_ok(),
        "may_change": principal.may_everywhere(Scope::Admin).is_ok(),
        "client": principal.describe(),
        "version": env!("CARGO_PKG_VERSION"),
        "expires_in_ms": expires_in_ms,
    })
}
