//! The schemas of requests and responses.

use serde_json::{Map, Value, json};

use super::admin_schemas;
use crate::http::leases::LONGEST_WAIT_MS;
use crate::http::request_body::{BodyField, CHECK};

/// An object with these fields and no others.
pub(super) fn request(name: &str, fields: &[BodyField]) -> Value {
    let properties: Map<_, _> = fields.iter().map(|it| (it.name().into(), field(*it))).collect();
    let mut schema = json!({
        "title": name,
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    let required: &[&str] = if fields.contains(&BodyField::Requests) { &["requests"] } else { &[] };
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn field(field: BodyField) -> Value {
    let count = |least: u64, description: &str| json!({ "type": "integer", "minimum": least, "maximum": u64::MAX, "description": description });
    match field {
        BodyField::Domain => {
            let description = "The domain of the policy";
            json!({ "type": "string", "default": "default", "description": description })
        }
        BodyField::Attributes => json!({
            "type": "object",
            "maxProperties": 64,
            "additionalProperties": { "type": ["string", "integer"] },
            "description": "Attributes of the request; integers count as their decimal text",
        }),
        BodyField::Cost => count(0, "Units to charge; 1 if absent; 0 charges nothing"),
        BodyField::Peek => {
            let description = "Decides without a charge";
            json!({ "type": "boolean", "default": false, "description": description })
        }
        BodyField::WaitMs => json!({
            "type": "integer",
            "minimum": 0,
            "maximum": LONGEST_WAIT_MS,
            "description": "How long to wait for a slot, in milliseconds; if absent, the wait of the rule",
        }),
        BodyField::Reservation => reference("id"),
        BodyField::Amount => count(1, "Units to refund; never more than were charged"),
        BodyField::Actual => count(0, "The actual cost; if absent, the reserved cost"),
        BodyField::Requests => json!({ "type": "array", "items": request("check", CHECK) }),
    }
}

/// The schemas that others refer to.
pub(super) fn all() -> Value {
    let mut all = of_http();
    if let (Value::Object(all), Value::Object(admin)) = (&mut all, admin_schemas::all()) {
        all.extend(admin);
    }
    all
}

fn of_http() -> Value {
    json!({
        "id": { "type": "string", "pattern": "^[0-9A-Fa-f]{32}$" },
        "text": { "type": "string" },
        "openapi": { "type": "object" },
        "rls": { "type": "object" },
        "readiness": object(json!({
            "ready": {
                "type": "boolean",
                "description": "Whether the daemon can decide, by its store or by `on_error`",
            },
            "degraded": {
                "type": "array",
                "items": { "enum": ["store"] },
                "description": "What decisions have to do without; `on_error` decides in its place",
            },
            "store": { "type": "string", "description": "The failure of the store" },
            "policy": { "type": "string", "description": "Why the policy file is not in force" },
            "tokens": { "type": "string", "description": "Why the token file is not in force" },
            "tls": {
                "type": "string",
                "description": "Why the files of TLS are not in force, or that a certificate has expired",
            },
            "needs_restart": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Settings of the file that need a restart",
            },
        }), &["degraded", "store", "policy", "tokens", "tls", "needs_restart"]),
        "decision": object(decision(), &[]),
        "rule-decision": object(rule_decision(), &["retry"]),
        "batch-result": object(json!({
            "results": {
                "type": "array",
                "items": { "oneOf": [reference("decision"), reference("problem")] },
            },
        }), &[]),
        "reservation": object(with_decision(json!({
            "reservation": nullable(json!({ "type": "string" })),
            "expires_in_ms": nullable_count(),
        })), &[]),
        "lease": object(with_decision(json!({
            "lease": nullable(json!({ "type": "string" })),
            "fence": count(),
            "expires_in_ms": nullable_count(),
        })), &["fence"]),
        "charged": object(
            json!({ "charged": count(), "debt": count(), "forgiven": count() }),
            &[],
        ),
        "refunded": object(json!({ "refunded": count() }), &[]),
        "renewed": object(json!({ "expires_in_ms": nullable_count() }), &[]),
        "explanation": object(explanation(), &[]),
        "rule-explanation": rule_explanation(),
        "usage": object(json!({
            "rules": { "type": "array", "items": reference("rule-usage") },
        }), &[]),
        "rule-usage": object(rule_usage(), &["mode", "debt"]),
        "problem": object(problem(), &[
            "pointer", "line", "column", "settled", "units", "violated-policies", "retry_after_ms", "retry",
        ]),
    })
}

/// What is used of a limit, in the order of its fields on the wire.
pub(super) fn rule_usage() -> Value {
    json!({
        "rule": { "type": "string" },
        "mode": { "enum": ["shadow"], "description": "Where denials are not enforced" },
        "used": count(),
        "held": count(),
        "limit": nullable_count(),
        "remaining": nullable_count(),
        "debt": { "type": "integer", "minimum": 1, "description": "What is used or held beyond the limit" },
        "share": nullable(json!({
            "type": "number",
            "minimum": 0,
            "description": "The part of the limit that is used or held; above 1 where it is overdrawn",
        })),
        "reset_after_ms": nullable_count(),
    })
}

/// A decision, in the order of its fields on the wire.
pub(super) fn decision() -> Value {
    json!({
        "allowed": { "type": "boolean" },
        "rule": nullable(json!({ "type": "string" })),
        "remaining": nullable_count(),
        "limit": nullable_count(),
        "retry_after_ms": nullable_count(),
        "retry": { "enum": ["never", "unknown"] },
        "reset_after_ms": nullable_count(),
        "reason": { "type": "string" },
        "outage": { "enum": ["on_error", "local"] },
        "decision_id": { "type": "string", "pattern": "^[0-9a-f]{16}$" },
        "rules": { "type": "array", "items": reference("rule-decision") },
    })
}

fn rule_decision() -> Value {
    json!({
        "rule": { "type": "string" },
        "mode": { "enum": ["enforce", "shadow"] },
        "allowed": { "type": "boolean" },
        "remaining": count(),
        "limit": count(),
        "retry_after_ms": nullable_count(),
        "retry": { "enum": ["never", "unknown"] },
        "reset_after_ms": nullable_count(),
    })
}

fn explanation() -> Value {
    json!({
        "domain": { "type": "string" },
        "time": { "type": "string", "format": "date-time" },
        "attributes": { "type": "object", "additionalProperties": { "type": "string" } },
        "cost": count(),
        "allowed": { "type": "boolean" },
        "rule": nullable(json!({ "type": "string" })),
        "remaining": nullable_count(),
        "limit": nullable_count(),
        "retry_after_ms": nullable_count(),
        "retry": { "enum": ["never", "unknown", null] },
        "reset_after_ms": nullable_count(),
        "reason": nullable(json!({ "type": "string" })),
        "next_allowed": nullable(json!({ "type": "string", "format": "date-time" })),
        "rules": { "type": "array", "items": reference("rule-explanation") },
    })
}

/// A rule that applies has a state; one that does not has a reason.
fn rule_explanation() -> Value {
    let applies = object(
        json!({
            "rule": { "type": "string" },
            "applies": { "const": true },
            "denies": { "type": "boolean" },
            "allowed": { "type": "boolean" },
            "mode": { "enum": ["enforce", "shadow"] },
            "charging": {
                "enum": ["refused", "postpaid"],
                "description": "Where denied requests are charged as well, or all in full whatever is left",
            },
            "key": { "type": "object", "additionalProperties": { "type": ["string", "null"] } },
            "cost": count(),
            "override": nullable_count(),
            "remaining": count(),
            "limit": count(),
            "retry_after_ms": nullable_count(),
            "retry": { "enum": ["never", "unknown", null] },
            "reset_after_ms": nullable_count(),
        }),
        &["charging"],
    );
    let does_not = object(
        json!({
            "rule": { "type": "string" },
            "applies": { "const": false },
            "denies": { "type": "boolean" },
            "why": {
                "type": "string",
                "description": "The request does not match, another rule of the group comes first, \
                                an attribute of the key is missing, an override lifts the limit, or \
                                the cost table of a rule in shadow mode does not cover the request",
            },
        }),
        &[],
    );
    json!({ "oneOf": [applies, does_not] })
}

fn problem() -> Value {
    json!({
        "type": { "type": "string", "format": "uri-reference" },
        "title": { "type": "string" },
        "status": { "type": "integer", "minimum": 400, "maximum": 599 },
        "detail": { "type": "string" },
        "pointer": { "type": "string", "description": "The position in the body, as JSON pointer" },
        "line": { "type": "integer", "minimum": 0 },
        "column": { "type": "integer", "minimum": 0 },
        "settled": { "enum": ["committed", "cancelled"] },
        "units": count(),
        "violated-policies": { "type": "array", "items": { "type": "string" } },
        "retry_after_ms": count(),
        "retry": { "enum": ["never", "unknown"] },
    })
}

fn with_decision(mut properties: Value) -> Value {
    if let (Value::Object(properties), Value::Object(response)) = (&mut properties, decision()) {
        properties.extend(response);
    }
    properties
}

/// An object of these properties and no others; `optional` ones may be absent, as may `retry`,
/// `reason` and `outage` of a decision.
pub(super) fn object(properties: Value, optional: &[&str]) -> Value {
    let is_decision = properties.get("decision_id").is_some();
    let is_optional = |name: &str| {
        optional.contains(&name) || (is_decision && matches!(name, "retry" | "reason" | "outage"))
    };
    let required: Vec<_> = properties
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .filter(|name| !is_optional(name))
        .cloned()
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

pub(super) fn nullable(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

pub(super) fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

pub(super) fn nullable_count() -> Value {
    nullable(count())
}
