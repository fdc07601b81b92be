//! Explanations of decisions.

use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate::Clock;
use tidegate::policy::Scope;
use tidegate_proto::times::time_text_rounded_up;

use super::BufferedRequest;
use super::problem::RequestProblem;
use super::request_body::{RESERVE, RequestBody};
use super::response::{self, HttpResponse};
use crate::body::explanation::explained;

/// `POST /v1/explain`
pub(super) async fn explain(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, body, .. } = call;
    let fields = RequestBody::read(body, RESERVE, 0)?;
    let pairs = fields.pairs();
    let now = daemon.engine.clock().wall();
    let request = call.request(Scope::Read, fields.request(&pairs))?;
    let explanation = daemon.engine.explain(&request).await?;
    let mut json = Map::new();
    json.insert("domain".into(), json!(fields.domain()));
    json.insert("time".into(), json!(time_text_rounded_up(now)));
    let attributes: Map<_, _> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json.insert("attributes".into(), Value::Object(attributes));
    json.insert("cost".into(), json!(fields.cost.unwrap_or(1)));
    json.extend(explained(&explanation, now));
    Ok(response::json(StatusCode::OK, &json))
}
