//! What keys have used of their limits.

use http::StatusCode;
use tidegate::policy::Scope;

use super::BufferedRequest;
use super::problem::RequestProblem;
use super::request_body::{RequestBody, USAGE};
use super::response::{self, HttpResponse};
use crate::body::usage::UsageBody;

/// `POST /v1/usage`
pub(super) async fn usage(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, body, .. } = call;
    let fields = RequestBody::read(body, USAGE, 0)?;
    let pairs = fields.pairs();
    let request = call.request(Scope::Read, fields.request(&pairs))?;
    let usage = daemon.engine.usage(&request).await?;
    Ok(response::json(StatusCode::OK, &UsageBody::new(&usage)))
}
