//! The schemas of explanations, denials, history and previews in the admin API.

use serde_json::{Value, json};

use super::schemas::{count, nullable, nullable_count, object, reference};

/// All of them.
pub(super) fn all() -> Value {
    let text = || json!({ "type": "string" });
    let table = |description: &str| json!({ "type": "object", "description": description });
    let domain = || json!({ "type": "string", "default": "default" });
    let attributes = json!({
        "type": "object",
        "additionalProperties": { "type": ["string", "integer"] },
    });
    json!({
        "admin-request": object(json!({
            "domain": domain(), "attributes": attributes, "cost": count(),
        }), &["domain", "attributes", "cost"]),
        "admin-keys-request": object(json!({
            "domain": domain(), "attributes": attributes,
        }), &["domain", "attributes"]),
        "admin-preview-request": object(json!({
            "domain": domain(),
            "rule": { "type": "string", "description": "With `change`, without `policy`" },
            "change": table("Fields of the rule, as in a policy file; null removes a field"),
            "policy": { "type": "string", "description": "A whole policy in TOML, without the others" },
        }), &["domain", "rule", "change", "policy"]),
        "admin-denials": object(json!({
            "denials": list(denial()),
            "kept": { "type": "integer", "minimum": 0, "description": "How many there are" },
            "oldest": nullable(time()),
            "not_kept": {
                "type": "integer", "minimum": 0,
                "description": "How many were left out since the start, as there were too many at once",
            },
        }), &[]),
        "admin-history": object(history(), &[]),
        "admin-preview": object(json!({
            "lines": list(text()),
            "warnings": list(reference("admin-diagnostic")),
            "rules": list(object(json!({
                "domain": text(), "rule": text(), "description": text(),
                "starts_fresh": { "type": "boolean" },
                "estimate": { "oneOf": [estimate(), { "type": "null" }] },
                "why_not": nullable(json!({
                    "type": "string", "description": "Why there is no estimate",
                })),
            }), &[])),
        }), &[]),
    })
}

fn denial() -> Value {
    let text = || json!({ "type": "string" });
    let values = |description: &str| {
        json!({
            "type": "object",
            "additionalProperties": { "type": ["string", "null"] },
            "description": description,
        })
    };
    // As in the response that the client got.
    let mut decision = super::schemas::decision();
    if let Some(fields) = decision.as_object_mut() {
        fields.insert("time".into(), time());
        fields.insert("listener".into(), json!({ "enum": ["http", "grpc", "resp", "unix"] }));
        fields.insert("domain".into(), text());
        fields.insert("key".into(), values("The key of the decisive rule"));
        fields.insert("attributes".into(), values("Those of the request; long values are cut"));
    }
    object(decision, &[])
}

fn history() -> Value {
    let counts = || list(count());
    let rule = json!({
        "domain": { "type": "string" }, "name": { "type": "string" },
        "allowed": counts(), "denied": counts(), "shadow_denied": counts(),
    });
    json!({
        "step_ms": count(),
        "time_ms": list(json!({
            "type": "integer", "minimum": 0, "description": "When the step ended, since 1970",
        })),
        "allowed": counts(), "denied": counts(), "shadow_denied": counts(), "unmatched": counts(),
        "p50_us": list(nullable_count()), "p99_us": list(nullable_count()),
        "keys": counts(), "bytes": counts(),
        "rules": object(json!({
            "step_ms": count(), "time_ms": counts(), "rules": list(object(rule, &[])),
        }), &[]),
    })
}

fn estimate() -> Value {
    let key = json!({
        "key": { "type": "object", "additionalProperties": { "type": ["string", "null"] } },
        "requests": count(), "denied_before": count(), "denied_after": count(),
    });
    object(
        json!({
            "since": time(), "until": time(),
            "sampled_keys": count(),
            "keys": count(),
            "share": {
                "type": "number", "minimum": 0, "maximum": 1,
                "description": "The share of keys in the sample; other numbers are scaled by it",
            },
            "is_exact": { "type": "boolean" },
            "requests": count(),
            "denied_before": count(), "denied_after": count(),
            "newly_denied": count(), "no_longer_denied": count(),
            "keys_newly_denied": count(), "keys_no_longer_denied": count(),
            "top": list(object(key, &[])),
        }),
        &[],
    )
}

fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}
