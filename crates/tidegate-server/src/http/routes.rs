//! The paths of the HTTP API, and their endpoints. The OpenAPI document is made from the same
//! table.

use http::{Method, StatusCode};
use tidegate::policy::Scope;

use super::problem::RequestProblem;
use super::request_body::{
    ACQUIRE, BATCH, BodyField, CHECK, COMMIT, NOTHING, REFUND, RESERVE, USAGE,
};

/// An operation of the HTTP API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Check,
    CheckBatch,
    Reserve,
    Commit,
    Cancel,
    Refund,
    Acquire,
    Renew,
    Release,
    Explain,
    Usage,
    Forward,
    Nginx,
    Rls,
    Healthcheck,
    Healthz,
    Readyz,
    Metrics,
    OpenApi,
}

impl Endpoint {
    /// Whether it concerns limits, and not the daemon itself.
    pub(crate) const fn is_about_limits(self) -> bool {
        !matches!(
            self,
            Self::Healthcheck | Self::Healthz | Self::Readyz | Self::Metrics | Self::OpenApi
        )
    }
}

/// What a client needs for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    Nothing,
    /// Any token; the endpoint itself checks the rest.
    Token,
    Scope(Scope),
}

impl Endpoint {
    /// What a client needs, where tokens are used.
    pub(crate) const fn needs(self) -> Needed {
        match self {
            Self::Healthcheck | Self::Healthz | Self::Readyz => Needed::Nothing,
            // A request may be a peek.
            Self::Check | Self::CheckBatch => Needed::Token,
            Self::OpenApi => Needed::Token,
            Self::Forward | Self::Nginx | Self::Rls => Needed::Scope(Scope::Check),
            Self::Reserve | Self::Commit | Self::Cancel | Self::Refund => {
                Needed::Scope(Scope::Settle)
            }
            Self::Acquire | Self::Renew | Self::Release => Needed::Scope(Scope::Lease),
            Self::Explain | Self::Usage | Self::Metrics => Needed::Scope(Scope::Read),
        }
    }

    /// Whether proxies send it on behalf of their clients, with headers of theirs.
    pub(crate) const fn is_for_proxies(self) -> bool {
        matches!(self, Self::Forward | Self::Nginx)
    }
}

/// A path with its methods and endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// May have one `{id}`.
    pub(crate) path: &'static str,
    pub(crate) methods: Methods,
    pub(crate) act: Endpoint,
    /// What it does, for the OpenAPI document.
    pub(crate) summary: &'static str,
    /// The fields of its request body.
    pub(crate) reads: Option<&'static [BodyField]>,
}

/// The methods that a path allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Methods {
    Get,
    Post,
    Delete,
    Any,
}

impl Methods {
    fn have(self, method: &Method) -> bool {
        match self {
            Self::Get => method == Method::GET || method == Method::HEAD,
            Self::Post => method == Method::POST,
            Self::Delete => method == Method::DELETE,
            Self::Any => true,
        }
    }

    const fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Delete => "DELETE",
            Self::Any => "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
        }
    }
}

const fn post(
    path: &'static str,
    act: Endpoint,
    reads: &'static [BodyField],
    summary: &'static str,
) -> Route {
    Route { path, methods: Methods::Post, act, summary, reads: Some(reads) }
}

const fn get(path: &'static str, act: Endpoint, summary: &'static str) -> Route {
    Route { path, methods: Methods::Get, act, summary, reads: None }
}

const fn any(path: &'static str, act: Endpoint, summary: &'static str) -> Route {
    Route { path, methods: Methods::Any, act, summary, reads: None }
}

/// All routes, the most used first.
pub(crate) const ROUTES: &[Route] = &[
    post(
        "/v1/check",
        Endpoint::Check,
        CHECK,
        "Charges a request to all rules that match it, or to none",
    ),
    any("/check/forward", Endpoint::Forward, "Checks a request for a proxy (forward auth)"),
    any("/check/nginx", Endpoint::Nginx, "Checks a request for nginx's auth_request"),
    post(
        "/v1/check/batch",
        Endpoint::CheckBatch,
        BATCH,
        "Checks several requests, each independently",
    ),
    post("/v1/reserve", Endpoint::Reserve, RESERVE, "Reserves the cost of a request"),
    post(
        "/v1/reservations/{id}/commit",
        Endpoint::Commit,
        COMMIT,
        "Charges the reserved or the actual cost",
    ),
    post(
        "/v1/reservations/{id}/cancel",
        Endpoint::Cancel,
        NOTHING,
        "Releases a reservation without a charge",
    ),
    post("/v1/refund", Endpoint::Refund, REFUND, "Returns units that were charged"),
    post(
        "/v1/acquire",
        Endpoint::Acquire,
        ACQUIRE,
        "Acquires a concurrency slot, and waits for one if need be",
    ),
    post(
        "/v1/leases/{id}/renew",
        Endpoint::Renew,
        NOTHING,
        "Extends a lease by its full duration, from now",
    ),
    Route {
        path: "/v1/leases/{id}",
        methods: Methods::Delete,
        act: Endpoint::Release,
        summary: "Releases a lease",
        reads: None,
    },
    post(
        "/v1/explain",
        Endpoint::Explain,
        RESERVE,
        "Explains the decision on a request, without a charge",
    ),
    post(
        "/v1/usage",
        Endpoint::Usage,
        USAGE,
        "Reports what the keys of a request have used of their limits, without a charge",
    ),
    Route {
        path: "/json",
        methods: Methods::Post,
        act: Endpoint::Rls,
        summary: "Envoy's rate limit service, in the JSON of protobuf",
        reads: None,
    },
    get("/healthcheck", Endpoint::Healthcheck, "The health check of envoyproxy/ratelimit"),
    get("/healthz", Endpoint::Healthz, "Reports that the daemon runs"),
    get("/readyz", Endpoint::Readyz, "Reports whether the daemon is ready"),
    get("/metrics", Endpoint::Metrics, "Metrics for Prometheus"),
    get("/openapi.json", Endpoint::OpenApi, "This document"),
];

/// The route of a request, and the id in its path.
pub(super) fn find<'p>(
    method: &Method,
    path: &'p str,
) -> Result<(&'static Route, &'p str), RequestProblem> {
    let found = ROUTES.iter().find_map(|route| Some((route, id_in(route.path, path)?)));
    let Some((route, id)) = found else {
        let detail = "no such path; see /openapi.json";
        return Err(RequestProblem::new(StatusCode::NOT_FOUND, detail));
    };
    if route.methods.have(method) {
        return Ok((route, id));
    }
    let allow = route.methods.allow();
    let detail = format!("{} allows {allow}", route.path);
    let problem = RequestProblem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
    Err(RequestProblem { allow: Some(allow), ..problem })
}

/// The part of a path that stands for the braces of the pattern; empty if it has none.
fn id_in<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    if pattern == path {
        return Some("");
    }
    let (before, rest) = pattern.split_once('{')?;
    let (_, after) = rest.split_once('}')?;
    let id = path.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}
