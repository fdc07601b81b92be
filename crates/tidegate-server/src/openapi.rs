//! The OpenAPI 3.1 document of the HTTP API and of the admin API.

/// The document. It is written by hand; tests compare it with the routes and with responses.
pub(crate) const TEXT: &str = include_str!("../openapi.json");

#[cfg(test)]
mod tests;
