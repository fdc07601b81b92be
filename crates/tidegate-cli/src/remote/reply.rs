//! Responses over HTTP, and whether they are a daemon's.

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::errors::Peer;
use crate::call_error::CallError;

/// A response over HTTP.
pub(super) struct HttpReply {
    pub(super) status: StatusCode,
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

/// The response of a daemon.
#[derive(Debug)]
pub(crate) struct RemoteReply {
    pub(crate) body: Value,
    /// Why the daemon rejected the request.
    pub(crate) error: Option<String>,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

impl HttpReply {
    /// The response, if it is that of an admin listener.
    pub(super) fn decode(&self, peer: &Peer<'_>) -> Result<RemoteReply, CallError> {
        let Some(body) = self.json() else { return Err(peer.not_a_daemon(self)) };
        if self.status.is_success() {
            return Ok(RemoteReply { body, error: None, hint: None });
        }
        let Some(detail) = body["detail"].as_str().map(str::to_owned) else {
            return Err(peer.not_a_daemon(self));
        };
        if body["title"] == "TLS Required" {
            return Err(peer.needs_tls());
        }
        let hint = peer.rejection_hint(self.status, &detail);
        Ok(RemoteReply { body, error: Some(detail), hint })
    }

    /// The response of `/readyz`.
    pub(super) fn readiness(&self, peer: &Peer<'_>) -> Result<Value, CallError> {
        match self.json() {
            Some(body) if body["ready"].is_boolean() => Ok(body),
            Some(body) if body["title"] == "TLS Required" => Err(peer.needs_tls()),
            _ => Err(peer.not_a_daemon(self)),
        }
    }

    /// The body, if it is an object in JSON.
    fn json(&self) -> Option<Value> {
        let kind = self.content_type.split(';').next().unwrap_or_default().trim();
        let is_json = kind.eq_ignore_ascii_case("application/json")
            || kind.eq_ignore_ascii_case("application/problem+json");
        let body: Value = is_json.then(|| serde_json::from_slice(&self.body).ok())??;
        body.is_object().then_some(body)
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::super::errors::Peer;
    use super::super::url::DaemonUrl;
    use super::{HttpReply, RemoteReply};

    fn decode(status: u16, kind: &str, body: &'static str) -> Result<RemoteReply, String> {
        let url = DaemonUrl::parse("https://limits.example:9090").unwrap();
        let peer = Peer { url: &url, ca: None, has_certificate: false, token_file: None };
        let status = StatusCode::from_u16(status).unwrap();
        let reply = HttpReply { status, content_type: kind.into(), body: body.into() };
        reply.decode(&peer).map_err(|error| error.to_string())
    }

    #[test]
    fn pages_of_proxies_are_not_responses_of_a_daemon() {
        for (status, kind, body) in [
            (200, "text/html", "<html>Log in"),
            (200, "application/json", "<html>"),
            (200, "application/json", "[]"),
            (401, "text/html; charset=utf-8", "<html>401"),
            (403, "application/json", r#"{"message":"no"}"#),
            (302, "", ""),
            (502, "text/html", "<html>Bad Gateway"),
        ] {
            let error = decode(status, kind, body).unwrap_err();
            assert!(error.contains(&status.to_string()) && error.contains("hint"), "{error}");
        }
    }

    #[test]
    fn a_rejection_has_the_reason_of_the_daemon_and_a_hint() {
        for (status, detail, hint) in [
            (401, "a token or a client certificate is needed", Some("--token-file")),
            (403, "the client lacks the scope `admin`", Some("`inspect`")),
            (404, "no such path; see /openapi.json", Some("admin listener")),
            (422, "`x` is missing", None),
        ] {
            let body = format!(r#"{{"title":"x","detail":"{detail}"}}"#);
            let reply = decode(status, "application/problem+json", body.leak()).unwrap();
            assert_eq!(reply.error.as_deref(), Some(detail));
            assert_eq!(reply.hint.is_some(), hint.is_some());
            assert!(reply.hint.unwrap_or_default().contains(hint.unwrap_or_default()));
        }
    }
}
