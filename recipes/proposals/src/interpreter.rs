use std::error::Error;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use serde_json::json;
use tidegate::policy::duration_to_text;
use tokio::time::timeout;

use crate::client::{Client, TrustError, client};
use crate::limits::CAP_MAX;
use crate::problem::DeskError;
use crate::proposal::{Draft, Interpretation, ProposalId};

/// The AI that says what a proposal would do.
#[derive(Clone, Debug)]
pub struct Interpreter {
    client: Client,
    address: Uri,
    answer_within: Duration,
}

impl Interpreter {
    /// The interpreter at an address, which may take so long for an answer.
    pub fn new(address: Uri, answer_within: Duration) -> Result<Self, TrustError> {
        Ok(Self { client: client(&address)?, address, answer_within })
    }

    /// Asks what a proposal would do. An error says why there is no answer that can be used.
    pub(crate) async fn interpret(
        &self,
        (id, governor): (ProposalId, &str),
        draft: &Draft,
    ) -> Result<Interpretation, DeskError> {
        let question =
            json!({ "proposal": id, "governor": governor, "tier": draft.tier, "text": draft.text });
        let mut request = Request::new(Full::new(Bytes::from(question.to_string())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.address.clone();
        let is_json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, is_json);
        let answer = match timeout(self.answer_within, self.call(request)).await {
            Ok(answer) => answer?,
            Err(_) => {
                let within = duration_to_text(self.answer_within);
                return Err(failed(504, format!("the interpreter did not answer within {within}")));
            }
        };
        let interpretation: Interpretation = serde_json::from_slice(&answer).map_err(|error| {
            failed(502, format!("the interpreter's answer cannot be understood: {error}"))
        })?;
        check(&interpretation, draft)?;
        Ok(interpretation)
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Result<Bytes, DeskError> {
        let unreachable = |error: &(dyn Error + 'static)| {
            tracing::warn!("the interpreter was not reached: {}", chain(error));
            failed(502, "the interpreter cannot be reached".into())
        };
        let sent = self.client.request(request).await;
        let response = sent.map_err(|error| unreachable(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(failed(502, format!("the interpreter answered {status}")));
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        Ok(body.map_err(|error| unreachable(&*error))?.to_bytes())
    }
}

/// Whether an interpretation can be what the governor has handed in, and paid for.
fn check(interpretation: &Interpretation, draft: &Draft) -> Result<(), DeskError> {
    let Interpretation { summary, tier, proposals_per_window } = interpretation;
    if summary.len() > MAX_SUMMARY_BYTES {
        let why = format!("the interpreter's summary is longer than {MAX_SUMMARY_BYTES} bytes");
        return Err(failed(502, why));
    }
    if *tier != draft.tier {
        let asked = draft.tier;
        return Err(failed(422, format!("it is of tier {tier}, and was proposed as tier {asked}")));
    }
    match *proposals_per_window {
        Some(_) if *tier != CAP_TIER => {
            Err(failed(422, format!("proposals_per_window is changed at tier {CAP_TIER} only")))
        }
        Some(cap) if !(1..=CAP_MAX).contains(&cap) => {
            Err(failed(422, format!("proposals_per_window can be 1 to {CAP_MAX}, not {cap}")))
        }
        _ => Ok(()),
    }
}

fn failed(status: u16, reason: String) -> DeskError {
    DeskError::NotInterpreted { status, reason }
}

/// An error with everything that caused it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The tier at which the cap is changed.
const CAP_TIER: u64 = 4;

const MAX_ANSWER_BYTES: usize = 65_536;
const MAX_SUMMARY_BYTES: usize = 4_096;
