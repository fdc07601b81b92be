//! Which paths there are, and what each of them does. The reference is made from the same table.

use http::{Method, StatusCode};

use super::problem::RequestProblem;
use super::request_body::{ACQUIRE, BATCH, BodyField, CHECK, COMMIT, NOTHING, REFUND, RESERVE};

/// What is done at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
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
    Forward,
    Nginx,
    Rls,
    LimitadorCheck,
    LimitadorReport,
    LimitadorCheckAndReport,
    LimitadorLimits,
    Healthcheck,
    Healthz,
    Readyz,
    Metrics,
    OpenApi,
}

impl Endpoint {
    /// Whether it is what the daemon is there for, and not about the daemon itself.
    pub(super) const fn is_about_limits(self) -> bool {
        !matches!(
            self,
            Self::Healthcheck | Self::Healthz | Self::Readyz | Self::Metrics | Self::OpenApi
        )
    }
}

/// A path, and what is done there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    /// May have one `{id}` or `{namespace}`.
    pub(super) path: &'static str,
    pub(super) methods: Methods,
    pub(super) act: Endpoint,
    /// What it does, in words.
    pub(super) summary: &'static str,
    /// The fields of what it reads.
    pub(super) reads: Option<&'static [BodyField]>,
}

/// The methods that a path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Methods {
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

const fn limitador(path: &'static str, act: Endpoint, summary: &'static str) -> Route {
    Route { path, methods: Methods::Post, act, summary, reads: None }
}

const fn get(path: &'static str, act: Endpoint, summary: &'static str) -> Route {
    Route { path, methods: Methods::Get, act, summary, reads: None }
}

const fn any(path: &'static str, act: Endpoint, summary: &'static str) -> Route {
    Route { path, methods: Methods::Any, act, summary, reads: None }
}

/// All of them, the most used first.
pub(super) const ROUTES: &[Route] = &[
    post(
        "/v1/check",
        Endpoint::Check,
        CHECK,
        "Charges a request to all rules that it meets, or to none",
    ),
    any(
        "/check/forward",
        Endpoint::Forward,
        "Answers a proxy that asks whether a request may pass",
    ),
    any("/check/nginx", Endpoint::Nginx, "Answers nginx's auth_request"),
    post("/v1/check/batch", Endpoint::CheckBatch, BATCH, "Decides about requests, each by itself"),
    post("/v1/reserve", Endpoint::Reserve, RESERVE, "Sets the cost of a request aside"),
    post(
        "/v1/reservations/{id}/commit",
        Endpoint::Commit,
        COMMIT,
        "Charges what was set aside, or what it really cost",
    ),
    post(
        "/v1/reservations/{id}/cancel",
        Endpoint::Cancel,
        NOTHING,
        "Gives back what was set aside",
    ),
    post("/v1/refund", Endpoint::Refund, REFUND, "Gives back what was charged"),
    post(
        "/v1/acquire",
        Endpoint::Acquire,
        ACQUIRE,
        "Takes a place in flight, as soon as there is one",
    ),
    post(
        "/v1/leases/{id}/renew",
        Endpoint::Renew,
        NOTHING,
        "Makes a place last as long again, from now",
    ),
    Route {
        path: "/v1/leases/{id}",
        methods: Methods::Delete,
        act: Endpoint::Release,
        summary: "Gives a place back",
        reads: None,
    },
    post(
        "/v1/explain",
        Endpoint::Explain,
        RESERVE,
        "Tells why a request would be decided as it would",
    ),
    Route {
        path: "/json",
        methods: Methods::Post,
        act: Endpoint::Rls,
        summary: "Envoy's rate limit service, in the JSON of protobuf",
        reads: None,
    },
    limitador("/check", Endpoint::LimitadorCheck, "Limitador: looks whether a request may pass"),
    limitador("/report", Endpoint::LimitadorReport, "Limitador: charges, and refuses nothing"),
    limitador(
        "/check_and_report",
        Endpoint::LimitadorCheckAndReport,
        "Limitador: charges all limits, or refuses and charges none",
    ),
    get("/limits/{namespace}", Endpoint::LimitadorLimits, "Limitador: the limits of a namespace"),
    get(
        "/healthcheck",
        Endpoint::Healthcheck,
        "What envoyproxy/ratelimit answers to health checks",
    ),
    get("/healthz", Endpoint::Healthz, "Tells that the daemon runs"),
    get("/readyz", Endpoint::Readyz, "Tells whether the daemon can decide"),
    get("/metrics", Endpoint::Metrics, "Numbers for Prometheus"),
    get("/openapi.json", Endpoint::OpenApi, "This reference"),
];

/// What is to be done, and with which reservation or lease.
pub(super) fn find<'p>(
    method: &Method,
    path: &'p str,
) -> Result<(&'static Route, &'p str), RequestProblem> {
    let found = ROUTES.iter().find_map(|route| Some((route, id_in(route.path, path)?)));
    let Some((route, id)) = found else {
        let detail = "there is nothing here; /openapi.json tells what there is";
        return Err(RequestProblem::new(StatusCode::NOT_FOUND, detail));
    };
    if route.methods.have(method) {
        return Ok((route, id));
    }
    let allow = route.methods.allow();
    let detail = format!("{} takes {allow}", route.path);
    let problem = RequestProblem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
    Err(RequestProblem { allow: Some(allow), ..problem })
}

/// What is in the place of the name in braces, if the path is like the pattern; nothing if it has none.
fn id_in<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    if pattern == path {
        return Some("");
    }
    let (before, rest) = pattern.split_once('{')?;
    let (_, after) = rest.split_once('}')?;
    let id = path.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}
