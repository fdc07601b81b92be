//! The paths of the HTTP API, and their endpoints.

use http::{Method, StatusCode};
use tidegate::policy::Scope;

use super::problem::RequestProblem;

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

const fn get(path: &'static str, act: Endpoint) -> Route {
    Route { path, methods: Methods::Get, act }
}

const fn post(path: &'static str, act: Endpoint) -> Route {
    Route { path, methods: Methods::Post, act }
}

const fn delete(path: &'static str, act: Endpoint) -> Route {
    Route { path, methods: Methods::Delete, act }
}

const fn any(path: &'static str, act: Endpoint) -> Route {
    Route { path, methods: Methods::Any, act }
}

/// All routes, the most used first.
pub(crate) const ROUTES: &[Route] = &[
    post("/v1/check", Endpoint::Check),
    any("/check/forward", Endpoint::Forward),
    any("/check/nginx", Endpoint::Nginx),
    post("/v1/check/batch", Endpoint::CheckBatch),
    post("/v1/reserve", Endpoint::Reserve),
    post("/v1/reservations/{id}/commit", Endpoint::Commit),
    post("/v1/reservations/{id}/cancel", Endpoint::Cancel),
    post("/v1/refund", Endpoint::Refund),
    post("/v1/acquire", Endpoint::Acquire),
    post("/v1/leases/{id}/renew", Endpoint::Renew),
    delete("/v1/leases/{id}", Endpoint::Release),
    post("/v1/explain", Endpoint::Explain),
    post("/v1/usage", Endpoint::Usage),
    post("/json", Endpoint::Rls),
    get("/healthcheck", Endpoint::Healthcheck),
    get("/healthz", Endpoint::Healthz),
    get("/readyz", Endpoint::Readyz),
    get("/metrics", Endpoint::Metrics),
    get("/openapi.json", Endpoint::OpenApi),
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
