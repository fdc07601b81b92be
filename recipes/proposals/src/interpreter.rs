use std::error::Error;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::Request;
use serde_json::json;
use tidegate::policy::duration_to_text;
use tidegate_proto::json::Object;
use tokio::time::timeout;

use crate::client::{Client, TrustError, client};
use crate::limits::CAP_MAX;
use crate::problem::{CallOutcome, DeskError};
use crate::proposal::{Draft, Interpretation, ProposalId};

/// Client of the AI that interprets proposals.
#[derive(Clone, Debug)]
pub struct Interpreter {
    client: Client,
    address: Uri,
    call_timeout: Duration,
}

impl Interpreter {
    /// The interpreter at this address, with this time-out per call.
    pub fn new(address: Uri, call_timeout: Duration) -> Result<Self, TrustError> {
        Ok(Self { client: client(&address)?, address, call_timeout })
    }

    /// Interprets a proposal. An error contains the reason.
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
        let response = match timeout(self.call_timeout, self.call(request)).await {
            Ok(response) => response?,
            Err(_) => {
                let within = duration_to_text(self.call_timeout);
                let reason = format!("the interpreter did not respond within {within}");
                return Err(reached(504, reason));
            }
        };
        let Object(interpretation): Object<Interpretation> = serde_json::from_slice(&response)
            .map_err(|error| {
                reached(502, format!("the interpreter's response is invalid: {error}"))
            })?;
        check(&interpretation, draft)?;
        Ok(interpretation)
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Result<Bytes, DeskError> {
        let broken = |error: &(dyn Error + 'static)| {
            tracing::warn!("no whole response of the interpreter: {}", chain(error));
            reached(502, "the interpreter's response is incomplete".into())
        };
        let sent = self.client.request(request).await;
        let response = sent.map_err(|error| match error.is_connect() {
            true => {
                tracing::warn!("interpreter unreachable: {}", chain(&error));
                not_reached(502, "the interpreter cannot be reached".into())
            }
            false => broken(&error),
        })?;
        let status = response.status();
        if !status.is_success() {
            return Err(reached(502, format!("the interpreter responded with {status}")));
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        match body {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                let why = "the interpreter's response is longer than";
                Err(reached(502, format!("{why} {MAX_RESPONSE_BYTES} bytes")))
            }
            Err(error) => Err(broken(&*error)),
        }
    }
}

/// Whether an interpretation is valid for the draft and its price.
fn check(interpretation: &Interpretation, draft: &Draft) -> Result<(), DeskError> {
    let Interpretation { summary, tier, proposals_per_window } = interpretation;
    if summary.len() > MAX_SUMMARY_BYTES {
        let why = format!("the interpreter's summary is longer than {MAX_SUMMARY_BYTES} bytes");
        return Err(reached(502, why));
    }
    if *tier != draft.tier {
        let proposed = draft.tier;
        return Err(reached(
            422,
            format!("it has tier {tier}, but was proposed as tier {proposed}"),
        ));
    }
    match *proposals_per_window {
        Some(_) if *tier != CAP_TIER => {
            Err(reached(422, format!("only tier {CAP_TIER} can change proposals_per_window")))
        }
        Some(cap) if !(1..=CAP_MAX).contains(&cap) => {
            Err(reached(422, format!("proposals_per_window must be 1 to {CAP_MAX}, not {cap}")))
        }
        _ => Ok(()),
    }
}

/// There was no connection to the interpreter: nothing was sent.
fn not_reached(status: u16, reason: String) -> DeskError {
    DeskError::NotInterpreted { status, reason, call: CallOutcome::NotReached }
}

/// The interpreter was called, and there is no interpretation of the draft.
fn reached(status: u16, reason: String) -> DeskError {
    DeskError::NotInterpreted { status, reason, call: CallOutcome::Reached }
}

/// An error with all its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The tier that can change the cap.
const CAP_TIER: u64 = 4;

const MAX_RESPONSE_BYTES: usize = 65_536;
const MAX_SUMMARY_BYTES: usize = 4_096;
