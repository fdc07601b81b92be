//! Whether the document has what the daemon routes by, and nothing else. The integration tests
//! compare it with responses.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate::policy::Scope;

use super::TEXT;
use crate::admin;
use crate::http::routes::{Endpoint, Methods, Needed, ROUTES};

/// Each operation, as `METHOD path`, with what the document or a table of routes says about it.
type Operations = BTreeMap<String, Value>;

fn document() -> Value {
    serde_json::from_str(TEXT).unwrap()
}

/// The security requirements of all operations in the document.
fn documented() -> Operations {
    let document = document();
    let mut all = Operations::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|it| it.0 != "servers") {
            let name = format!("{} {path}", method.to_uppercase());
            all.insert(name, operation["security"].clone());
        }
    }
    all
}

/// The same by the tables of routes.
fn routed() -> Operations {
    let mut all = Operations::new();
    for route in ROUTES {
        let methods: &[&str] = match route.methods {
            Methods::Get => &["GET"],
            Methods::Post => &["POST"],
            Methods::Delete => &["DELETE"],
            // A proxy uses the method of its client, or GET.
            Methods::Any => &["GET", "POST"],
        };
        for method in methods {
            all.insert(format!("{method} {}", route.path), security_of(route.act));
        }
    }
    for (path, methods) in admin::routes() {
        for (method, scope, _) in methods {
            let security = requirement(&["bearer", "token", "certificate"], &[*scope]);
            all.insert(format!("{method} /admin/v1/{path}"), security);
        }
    }
    all
}

fn security_of(endpoint: Endpoint) -> Value {
    let names: &[&str] = match endpoint.is_for_proxies() {
        // `Authorization` belongs to the client of the proxy.
        true => &["token", "certificate"],
        false => &["bearer", "token", "certificate"],
    };
    match endpoint.needs() {
        Needed::Nothing => json!([]),
        Needed::Token => requirement(names, &[]),
        Needed::Scope(scope) => requirement(names, &[scope]),
    }
}

/// The alternatives of an operation, each with the scopes that the token must have.
fn requirement(names: &[&str], scopes: &[Scope]) -> Value {
    let scopes: Vec<_> = scopes.iter().map(ToString::to_string).collect();
    names.iter().map(|name| json!({ *name: scopes })).collect()
}

#[test]
fn the_document_has_every_route_with_its_methods_and_scopes_and_no_other() {
    let (documented, routed) = (documented(), routed());
    let names = |all: &Operations| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&documented), names(&routed));
    for (name, security) in &routed {
        assert_eq!(&documented[name], security, "{name}");
    }
    assert!(routed.len() > 40, "all tables are read: {routed:?}");
}

#[test]
fn every_variable_of_a_path_is_a_parameter() {
    let document = document();
    for (path, item) in document["paths"].as_object().unwrap() {
        let variables: Vec<_> = path.split(['{', '}']).skip(1).step_by(2).collect();
        for (method, operation) in item.as_object().unwrap().iter().filter(|it| it.0 != "servers") {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let in_path = parameters.filter(|it| it["in"] == "path" && it["required"] == true);
            let names: Vec<_> = in_path.map(|it| it["name"].as_str().unwrap()).collect();
            assert_eq!(names, variables, "{method} {path}");
        }
    }
}

#[test]
fn the_version_is_that_of_the_crate() {
    assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
}
