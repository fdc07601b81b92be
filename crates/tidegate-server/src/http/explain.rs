//! Explanations of decisions.

use http::StatusCode;
use tidegate::policy::Scope;

use super::BufferedRequest;
use super::problem::RequestProblem;
use super::request_body::{RESERVE, RequestBody};
use super::response::{self, HttpResponse};
use crate::body::explanation::explained_request;

/// `POST /v1/explain`
pub(super) async fn explain(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, body, .. } = call;
    let fields = RequestBody::read(body, RESERVE, 0)?;
    let pairs = fields.pairs();
    let now = daemon.engine.clock().wall();
    let request = call.request(Scope::Read, fields.request(&pairs))?;
    let explanation = daemon.engine.explain(&request).await?;
    let json = explained_request(&request, fields.cost.unwrap_or(1), &explanation, now);
    Ok(response::json(StatusCode::OK, &json))
}
