//! The reference of all this as OpenAPI 3.1, made from the tables by which requests are read.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::response::{self, HttpResponse};
use super::routes::{Endpoint, Methods, ROUTES, Route};

mod schemas;

/// `GET /openapi.json`
pub(super) fn served() -> HttpResponse {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| {
        // Texts and numbers only: nothing in it can fail.
        let mut text = serde_json::to_vec_pretty(&document()).unwrap_or_default();
        text.push(b'\n');
        text.into()
    });
    let content_type = HeaderValue::from_static("application/json");
    response::typed(StatusCode::OK, content_type, TEXT.clone())
}

/// The whole of it.
fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        paths.insert(route.path.into(), path(route));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tidegate",
            "description": "Rate limits, quotas and places in flight, decided by one policy.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "headers": {
                "RateLimit": header("What is left: `\"rule\";r=remaining;t=seconds`"),
                "RateLimit-Policy": header("What there is: `\"rule\";q=limit;w=seconds`"),
                "Retry-After": header("Seconds to wait; absent where no wait helps, or nobody knows"),
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
        // A proxy asks with the method of its client, or with GET.
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
    if is_limitador(route.act) {
        let schema = json!({ "$ref": "#/components/schemas/limitador-request" });
        let content = json!({ "application/json": { "schema": schema } });
        operation.insert("requestBody".into(), json!({ "required": true, "content": content }));
    }
    operation.insert("responses".into(), responses(route));
    Value::Object(operation)
}

/// What an operation is called.
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
        Endpoint::Forward => "forward",
        Endpoint::Nginx => "nginx",
        Endpoint::Rls => "rls",
        Endpoint::LimitadorCheck => "limitador-check",
        Endpoint::LimitadorReport => "limitador-report",
        Endpoint::LimitadorCheckAndReport => "limitador-check-and-report",
        Endpoint::LimitadorLimits => "limitador-limits",
        Endpoint::Healthcheck => "healthcheck",
        Endpoint::Healthz => "healthz",
        Endpoint::Readyz => "readyz",
        Endpoint::Metrics => "metrics",
        Endpoint::OpenApi => "openapi",
    }
}

/// Whether it reads what Limitador reads.
const fn is_limitador(act: Endpoint) -> bool {
    matches!(
        act,
        Endpoint::LimitadorCheck | Endpoint::LimitadorReport | Endpoint::LimitadorCheckAndReport
    )
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
        add("id", "path", "Its name", json!({ "$ref": "#/components/schemas/id" }));
    }
    if route.path.contains("{namespace}") {
        add("namespace", "path", "Its name: a domain of the policy", text());
    }
    if matches!(route.act, Endpoint::Check | Endpoint::Reserve | Endpoint::Refund) {
        let description = "A name: sent again under it within 24 hours, it is not done again";
        add("Idempotency-Key", "header", description, json!({ "type": "string", "minLength": 1 }));
    }
    let told: &[(&str, &str)] = match route.act {
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
    if !told.is_empty() {
        let schema = json!({ "type": "string", "default": "default" });
        add("domain", "query", "The area of the policy that decides", schema);
    }
    for (name, description) in told {
        add(name, "header", description, text());
    }
    parameters
}

/// What a path answers with: the status, what it says, and the form in which it says it.
type ResponseSpec = (u16, &'static str, Option<(&'static str, &'static str)>);

const JSON: &str = "application/json";
const PROBLEM: Option<(&str, &str)> = Some(("application/problem+json", "problem"));
const TEXT: Option<(&str, &str)> = Some(("text/plain", "text"));

const fn response_specs(act: Endpoint) -> &'static [ResponseSpec] {
    const GONE: ResponseSpec = (410, "It has expired, was ended, or never was", PROBLEM);
    match act {
        Endpoint::Check => &[
            (200, "It may go ahead, and was charged", Some((JSON, "answer"))),
            (429, "It may not, and was not charged", Some((JSON, "answer"))),
        ],
        Endpoint::CheckBatch => &[(200, "An answer for each", Some((JSON, "batch-answer")))],
        Endpoint::Reserve => &[
            (200, "It is set aside", Some((JSON, "reserved"))),
            (429, "There is not so much", Some((JSON, "reserved"))),
        ],
        Endpoint::Commit => &[(200, "It is charged", Some((JSON, "charged"))), GONE],
        Endpoint::Cancel => &[(204, "It is given back", None), GONE],
        Endpoint::Refund => &[(200, "It is given back", Some((JSON, "refunded"))), GONE],
        Endpoint::Acquire => &[
            (200, "A place", Some((JSON, "acquired"))),
            (429, "None was free in time, or another rule refused", Some((JSON, "acquired"))),
        ],
        Endpoint::Renew => &[(200, "It lasts longer", Some((JSON, "renewed"))), GONE],
        Endpoint::Release => &[(204, "It is given back", None), GONE],
        Endpoint::Explain => &[(200, "Why", Some((JSON, "explanation")))],
        Endpoint::Forward => &[
            (200, "It may pass, and was charged", None),
            (422, "It cannot be decided", PROBLEM),
            (429, "It may not, and was not charged", PROBLEM),
            OUTAGE,
        ],
        Endpoint::Nginx => &[
            (204, "It may pass, and was charged", None),
            (403, "It may not, and was not charged", None),
            (422, "It cannot be decided", PROBLEM),
        ],
        Endpoint::Rls => &[
            (200, "A `RateLimitResponse`: it may go ahead", Some((JSON, "rls"))),
            (429, "A `RateLimitResponse`: it may not", Some((JSON, "rls"))),
        ],
        Endpoint::LimitadorCheck => {
            &[(200, "It may pass", Some((JSON, "nothing"))), (429, "It may not", TEXT)]
        }
        Endpoint::LimitadorReport => &[(200, "It is charged", Some((JSON, "nothing")))],
        Endpoint::LimitadorCheckAndReport => &[
            (200, "It may pass, and was charged", Some((JSON, "nothing"))),
            (429, "It may not, and was not charged", TEXT),
        ],
        Endpoint::LimitadorLimits => {
            &[(200, "Those that Limitador could have", Some((JSON, "limitador-limits")))]
        }
        Endpoint::Healthcheck => &[(200, "It runs", TEXT), (503, "It cannot decide", TEXT)],
        Endpoint::Healthz => &[(200, "It runs", TEXT)],
        Endpoint::Readyz => &[
            (200, "It can", Some((JSON, "readiness"))),
            (503, "It cannot, yet or any more", Some((JSON, "readiness"))),
        ],
        Endpoint::Metrics => &[(200, "All of them", TEXT)],
        Endpoint::OpenApi => &[(200, "An OpenAPI document", Some((JSON, "openapi")))],
    }
}

/// What goes wrong wherever a body is read.
const BAD_INPUT: &[ResponseSpec] = &[
    (400, "The body is not JSON", PROBLEM),
    (403, "The request is from a page in a browser", PROBLEM),
    (413, "The body is too large", PROBLEM),
    (415, "The body is not said to be JSON", PROBLEM),
    (422, "The body says what cannot be done; `pointer` says where", PROBLEM),
    OUTAGE,
];

const OUTAGE: ResponseSpec = (503, "It cannot be decided, or kept, at the moment", None);
const NO_NAME: ResponseSpec = (404, "That cannot be the name of one", PROBLEM);

/// What goes wrong where Limitador would read a body.
const BAD_LIMITADOR_INPUT: &[ResponseSpec] = &[
    (400, "The body is not what is read here", PROBLEM),
    (413, "The body is too large", PROBLEM),
    (415, "The body is not said to be JSON", PROBLEM),
    (500, "It cannot be decided at the moment", PROBLEM),
];

fn responses(route: &Route) -> Value {
    let tells_limits = matches!(
        route.act,
        Endpoint::Check
            | Endpoint::Reserve
            | Endpoint::Acquire
            | Endpoint::Forward
            | Endpoint::Nginx
    );
    let bad_input = match route.act {
        act if is_limitador(act) => BAD_LIMITADOR_INPUT,
        _ if route.reads.is_some() => BAD_INPUT,
        _ => &[],
    };
    let mut responses = Map::new();
    let names_one: &[ResponseSpec] =
        if route.path.contains("{id}") { &[NO_NAME, OUTAGE] } else { &[] };
    for (status, description, content) in
        response_specs(route.act).iter().chain(bad_input).chain(names_one)
    {
        let mut response = Map::new();
        response.insert("description".into(), json!(description));
        if let Some((kind, schema)) = content {
            let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
            response.insert("content".into(), json!({ *kind: { "schema": schema } }));
        }
        if tells_limits && matches!(status, 200 | 204 | 403 | 429) {
            let names = ["RateLimit", "RateLimit-Policy", "Retry-After"];
            let headers = names.map(|name| {
                (name.into(), json!({ "$ref": format!("#/components/headers/{name}") }))
            });
            response.insert("headers".into(), Value::Object(headers.into_iter().collect()));
        }
        responses.insert(status.to_string(), Value::Object(response));
    }
    Value::Object(responses)
}
