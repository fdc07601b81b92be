//! Sends a request to the desk, and prints the response.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Uri, header};
use clap::{Args, ValueEnum};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use serde_json::{Value, json};

use super::format;
use crate::audit::Audit;
use crate::client::{Client, client};
use crate::settings::address;

/// The desk's URL and the client's credentials.
#[derive(Args, Clone, Debug)]
pub(super) struct ClientArgs {
    /// The desk's URL
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", env = "PROPOSALS_URL",
          value_parser = address)]
    url: Uri,
    /// Your secret
    #[arg(long, value_name = "SECRET", env = "PROPOSALS_SECRET", hide_env_values = true)]
    secret: String,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// A request to the desk.
#[derive(Debug)]
pub(super) enum DeskRequest {
    Propose { tier: u64, text: String },
    Act { id: String, act: &'static str },
    Vote { id: String, vote: String },
    Round { round: u64 },
    Tally,
    Enrol { governor: String, secret: String },
    Proposals { status: Option<String>, governor: Option<String> },
    Window,
    Balances,
    Audit { governor: Option<String> },
}

/// The HTTP form of a request, without the base URL.
struct HttpCall {
    method: Method,
    path: String,
    body: Option<Value>,
}

/// Sends the request and prints the response; denials go to standard error.
pub(super) fn run(request: &DeskRequest, args: &ClientArgs) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = client(&args.url)?;
        match respond(request, args, &client).await? {
            Ok(response) => {
                let mut out = io::stdout().lock();
                match args.format {
                    Format::Json => writeln!(out, "{response:#}")?,
                    Format::Text => out.write_all(format::text(request, &response).as_bytes())?,
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(problem) => {
                let why =
                    problem["detail"].as_str().map_or_else(|| problem.to_string(), Into::into);
                writeln!(io::stderr(), "denied: {why}")?;
                Ok(ExitCode::FAILURE)
            }
        }
    })
}

/// The response over all pages, or a problem.
async fn respond(
    request: &DeskRequest,
    args: &ClientArgs,
    client: &Client,
) -> Result<Result<Value, Value>, Box<dyn Error>> {
    let DeskRequest::Audit { .. } = request else {
        return sent(call(request, 0), args, client).await;
    };
    let (mut whole, mut after) = (Audit::default(), 0);
    loop {
        let page = match sent(call(request, after), args, client).await? {
            Ok(page) => serde_json::from_value::<Audit>(page)?,
            problem => return Ok(problem),
        };
        whole.events.extend(page.events);
        match page.next {
            Some(next) => after = next,
            None => return Ok(Ok(serde_json::to_value(whole)?)),
        }
    }
}

fn call(request: &DeskRequest, after: u64) -> HttpCall {
    let get = |path: String| HttpCall { method: Method::GET, path, body: None };
    let post = |path: String, body| HttpCall { method: Method::POST, path, body };
    match request {
        DeskRequest::Propose { tier, text } => {
            post("/v1/proposals".into(), Some(json!({ "tier": tier, "text": text })))
        }
        DeskRequest::Act { id, act } => post(format!("/v1/proposals/{}/{act}", plain(id)), None),
        DeskRequest::Vote { id, vote } => {
            post(format!("/v1/proposals/{}/vote", plain(id)), Some(json!({ "vote": vote })))
        }
        DeskRequest::Round { round } => post("/v1/rounds".into(), Some(json!({ "round": round }))),
        DeskRequest::Tally => post("/v1/tally".into(), None),
        DeskRequest::Enrol { governor, secret } => {
            let body = json!({ "governor": governor, "secret": secret });
            post("/v1/governors".into(), Some(body))
        }
        DeskRequest::Proposals { status, governor } => {
            let filter = |(name, value): (&str, &Option<String>)| {
                value.as_ref().map(|value| format!("{name}={}", plain(value)))
            };
            let filters = [("status", status), ("governor", governor)].map(filter);
            let filters: Vec<String> = filters.into_iter().flatten().collect();
            get(format!("/v1/proposals?{}", filters.join("&")))
        }
        DeskRequest::Window => get("/v1/window".into()),
        DeskRequest::Balances => get("/v1/balances".into()),
        DeskRequest::Audit { governor: None } => get(format!("/v1/audit?after={after}")),
        DeskRequest::Audit { governor: Some(governor) } => {
            get(format!("/v1/audit?after={after}&governor={}", plain(governor)))
        }
    }
}

/// A text without special characters in a URL: they are replaced, so that it matches nothing.
fn plain(text: &str) -> String {
    let is_plain = |it: &char| it.is_ascii_alphanumeric() || "-_.".contains(*it);
    text.chars().map(|it| if is_plain(&it) { it } else { '_' }).collect()
}

async fn sent(
    call: HttpCall,
    args: &ClientArgs,
    client: &Client,
) -> Result<Result<Value, Value>, Box<dyn Error>> {
    let HttpCall { method, path, body } = call;
    let base = args.url.to_string();
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let mut bearer = HeaderValue::try_from(format!("Bearer {}", args.secret))
        .map_err(|_| "the secret is not printable ASCII")?;
    bearer.set_sensitive(true);
    let request = Request::builder()
        .method(method)
        .uri(format!("{}{path}", base.trim_end_matches('/')))
        .header(header::AUTHORIZATION, bearer)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let response = client
        .request(request)
        .await
        .map_err(|error| format!("the desk at {base} cannot be reached: {error}"))?;
    let is_done = response.status().is_success();
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| format!("the response of {base} is incomplete: {error}"))?;
    let response = serde_json::from_slice(&body.to_bytes())
        .map_err(|error| format!("unexpected response of {base}: {error}"))?;
    Ok(if is_done { Ok(response) } else { Err(response) })
}

const MAX_RESPONSE_BYTES: usize = 64 << 20;
