//! The OpenAPI document, and whether responses conform to it. Every response that the clients of
//! these tests receive over HTTP is compared with it.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};

/// The document in the repository.
pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../openapi.json")).unwrap());

/// A response, with the part of its request that says what it may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange<'e> {
    pub(crate) method: &'e str,
    /// The path, and possibly a query.
    pub(crate) target: &'e str,
    pub(crate) status: u16,
    pub(crate) content_type: Option<&'e str>,
    pub(crate) body: &'e [u8],
}

/// An operation of the document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation<'p> {
    /// A method in small letters.
    pub(crate) method: &'p str,
    /// A path, with variables in braces.
    pub(crate) path: &'p str,
    pub(crate) value: &'p Value,
}

impl Operation<'_> {
    /// Where the document has it.
    pub(crate) fn pointer(&self) -> String {
        format!("/paths/{}/{}", escaped(self.path), self.method)
    }
}

/// All operations.
pub(crate) fn operations() -> impl Iterator<Item = Operation<'static>> {
    DOCUMENT["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter().filter(|it| it.0 != "servers");
        methods.map(move |(method, value)| Operation { method, path, value })
    })
}

/// The operation of a request; `Err` has whether the path is known.
pub(crate) fn operation(method: &str, target: &str) -> Result<Operation<'static>, bool> {
    let path = target.split('?').next().unwrap();
    let fits = |pattern: &str| {
        let (known, given): (Vec<_>, Vec<_>) =
            (pattern.split('/').collect(), path.split('/').collect());
        known.len() == given.len()
            && known.iter().zip(given).all(|(known, given)| {
                *known == given || (known.starts_with('{') && !given.is_empty())
            })
    };
    let of_path: Vec<_> = operations().filter(|it| fits(it.path)).collect();
    // HEAD is GET without the body.
    let method = if method == "HEAD" { "GET" } else { method };
    let found = of_path.iter().find(|it| it.method.eq_ignore_ascii_case(method));
    found.copied().ok_or(!of_path.is_empty())
}

/// Asserts that the document has this response of this operation, and that its body is valid.
#[track_caller]
pub(crate) fn assert_documented(it: Exchange<'_>) {
    let Exchange { method, target, status, .. } = it;
    let operation = match operation(method, target) {
        Ok(operation) => operation,
        Err(is_known_path) => {
            let path = target.split('?').next().unwrap();
            let is_admin = path.starts_with("/admin/");
            let is_known = match status {
                _ if UNDOCUMENTED.contains(&path) => return,
                401 | 404 => !is_known_path,
                405 => is_known_path,
                _ => false,
            };
            assert!(is_known, "{method} {target}: {status} is not in the document");
            let schema = if is_admin { "admin-problem" } else { "problem" };
            return assert_valid(it, &format!("/components/schemas/{schema}"));
        }
    };
    let pointer = format!("{}/responses/{status}", operation.pointer());
    let Some(response) = DOCUMENT.pointer(&pointer) else {
        panic!("{method} {target}: {status} is not in the document: {it:?}")
    };
    SEEN.with_borrow_mut(|seen| seen.insert(pointer.clone()));
    if it.body.is_empty() {
        let is_right = response.get("content").is_none() || method == "HEAD";
        // nginx needs a 403 for a denial, which has no body, as for a path that it cannot check.
        let is_right = is_right || (operation.path, status) == ("/check/nginx", 403);
        return assert!(is_right, "{method} {target}: a {status} has a body");
    }
    let kind = it.content_type.unwrap_or_default().split(';').next().unwrap();
    let pointer = format!("{pointer}/content/{}/schema", escaped(kind));
    assert!(DOCUMENT.pointer(&pointer).is_some(), "{method} {target}: a {status} of {kind}");
    if kind.ends_with("json") {
        assert_valid(it, &pointer);
    }
}

/// Asserts that a body conforms to the schema at a pointer.
#[track_caller]
fn assert_valid(it: Exchange<'_>, pointer: &str) {
    let Exchange { method, target, .. } = it;
    let body = serde_json::from_slice(it.body).unwrap_or_else(|error| panic!("{error}: {it:?}"));
    let errors = errors(pointer, &body);
    assert!(errors.is_empty(), "{method} {target}: {body:#}: {errors:?}");
    SEEN.with_borrow_mut(|seen| note_fields(pointer, &body, seen));
}

/// Why a value does not conform to the schema at a pointer.
pub(crate) fn errors(pointer: &str, value: &Value) -> Vec<String> {
    static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> =
        LazyLock::new(Mutex::default);
    let known = VALIDATORS.lock().unwrap().get(pointer).cloned();
    let validator = known.unwrap_or_else(|| {
        let mut root = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "components": DOCUMENT["components"],
        });
        let schema = DOCUMENT.pointer(pointer).unwrap_or_else(|| panic!("no schema: {pointer}"));
        root.as_object_mut().unwrap().extend(schema.as_object().unwrap().clone());
        let new = Arc::new(jsonschema::validator_for(&root).unwrap());
        VALIDATORS.lock().unwrap().insert(pointer.to_owned(), Arc::clone(&new));
        new
    });
    validator.iter_errors(value).map(|it| it.to_string()).collect()
}

/// Adds the pointers of the schema's fields that a valid value has.
fn note_fields(pointer: &str, value: &Value, seen: &mut BTreeSet<String>) {
    let schema = DOCUMENT.pointer(pointer).unwrap();
    if let Some(other) = schema.get("$ref") {
        return note_fields(other.as_str().unwrap().strip_prefix('#').unwrap(), value, seen);
    }
    for variant in 0..schema["oneOf"].as_array().map_or(0, Vec::len) {
        let variant = format!("{pointer}/oneOf/{variant}");
        if errors(&variant, value).is_empty() {
            note_fields(&variant, value, seen);
        }
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let of_field = format!("{pointer}/properties/{}", escaped(name));
        if DOCUMENT.pointer(&of_field).is_some() {
            note_fields(&of_field, field, seen);
            seen.insert(of_field);
        } else if schema["additionalProperties"].is_object() {
            note_fields(&format!("{pointer}/additionalProperties"), field, seen);
        }
    }
    for item in value.as_array().into_iter().flatten().filter(|_| schema["items"].is_object()) {
        note_fields(&format!("{pointer}/items"), item, seen);
    }
}

/// Adds the pointers of all fields that a schema has.
fn fields_of(pointer: &str, all: &mut BTreeSet<String>) {
    let schema = DOCUMENT.pointer(pointer).unwrap();
    if let Some(other) = schema.get("$ref") {
        return fields_of(other.as_str().unwrap().strip_prefix('#').unwrap(), all);
    }
    let variants = 0..schema["oneOf"].as_array().map_or(0, Vec::len);
    variants.for_each(|variant| fields_of(&format!("{pointer}/oneOf/{variant}"), all));
    for name in schema["properties"].as_object().into_iter().flat_map(|it| it.keys()) {
        let of_field = format!("{pointer}/properties/{}", escaped(name));
        if all.insert(of_field.clone()) {
            fields_of(&of_field, all);
        }
    }
    for part in ["items", "additionalProperties"].into_iter().filter(|it| schema[it].is_object()) {
        fields_of(&format!("{pointer}/{part}"), all);
    }
}

/// The responses of the document, and the fields of their bodies, that this thread has not received.
pub(crate) fn unseen() -> Vec<String> {
    let mut all = BTreeSet::new();
    for operation in operations() {
        for (status, response) in operation.value["responses"].as_object().unwrap() {
            let pointer = format!("{}/responses/{status}", operation.pointer());
            for kind in response["content"].as_object().into_iter().flat_map(|it| it.keys()) {
                fields_of(&format!("{pointer}/content/{}/schema", escaped(kind)), &mut all);
            }
            all.insert(pointer);
        }
    }
    SEEN.with_borrow(|seen| all.difference(seen).cloned().collect())
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

thread_local! {
    /// The responses, and the fields of their bodies, that this thread has received, as pointers
    /// into the document.
    static SEEN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Paths that only the dashboard uses.
const UNDOCUMENTED: &[&str] = &[
    "/",
    "/dashboard.js",
    "/dashboard.css",
    "/favicon.svg",
    "/admin/v1/session",
    "/admin/v1/events",
];
