//! The OpenAPI 3.1 document of the HTTP API and of the admin API, made from the tables by which
//! requests are served.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tidegate::policy::Scope;

use crate::http::routes::{Endpoint, Methods, Needed, ROUTES, Route};
use security::Credentials;

mod admin;
mod admin_schemas;
mod schemas;
mod security;
mod traffic_schemas;

/// The document as text.
pub(crate) fn text() -> Bytes {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| {
        // Texts and numbers only: serializing cannot fail.
        let mut text = serde_json::to_vec_pretty(&document()).unwrap_or_default();
        text.push(b'\n');
        text.into()
    });
    TEXT.clone()
}

/// The whole document.
fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        paths.insert(route.path.into(), path(route));
    }
    paths.extend(admin::paths());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tidegate",
            "description": "Rate limits, quotas and concurrency limits, decided by one policy. The \
                            admin API has a listener of its own.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{
            "url": "http://127.0.0.1:8080",
            "description": "The HTTP listener, by default",
        }],
        "paths": paths,
        "components": {
            "securitySchemes": security::schemes(),
            "schemas": schemas::all(),
            "headers": {
                "RateLimit": header("Remaining units: `\"rule\";r=remaining;t=seconds`"),
                "RateLimit-Policy": header("Limits: `\"rule\";q=limit;w=seconds`"),
                "Retry-After": header("Seconds to wait; absent where no wait helps or the wait is unknown"),
            },
        },
    })
}

fn header(description: &str) -> Value {
    json!({ "description": description, "schema": { "type": "string" } })
}

fn path(route: &Route) -> Value {
    let methods: &[&str] = match route.methods {
        Methods::Get => &["get"],
        Methods::Post => &["post"],
        Methods::Delete => &["delete"],
        // A proxy uses the method of its client, or GET.
        Methods::Any => &["get", "post"],
    };
    let operations = methods.iter().map(|method| ((*method).into(), operation(route, method)));
    Value::Object(operations.collect())
}

fn operation(route: &Route, method: &str) -> Value {
    let mut operation = Map::new();
    let name = name(route.act);
    let id = if route.methods == Methods::Any { format!("{name}-{method}") } else { name.into() };
    operation.insert("operationId".into(), json!(id));
    operation.insert("summary".into(), json!(route.summary));
    let (credentials, scopes) = needed(route.act);
    operation.insert("security".into(), security::requirement(credentials, scopes));
    if let Some(description) = access_description(route.act) {
        operation.insert("description".into(), json!(description));
    }
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation.insert("parameters".into(), json!(parameters));
    }
    if let Some(fields) = route.reads {
        let schema = schemas::request(name, fields);
        operation.insert(
            "requestBody".into(),
            json!({
                "required": is_body_required(route.act),
                "content": { "application/json": { "schema": schema } },
            }),
        );
    }
    if route.act == Endpoint::Rls {
        let schema = json!({ "type": "object" });
        let content = json!({ "application/json": { "schema": schema } });
        operation.insert("requestBody".into(), json!({ "required": true, "content": content }));
    }
    operation.insert("responses".into(), responses(route));
    Value::Object(operation)
}

/// The credentials of an endpoint, and the scopes that they need.
const fn needed(act: Endpoint) -> (Credentials, &'static [Scope]) {
    let credentials = match act.is_for_proxies() {
        true => Credentials::OfProxies,
        false => Credentials::All,
    };
    match act.needs() {
        Needed::Nothing => (Credentials::None, &[]),
        Needed::Token => (credentials, &[]),
        Needed::Scope(Scope::Check) => (credentials, &[Scope::Check]),
        Needed::Scope(Scope::Settle) => (credentials, &[Scope::Settle]),
        Needed::Scope(Scope::Lease) => (credentials, &[Scope::Lease]),
        Needed::Scope(Scope::Read) => (credentials, &[Scope::Read]),
        Needed::Scope(Scope::Inspect) => (credentials, &[Scope::Inspect]),
        Needed::Scope(Scope::Admin) => (credentials, &[Scope::Admin]),
    }
}

/// What the scopes of an endpoint depend on.
const fn access_description(act: Endpoint) -> Option<&'static str> {
    match act {
        Endpoint::Check => Some("Needs the scope `check`, or `read` with `peek`."),
        Endpoint::CheckBatch => {
            Some("Each request needs the scope `check`, or `read` with `peek`.")
        }
        Endpoint::Metrics => {
            Some("The admin listener has them as well, for the scope `read` or `inspect`.")
        }
        Endpoint::Healthz | Endpoint::Readyz | Endpoint::OpenApi => {
            Some("On the admin listener as well.")
        }
        _ => None,
    }
}

/// The id of an operation.
const fn name(act: Endpoint) -> &'static str {
    match act {
        Endpoint::Check => "check",
        Endpoint::CheckBatch => "check-batch",
        Endpoint::Reserve => "reserve",
        Endpoint::Commit => "commit",
        Endpoint::Cancel => "cancel",
        Endpoint::Refund => "refund",
        Endpoint::Acquire => "acquire",
        Endpoint::Renew => "renew",
        Endpoint::Release => "release",
        Endpoint::Explain => "explain",
        Endpoint::Usage => "usage",
        Endpoint::Forward => "forward",
        Endpoint::Nginx => "nginx",
        Endpoint::Rls => "rls",
        Endpoint::Healthcheck => "healthcheck",
        Endpoint::Healthz => "healthz",
        Endpoint::Readyz => "readyz",
        Endpoint::Metrics => "metrics",
        Endpoint::OpenApi => "openapi",
    }
}

const fn is_body_required(act: Endpoint) -> bool {
    !matches!(act, Endpoint::Commit | Endpoint::Cancel | Endpoint::Renew)
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters = Vec::new();
    let mut add = |name: &str, location: &str, description: &str, schema: Value| {
        parameters.push(json!({
            "name": name,
            "in": location,
            "required": location == "path",
            "description": description,
            "schema": schema,
        }));
    };
    let text = || json!({ "type": "string" });
    if route.path.contains("{id}") {
        add(
            "id",
            "path",
            "The id of the reservation or lease",
            json!({ "$ref": "#/components/schemas/id" }),
        );
    }
    if route.path.contains("{namespace}") {
        add("namespace", "path", "The namespace: a domain of the policy", text());
    }
    if matches!(route.act, Endpoint::Check | Endpoint::Reserve | Endpoint::Refund) {
        let description = "A request repeated with this key within 24 hours is not applied again";
        add("Idempotency-Key", "header", description, json!({ "type": "string", "minLength": 1 }));
    }
    let proxy_headers: &[(&str, &str)] = match route.act {
        Endpoint::Forward => &[
            ("X-Forwarded-For", "The client's address, appended by proxies: attribute `ip`"),
            ("X-Forwarded-Method", "Attribute `method`"),
            ("X-Forwarded-Host", "Attribute `host`"),
            ("X-Forwarded-Uri", "Attribute `path`, without the query"),
        ],
        Endpoint::Nginx => &[
            ("X-Forwarded-For", "The client's address, appended by proxies: attribute `ip`"),
            ("X-Original-Method", "Attribute `method`"),
            ("X-Original-Host", "Attribute `host`"),
            ("X-Original-URI", "Attribute `path`, without the query"),
        ],
        _ => &[],
    };
    if !proxy_headers.is_empty() {
        let schema = json!({ "type": "string", "default": "default" });
        add("domain", "query", "The domain of the policy", schema);
    }
    for (name, description) in proxy_headers {
        add(name, "header", description, text());
    }
    parameters
}

/// A response of a path: status, description, content type and schema.
type ResponseSpec = (u16, &'static str, Option<(&'static str, &'static str)>);

const JSON: &str = "application/json";
const PROBLEM: Option<(&str, &str)> = Some(("application/problem+json", "problem"));
const TEXT: Option<(&str, &str)> = Some(("text/plain", "text"));

const fn response_specs(act: Endpoint) -> &'static [ResponseSpec] {
    const GONE: ResponseSpec = (410, "Unknown or expired", PROBLEM);
    const SETTLED: ResponseSpec = (409, "Settled before, in another way", PROBLEM);
    match act {
        Endpoint::Check => &[
            (200, "Allowed, and charged", Some((JSON, "decision"))),
            (429, "Denied, and not charged", Some((JSON, "decision"))),
            (503, "Denied by `on_error`", Some((JSON, "decision"))),
        ],
        Endpoint::CheckBatch => {
            &[(200, "A decision or problem for each", Some((JSON, "batch-result")))]
        }
        Endpoint::Reserve => &[
            (200, "Reserved", Some((JSON, "reservation"))),
            (429, "Denied", Some((JSON, "reservation"))),
            (503, "Denied by `on_error`", Some((JSON, "reservation"))),
        ],
        Endpoint::Commit => &[(200, "Charged", Some((JSON, "charged"))), SETTLED, GONE],
        Endpoint::Cancel => &[(204, "Cancelled", None), SETTLED, GONE],
        Endpoint::Refund => &[(200, "Refunded", Some((JSON, "refunded"))), SETTLED, GONE],
        Endpoint::Acquire => &[
            (200, "Acquired", Some((JSON, "lease"))),
            (429, "No slot became free in time, or denied by another rule", Some((JSON, "lease"))),
            (503, "Denied by `on_error`", Some((JSON, "lease"))),
        ],
        Endpoint::Renew => &[(200, "Extended", Some((JSON, "renewed"))), GONE],
        Endpoint::Release => &[(204, "Released", None), GONE],
        Endpoint::Explain => &[(200, "The explanation", Some((JSON, "explanation")))],
        Endpoint::Usage => &[(200, "What is used of each limit", Some((JSON, "usage")))],
        Endpoint::Forward => &[
            (200, "Allowed, and charged", None),
            (422, "The request cannot be decided", PROBLEM),
            (429, "Denied, and not charged", PROBLEM),
            OUTAGE,
        ],
        Endpoint::Nginx => &[
            (204, "Allowed, and charged", None),
            (403, "Denied, and not charged", None),
            (422, "The request cannot be decided", PROBLEM),
        ],
        Endpoint::Rls => &[
            (200, "A `RateLimitResponse`: allowed", Some((JSON, "rls"))),
            (429, "A `RateLimitResponse`: denied", Some((JSON, "rls"))),
        ],
        Endpoint::Healthcheck => &[(200, "Ready", TEXT), (503, "Stopping", TEXT)],
        Endpoint::Healthz => &[(200, "Running", TEXT)],
        Endpoint::Readyz => &[
            (200, "Ready", Some((JSON, "readiness"))),
            (503, "Stopping; with `?strict` also degraded", Some((JSON, "readiness"))),
        ],
        Endpoint::Metrics => &[(200, "All metrics", TEXT)],
        Endpoint::OpenApi => &[(200, "An OpenAPI document", Some((JSON, "openapi")))],
    }
}

/// The errors of all endpoints with a request body.
const BAD_INPUT: &[ResponseSpec] = &[
    (400, "The body is not JSON", PROBLEM),
    (403, "The request is from a page in a browser", PROBLEM),
    (413, "The body is too large", PROBLEM),
    (415, "The content type is not JSON", PROBLEM),
    (422, "The body is invalid; `pointer` is the position", PROBLEM),
    OUTAGE,
];

/// The errors of all endpoints that need credentials.
const NO_ACCESS: &[ResponseSpec] = &[
    (400, "The credentials are ambiguous", PROBLEM),
    (401, "The token or client certificate is missing, unknown or over", PROBLEM),
    (403, "The token lacks the scope, or is not for this domain or these attributes", PROBLEM),
    (429, "The token's own limit is exceeded", PROBLEM),
];

/// The same for proxies, which would pass any other status on to their clients.
const NO_ACCESS_OF_PROXY: &[ResponseSpec] =
    &[(503, "The proxy has no access: its credentials are missing or not sufficient", PROBLEM)];

const OUTAGE: ResponseSpec =
    (503, "The request cannot be decided or stored at the moment", PROBLEM);
const INVALID_ID: ResponseSpec = (404, "The id is malformed", PROBLEM);

fn responses(route: &Route) -> Value {
    let has_limit_headers = matches!(
        route.act,
        Endpoint::Check
            | Endpoint::Reserve
            | Endpoint::Acquire
            | Endpoint::Forward
            | Endpoint::Nginx
    );
    let bad_input = match route.act {
        _ if route.reads.is_some() => BAD_INPUT,
        _ => &[],
    };
    let of_id: &[ResponseSpec] =
        if route.path.contains("{id}") { &[INVALID_ID, OUTAGE] } else { &[] };
    let no_access = match needed(route.act).0 {
        Credentials::None => &[],
        Credentials::All => NO_ACCESS,
        Credentials::OfProxies => NO_ACCESS_OF_PROXY,
    };
    let specs = response_specs(route.act).iter().chain(bad_input).chain(of_id).chain(no_access);
    let mut responses = responses_of(specs);
    for status in ["200", "204", "403", "429"] {
        let is_decision = status != "403" || route.act == Endpoint::Nginx;
        if has_limit_headers
            && is_decision
            && let Some(response) = responses.get_mut(status)
        {
            let names = ["RateLimit", "RateLimit-Policy", "Retry-After"];
            let headers = names.map(|name| {
                (name.to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))
            });
            response["headers"] = Value::Object(headers.into_iter().collect());
        }
    }
    Value::Object(responses)
}

/// The responses of an operation. A status may have several meanings and content types.
fn responses_of<'s>(specs: impl Iterator<Item = &'s ResponseSpec>) -> Map<String, Value> {
    let mut responses = Map::new();
    for (status, description, content) in specs {
        let status = status.to_string();
        let response = responses.entry(status).or_insert_with(|| json!({ "description": "" }));
        let before = response["description"].as_str().unwrap_or_default();
        if !before.split("; or: ").any(|known| known == *description) {
            let separator = if before.is_empty() { "" } else { "; or: " };
            response["description"] = format!("{before}{separator}{description}").into();
        }
        if let Some((kind, schema)) = content {
            response["content"][*kind]["schema"] = schemas::reference(schema);
        }
    }
    responses
}
