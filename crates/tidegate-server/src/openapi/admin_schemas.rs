//! The schemas of the admin API.

use serde_json::{Value, json};

use super::schemas::{count, nullable, nullable_count, object};

/// All of them.
pub(super) fn all() -> Value {
    let mut all = requests();
    for more in [responses(), super::traffic_schemas::all()] {
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
    }
    all
}

fn requests() -> Value {
    let domain = || json!({ "type": "string", "default": "default" });
    let text = || json!({ "type": "string" });
    let effective = || json!({ "enum": ["now", "next"], "description": "When it takes effect" });
    let patterns = || table("Attributes, each with a value or a pattern, or a list of them");
    json!({
        "admin-policy-request": object(json!({
            "policy": { "type": "string", "description": "A policy in TOML" },
        }), &[]),
        "admin-rule-request": table("Fields of the rule, as in a policy file; null removes a field"),
        "admin-override-request": {
            "type": "object",
            "properties": {
                "domain": domain(), "rule": text(), "key": patterns(),
                "unlimited": { "type": "boolean" },
                "until": { "type": "string", "format": "date-time" },
                "effective": effective(),
            },
            "required": ["rule", "key"],
            "description": "And numbers, as in the rule's `override` list: `max`, `rate`, `burst` …",
        },
        "admin-override-drop": object(json!({
            "domain": domain(), "rule": text(), "key": patterns(), "effective": effective(),
        }), &["domain", "effective"]),
        "admin-ban-request": object(json!({
            "domain": domain(), "match": patterns(),
            "for": { "type": "string", "description": "A duration, such as `1h30m`; excludes `until`" },
            "until": { "type": "string", "format": "date-time" },
            "reason": text(),
        }), &["domain", "for", "until", "reason"]),
        "admin-unban-request": object(json!({
            "domain": domain(), "match": patterns(),
        }), &["domain"]),
        "admin-reset-request": object(json!({
            "domain": { "type": "string", "description": "`default` if absent; with `all`: every domain" },
            "attributes": {
                "type": "object",
                "additionalProperties": { "type": ["string", "integer"] },
                "description": "Those of the request; not with `all`",
            },
            "all": { "type": "boolean" },
        }), &["domain", "attributes", "all"]),
        "admin-round-request": object(json!({ "domain": text() }), &[]),
    })
}

fn responses() -> Value {
    let text = || json!({ "type": "string" });
    let flag = || json!({ "type": "boolean" });
    let changed = || json!({ "changes": count(), "version": version() });
    json!({
        "admin-status": object(status(), &[]),
        "admin-policy": object(json!({
            "policy": { "type": "string", "description": "In TOML" },
            "overlay": { "type": "string", "description": "The edits, in TOML" },
            "version": version(),
            "file": nullable(text()),
        }), &[]),
        "admin-policy-applied": object(with(changed(), json!({
            "warnings": list(super::schemas::reference("admin-diagnostic")),
            "needs_restart": list(text()),
            "until": { "type": "string", "description": "What ends it, for people" },
        })), &[]),
        "admin-rules": object(json!({
            "rules": list(object(rule(), &[])),
            "version": version(),
        }), &[]),
        "admin-rule-changed": object(with(changed(), json!({
            "description": text(), "starts_fresh": flag(),
        })), &[]),
        "admin-overrides": object(json!({
            "overrides": list(table("As it can be sent again")), "version": version(),
        }), &[]),
        "admin-bans": object(json!({
            "bans": list(table("As it can be sent again")), "version": version(),
        }), &[]),
        "admin-changed": object(changed(), &[]),
        "admin-banned": object(with(changed(), json!({ "description": text() })), &[]),
        "admin-edits-dropped": object(json!({ "changes": count() }), &[]),
        "admin-reset": object(json!({
            "reset": flag(), "keys": count(), "version": version(),
        }), &["keys"]),
        "admin-round": object(json!({
            "domain": text(), "rounds": count(), "version": version(),
        }), &[]),
        "admin-audit": object(json!({
            "changes": list(object(change(), &[
                "domain", "rule", "before", "after", "starts_fresh", "keys",
            ])),
            "version": version(),
        }), &[]),
        "admin-top": object(json!({
            "busiest": list(top_key()), "most_denied": list(top_key()),
        }), &[]),
        "admin-usage": object(json!({
            "keys": list(object(key_usage(), &["mode", "debt"])), "cursor": nullable(text()),
            "complete": { "type": "boolean" }, "note": nullable(text()),
        }), &[]),
        "admin-diagnostic": object(diagnostic(), &[]),
        "admin-problem": object(json!({
            "type": { "type": "string", "format": "uri-reference" },
            "title": text(),
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": text(),
            "errors": list(super::schemas::reference("admin-diagnostic")),
            "allow": list(text()),
        }), &["errors", "allow"]),
    })
}

fn key_usage() -> Value {
    let text = || json!({ "type": "string" });
    let mut usage = super::schemas::rule_usage();
    usage["domain"] = text();
    usage["key"] = json!({
        "type": "object",
        "additionalProperties": nullable(text()),
        "description": "Attributes and their values, as they count",
    });
    usage["source"] = json!({ "enum": ["ledger", "override", "busiest"] });
    usage
}

fn status() -> Value {
    let text = || json!({ "type": "string" });
    let flag = || json!({ "type": "boolean" });
    let reloads =
        object(json!({ "ok": count(), "failed": count(), "error": nullable(text()) }), &[]);
    let mut tokens = object(json!({ "count": count(), "reloads": reloads }), &[]);
    tokens["type"] = json!(["object", "null"]);
    json!({
        "version": { "type": "string", "description": "That of the daemon" },
        "time": { "type": "string", "format": "date-time" },
        "uptime_ms": count(),
        "keys": count(),
        "bytes": count(),
        "max_keys": count(),
        "rules": count(),
        "shadow_rules": count(),
        "enforce_ppm": {
            "type": "integer", "minimum": 0, "maximum": 1_000_000,
            "description": "The share of keys that are enforced, in millionths",
        },
        "edits": flag(),
        "reload": object(json!({
            "ok": count(), "failed": count(),
            "last_ok": nullable(json!({ "type": "string", "format": "date-time" })),
            "error": nullable(text()), "replaced": flag(), "unstable": flag(),
            "needs_restart": list(text()),
        }), &[]),
        "tokens": tokens,
        "store": { "oneOf": stores() },
        "listeners": {
            "type": "object",
            "additionalProperties": { "type": ["string", "null"] },
            "description": "The address of each listener; null: it is off",
        },
        "changes": { "type": "integer", "minimum": 0, "description": "The number of the last change" },
    })
}

/// The kinds of stores.
fn stores() -> Value {
    let text = || json!({ "type": "string" });
    json!([
        object(json!({ "kind": { "const": "memory" } }), &[]),
        object(
            json!({
                "kind": { "const": "file" }, "folder": text(), "failure": nullable(text()),
            }),
            &[]
        ),
        object(
            json!({
                "kind": { "const": "redis" },
                "server": nullable(text()),
                "available": { "type": "boolean" },
                "clock_uncertainty_us": count(),
                "clock_step_ms": clock_step(),
                "counters": { "type": "object", "additionalProperties": count() },
                "failure": nullable(text()),
                "not_durable": nullable(text()),
                "replicas": nullable_count(),
                "replica_lag_bytes": nullable_count(),
                "replica_lag_seconds": nullable_count(),
                "database_keys": nullable_count(),
                "nodes": store_nodes(),
            }),
            &[]
        ),
    ])
}

/// The last step of the store's clock.
fn clock_step() -> Value {
    let mut step = nullable(json!({ "type": "integer" }));
    step["description"] =
        json!("By how much the store's clock last stepped, if by more than 5 s; negative: back");
    step
}

/// The daemons that share a store.
fn store_nodes() -> Value {
    let text = || json!({ "type": "string" });
    let node = object(
        json!({
            "name": text(), "version": text(), "address": nullable(text()),
            "seen_ms_ago": count(), "self": { "type": "boolean" },
        }),
        &[],
    );
    let mut nodes = nullable(list(node));
    nodes["description"] = json!("Those that share the store, this one first; null: not known");
    nodes
}

fn rule() -> Value {
    json!({
        "domain": { "type": "string" },
        "name": { "type": "string" },
        "description": { "type": "string" },
        "mode": { "enum": ["enforce", "shadow"] },
        "origin": { "enum": ["policy", "edited", "added"] },
        "rule": table("As in a policy file"),
        "allowed": count(),
        "denied": count(),
    })
}

/// An entry of the audit log.
fn change() -> Value {
    let text = || json!({ "type": "string" });
    json!({
        "number": { "type": "integer", "minimum": 1 },
        "at": { "type": "string", "format": "date-time" },
        "actor": { "type": "string", "description": "The user, token or certificate, or `file`" },
        "description": text(),
        "what": { "enum": ["rule", "bans", "server", "reset", "round"] },
        "domain": nullable(text()),
        "rule": nullable(text()),
        "before": nullable(text()),
        "after": {
            "type": ["string", "integer", "null"],
            "description": "In TOML; of a round, its number",
        },
        "starts_fresh": { "type": "boolean" },
        "keys": count(),
    })
}

fn top_key() -> Value {
    object(
        json!({
            "domain": { "type": "string" },
            "rule": { "type": "string" },
            "key": list(json!({
                "type": "array",
                "prefixItems": [{ "type": "string" }, { "type": ["string", "null"] }],
                "minItems": 2,
                "maxItems": 2,
                "description": "An attribute and its value",
            })),
            "count": { "type": "integer", "minimum": 0, "description": "An estimate, never too low" },
            "error": { "type": "integer", "minimum": 0, "description": "How much too high at most" },
        }),
        &[],
    )
}

/// An error or warning in a text.
fn diagnostic() -> Value {
    json!({
        "severity": { "enum": ["error", "warning"] },
        "file": { "type": "string" },
        "line": count(),
        "column": count(),
        "message": { "type": "string" },
        "hint": nullable(json!({ "type": "string" })),
    })
}

fn version() -> Value {
    let description = "The number of the last change; grows with each";
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn table(description: &str) -> Value {
    json!({ "type": "object", "description": description })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn with(mut properties: Value, more: Value) -> Value {
    if let (Value::Object(properties), Value::Object(more)) = (&mut properties, more) {
        properties.extend(more);
    }
    properties
}
