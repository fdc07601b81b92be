//! Checks for proxies: forward auth, and nginx's `auth_request`.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use smallvec::SmallVec;
use tidegate::policy::{Rule, RuleId, Scope};
use tidegate::{Report, Request, policy::normalized_path};
use tidegate_proto::client::ForwardedHeader;
use tidegate_proto::percent::{decoded_query, percent_utf8};
use tidegate_proto::problem;

use super::BufferedRequest;
use super::problem::RequestProblem;
use super::response::{self, HttpResponse};
use crate::settings::Settings;
use tidegate_listen::PeerId;

/// The headers in which a proxy describes the request of its client.
#[derive(Debug)]
pub(super) struct ForwardDialect {
    method: &'static str,
    host: &'static str,
    uri: &'static str,
    /// The status of a request whose path is rejected.
    invalid_path: StatusCode,
}

impl ForwardDialect {
    /// The headers that only a proxy adds to a request.
    pub(super) const fn added(&self) -> [&'static str; 4] {
        [self.method, self.host, self.uri, ForwardedHeader::XForwardedFor.name()]
    }
}

/// The headers of Caddy and Traefik.
pub(super) const FORWARDED: ForwardDialect = ForwardDialect {
    method: "x-forwarded-method",
    host: "x-forwarded-host",
    uri: "x-forwarded-uri",
    invalid_path: StatusCode::BAD_REQUEST,
};
/// The headers that nginx is configured to send.
pub(super) const ORIGINAL: ForwardDialect = ForwardDialect {
    method: "x-original-method",
    host: "x-original-host",
    uri: "x-original-uri",
    invalid_path: StatusCode::FORBIDDEN,
};

/// `ANY /check/forward`: 200 without a body, or the whole response for the client.
pub(super) async fn forward(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let report = decide(call, &FORWARDED).await?;
    let mut response =
        if report.is_allowed() { response::empty(StatusCode::OK) } else { denial(&report) };
    response::put_limits(response.headers_mut(), &report, call.daemon.settings.dialect);
    Ok(response)
}

/// `ANY /check/nginx`: 204 or 403, the statuses that nginx understands.
pub(super) async fn nginx(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let report = decide(call, &ORIGINAL).await?;
    let allowed = report.is_allowed();
    let mut response =
        response::empty(if allowed { StatusCode::NO_CONTENT } else { StatusCode::FORBIDDEN });
    response::put_limits(response.headers_mut(), &report, call.daemon.settings.dialect);
    Ok(response)
}

async fn decide(
    call: &BufferedRequest<'_>,
    dialect: &ForwardDialect,
) -> Result<Report, RequestProblem> {
    let BufferedRequest { daemon, head, peer, .. } = call;
    let domain = domain(head.uri.query().unwrap_or_default())?;
    let headers = &head.headers;
    let ip = client(&daemon.settings, *peer, headers).to_string();
    let method = one(headers, dialect.method)?.map(percent_utf8);
    let host = one(headers, dialect.host)?.map(percent_utf8);
    let host = host.as_deref().map(host_of);
    let slashes = daemon.settings.policy.settings().encoded_slash();
    let path = one(headers, dialect.uri)?.map(|uri| normalized_path(uri, slashes)).transpose();
    let path = path.map_err(|why| RequestProblem::new(dialect.invalid_path, why.to_string()))?;
    let user = daemon.settings.user_header.as_deref();
    let user = user.map_or(Ok(None), |name| one(headers, name))?.map(percent_utf8);
    let attributes = [
        ("ip", Some(&*ip)),
        ("method", method.as_deref()),
        ("host", host.as_deref()),
        ("path", path.as_deref()),
        ("user", user.as_deref()),
    ];
    let known: SmallVec<[(&str, &str); 5]> =
        attributes.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
    let request = call.request(Scope::Check, Request::new(&domain, &known))?;
    let report = daemon.engine.check(&request).await?;
    call.observe(&request, &report);
    Ok(report)
}

/// The response to a denied client.
fn denial(report: &Report) -> HttpResponse {
    let reason = report.reason().unwrap_or_default();
    let denying =
        report.rules().filter(|it| response::is_enforced(it) && !it.decision.is_allowed());
    let mut rules: SmallVec<[&str; 4]> = denying.map(|it| it.rule.name()).collect();
    if rules.is_empty() {
        rules.extend(report.rule().map(RuleId::name));
    }
    let problem = if response::is_denied_by_outage(report) {
        problem::Problem::reduced_capacity(&reason)
    } else {
        problem::Problem::quota_exceeded(&reason, rules.into_iter(), report.retry_after())
    };
    let text = Bytes::from(problem.to_json());
    response::typed(response::status_of(report), response::PROBLEM, text)
}

/// The address of the client. The peer is a proxy; its headers count if it is trusted, or, where no
/// proxy is configured, if it is on loopback.
fn client(settings: &Settings, peer: PeerId, headers: &HeaderMap) -> IpAddr {
    let peer = match peer {
        PeerId::Address(address) => address.ip(),
        PeerId::Process(_) => Ipv4Addr::LOCALHOST.into(),
    };
    let trusted = &settings.trusted_proxies;
    let is_trusted = |address: IpAddr| match &trusted[..] {
        [] => address.is_loopback(),
        networks => networks.iter().any(|network| network.contains(address)),
    };
    let header = ForwardedHeader::XForwardedFor;
    let lines: SmallVec<[&[u8]; 4]> =
        headers.get_all(header.name()).iter().map(HeaderValue::as_bytes).collect();
    // A list determines an address in any case.
    header.client(peer, lines, is_trusted).unwrap_or_else(|_| peer.to_canonical())
}

/// The value of a header. Two values are ambiguous, so they are an error.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h [u8]>, RequestProblem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => {
            Err(RequestProblem::unprocessable(format!("the header `{name}` appears twice")))
        }
        (first, None) => Ok(first.map(HeaderValue::as_bytes)),
    }
}

/// A host in lower case and without its port.
fn host_of(host: &str) -> Cow<'_, str> {
    let end = host.rfind(']').map_or(0, |end| end + 1);
    let host = host[end..].find(':').map_or(host, |colon| &host[..end + colon]);
    let is_lower = !host.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_lower { Cow::Borrowed(host) } else { Cow::Owned(host.to_ascii_lowercase()) }
}

/// The domain in a query. Any other parameter is an error.
fn domain(query: &str) -> Result<Cow<'_, str>, RequestProblem> {
    let mut domain = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != "domain" {
            let name = String::from_utf8_lossy(&decoded_query(name)).into_owned();
            let detail = format!("unknown parameter `{name}`; the only one is `domain`");
            return Err(RequestProblem::unprocessable(detail));
        }
        let value = String::from_utf8(decoded_query(value))
            .map_err(|_| RequestProblem::unprocessable("`domain` is not UTF-8"))?;
        if domain.replace(value).is_some() {
            return Err(RequestProblem::unprocessable("`domain` appears twice"));
        }
    }
    Ok(domain.map_or(Cow::Borrowed(Rule::DEFAULT_DOMAIN), Cow::Owned))
}
