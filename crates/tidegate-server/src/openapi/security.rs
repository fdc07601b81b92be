//! How clients prove who they are.

use serde_json::{Value, json};
use tidegate::policy::Scope;

/// The credentials that an operation accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// It needs none.
    None,
    All,
    /// Without `Authorization`, which belongs to the client of the proxy.
    OfProxies,
}

pub(super) fn schemes() -> Value {
    json!({
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "The secret of a token. A daemon without a token file needs none.",
        },
        "token": {
            "type": "apiKey",
            "in": "header",
            "name": "Tidegate-Token",
            "description": "The secret of a token. A request has one in this header or as bearer, not in both.",
        },
        "certificate": {
            "type": "mutualTLS",
            "description": "A client certificate: with a token file one whose subject has a token, else \
                            any of the authority, which may do everything.",
        },
    })
}

/// The alternatives of an operation, each with the scopes that the token must have.
pub(super) fn requirement(credentials: Credentials, scopes: &[Scope]) -> Value {
    let scopes: Vec<_> = scopes.iter().map(ToString::to_string).collect();
    let names: &[&str] = match credentials {
        Credentials::None => &[],
        Credentials::All => &["bearer", "token", "certificate"],
        Credentials::OfProxies => &["token", "certificate"],
    };
    names.iter().map(|name| json!({ *name: scopes })).collect()
}
