//! The operations of the admin API.

use serde_json::{Map, Value, json};
use tidegate::policy::Scope;

use super::schemas::reference;
use super::security::{Credentials, requirement};
use super::{JSON, ResponseSpec, responses_of};
use crate::admin::{AdminAction, AdminMethod, PolicyEdit, TrafficAction, routes};

/// All paths of the admin API.
pub(super) fn paths() -> impl Iterator<Item = (String, Value)> {
    routes().map(|(path, methods)| (format!("/admin/v1/{path}"), path_item(path, methods)))
}

fn path_item(path: &str, methods: &[AdminMethod]) -> Value {
    let mut item = Map::new();
    item.insert(
        "servers".into(),
        json!([{
            "url": "http://127.0.0.1:9090",
            "description": "The admin listener, by default",
        }]),
    );
    for (method, scope, action) in methods {
        item.insert(method.to_ascii_lowercase(), operation(path, *scope, *action));
    }
    Value::Object(item)
}

fn operation(path: &str, scope: Scope, action: AdminAction) -> Value {
    let OperationSpec { id, summary, query, body, response } = spec(action);
    let mut operation = json!({
        "operationId": id,
        "summary": summary,
        "tags": ["admin"],
        "security": requirement(Credentials::All, &[scope]),
    });
    let names = path.split(['{', '}']).skip(1).step_by(2);
    let in_path = names.map(|name| {
        json!({
            "name": name, "in": "path", "required": true,
            "description": format!("The {name} of the rule"), "schema": { "type": "string" },
        })
    });
    let in_query = query.iter().map(|(name, description)| {
        let schema = match *name {
            "since" | "count" | "limit" => json!({ "type": "integer", "minimum": 0 }),
            "over" => json!({ "type": "number", "minimum": 0 }),
            _ => json!({ "type": "string" }),
        };
        json!({
            "name": name, "in": "query", "required": false,
            "description": description, "schema": schema,
        })
    });
    let parameters: Vec<_> = in_path.chain(in_query).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(schema) = body {
        let toml =
            "The same as TOML; a policy or the fields of a rule are written as in a policy file";
        operation["requestBody"] = json!({
            "required": true,
            "content": {
                JSON: { "schema": reference(schema) },
                "application/toml": { "schema": { "type": "string", "description": toml } },
            },
        });
    }
    let mut specs: Vec<ResponseSpec> = vec![(200, "Done", Some((JSON, response)))];
    specs.extend_from_slice(NO_ACCESS);
    if body.is_some() {
        specs.extend_from_slice(BAD_INPUT);
    }
    if body.is_some() || !query.is_empty() {
        specs.push((422, "The body or a parameter is invalid", PROBLEM));
    }
    if matches!(action, AdminAction::Policy) {
        specs.push((200, "Done", Some(("text/plain", "text"))));
    }
    if scope == Scope::Admin {
        specs.push((503, "The change cannot be stored; it may be in force all the same", PROBLEM));
    }
    operation["responses"] = Value::Object(responses_of(specs.iter()));
    operation
}

/// What the document says about an operation.
struct OperationSpec {
    id: &'static str,
    summary: &'static str,
    /// Parameters in the query, with their descriptions.
    query: &'static [(&'static str, &'static str)],
    /// The schema of the request body.
    body: Option<&'static str>,
    /// The schema of the response body.
    response: &'static str,
}

const fn read(id: &'static str, summary: &'static str, response: &'static str) -> OperationSpec {
    OperationSpec { id, summary, query: &[], body: None, response }
}

const fn edit(
    id: &'static str,
    summary: &'static str,
    body: &'static str,
    response: &'static str,
) -> OperationSpec {
    OperationSpec { id, summary, query: &[], body: Some(body), response }
}

const fn spec(action: AdminAction) -> OperationSpec {
    match action {
        AdminAction::Status => {
            read("admin-status", "Keys, memory, reloads, store and listeners", "admin-status")
        }
        AdminAction::Policy => read(
            "admin-policy",
            "The policy in force, without secrets, and the edits over it",
            "admin-policy",
        ),
        AdminAction::Rules => {
            read("admin-rules", "The rules in force, and what they decided", "admin-rules")
        }
        AdminAction::Overrides => {
            read("admin-overrides", "The overrides that were set at run time", "admin-overrides")
        }
        AdminAction::Bans => read("admin-bans", "The bans", "admin-bans"),
        AdminAction::Audit => OperationSpec {
            query: &[("since", "Changes after the one with this number; 0 if absent")],
            ..read("admin-audit", "The last changes, oldest first", "admin-audit")
        },
        AdminAction::Top => OperationSpec {
            query: &[("count", "How many keys, 512 at most; 10 if absent")],
            ..read("admin-top", "The busiest keys, and those that were denied most", "admin-top")
        },
        AdminAction::Usage => OperationSpec {
            query: &[
                ("domain", "Keys of this domain; of all if absent"),
                ("rule", "Keys of the rules with this name"),
                ("over", "Keys that have used at least this share of a limit; 0 if absent"),
                ("limit", "How many keys, 1 000 at most; 100 if absent"),
                ("cursor", "Where to go on: the cursor of the response before"),
            ],
            ..read("admin-usage", "Keys by the share of a limit that they have used", "admin-usage")
        },
        AdminAction::Traffic(look) => traffic_spec(look),
        AdminAction::ResetKey => edit(
            "admin-reset",
            "Drops the states that a request is charged to, or all states",
            "admin-reset-request",
            "admin-reset",
        ),
        AdminAction::CloseRound => edit(
            "admin-close-round",
            "Closes the round of a domain: quotas per round start again",
            "admin-round-request",
            "admin-round",
        ),
        AdminAction::Edit(edit) => edit_spec(edit),
    }
}

const fn traffic_spec(look: TrafficAction) -> OperationSpec {
    match look {
        TrafficAction::KeyUsage => edit(
            "admin-key-usage",
            "What the keys of a request have used of their limits",
            "admin-keys-request",
            "usage",
        ),
        TrafficAction::Explain => edit(
            "admin-explain",
            "Why a request would be allowed or denied now; charges nothing",
            "admin-request",
            "explanation",
        ),
        TrafficAction::Denials => OperationSpec {
            query: &[
                ("decision_id", "The one with this id"),
                ("domain", "Those of this domain; of all if absent"),
                ("rule", "Those by the rules with this name"),
                ("text", "Those with this text in the value of an attribute"),
                ("limit", "How many, 1 000 at most; 100 if absent"),
            ],
            ..read("admin-denials", "Recent denials, newest first", "admin-denials")
        },
        TrafficAction::History => {
            read("admin-history", "Decisions of the last quarter of an hour", "admin-history")
        }
        TrafficAction::Preview => edit(
            "admin-preview",
            "What an edit would change, and what it would have changed for recent requests",
            "admin-preview-request",
            "admin-preview",
        ),
    }
}

const fn edit_spec(it: PolicyEdit) -> OperationSpec {
    match it {
        PolicyEdit::PutPolicy => edit(
            "admin-apply-policy",
            "Puts another policy into force, until the file changes or the daemon restarts",
            "admin-policy-request",
            "admin-policy-applied",
        ),
        PolicyEdit::PatchRule => edit(
            "admin-change-rule",
            "Changes fields of a rule; null removes one",
            "admin-rule-request",
            "admin-rule-changed",
        ),
        PolicyEdit::PutOverride => edit(
            "admin-set-override",
            "Sets other numbers for some keys of a rule",
            "admin-override-request",
            "admin-changed",
        ),
        PolicyEdit::DropOverride => edit(
            "admin-drop-override",
            "Removes an override",
            "admin-override-drop",
            "admin-changed",
        ),
        PolicyEdit::Ban => edit(
            "admin-ban",
            "Denies requests whatever the limits are",
            "admin-ban-request",
            "admin-banned",
        ),
        PolicyEdit::Unban => {
            edit("admin-unban", "Removes a ban", "admin-unban-request", "admin-changed")
        }
        PolicyEdit::DropAll => read("admin-drop-edits", "Drops all edits", "admin-edits-dropped"),
    }
}

const PROBLEM: Option<(&str, &str)> = Some(("application/problem+json", "admin-problem"));

/// The errors of all operations.
const NO_ACCESS: &[ResponseSpec] = &[
    (400, "The credentials are ambiguous, or the body cannot be decoded", PROBLEM),
    (401, "The token or client certificate is missing, unknown or over", PROBLEM),
    (
        403,
        "The token lacks the scope, or is not for all domains and attributes; or the request is \
           from a page in a browser",
        PROBLEM,
    ),
    (429, "The token's own limit is exceeded", PROBLEM),
];

/// The errors of all operations with a request body.
const BAD_INPUT: &[ResponseSpec] = &[
    (404, "No such rule, domain, override or ban", PROBLEM),
    (408, "The body did not arrive in time", PROBLEM),
    (413, "The body is too large", PROBLEM),
];
