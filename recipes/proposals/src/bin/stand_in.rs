//! A simulated interpreter to try the desk with: it accepts every proposal as stated.

use std::io::{self, Write};
use std::process::ExitCode;

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tidegate_listen::{ListenSocket, terminated};
use tidegate_proposals::{ConnectionLimits, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(std::env::args().nth(1)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr fails too, there is nowhere else to report it.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(address: Option<String>) -> Result<(), Box<dyn std::error::Error>> {
    let address = address.ok_or("expected an address to listen on, such as 127.0.0.1:9000")?;
    let socket = ListenSocket::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let stop = terminated();
    writeln!(io::stdout(), "interpreting on {}", socket.local_addr()?)?;
    let app = Router::new().route("/interpret", post(interpret));
    // All connections are of one desk.
    serve(socket, app, ConnectionLimits { all: 1_024, per_address: 1_024 }, stop).await;
    Ok(())
}

/// `proposals_per_window = 5` in a text changes the cap. Any other text is repeated.
async fn interpret(Json(request): Json<Value>) -> Json<Value> {
    let text = request["text"].as_str().unwrap_or_default();
    let mut words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    let cap = words
        .find(|word| *word == "proposals_per_window")
        .and_then(|_| words.find_map(|word| word.parse::<u64>().ok()));
    let summary = match cap {
        Some(cap) => format!("set proposals_per_window to {cap}"),
        None => text.to_owned(),
    };
    let mut response = json!({ "summary": summary, "tier": request["tier"] });
    if let Some(cap) = cap {
        response["proposals_per_window"] = cap.into();
    }
    Json(response)
}
