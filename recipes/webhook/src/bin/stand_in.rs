//! A simulated agent and chat API to try the webhook with: prints every request and accepts it.

use std::io::{self, Write as _};
use std::process::ExitCode;

use axum::extract::OriginalUri;
use axum::{Json, Router};
use clap::{Arg, Command};
use serde_json::{Value, json};
use tidegate_listen::{ListenSocket, terminated};
use tidegate_webhook::serve;

#[tokio::main]
async fn main() -> ExitCode {
    let address =
        Arg::new("address").required(true).help("The address to listen on, such as 127.0.0.1:9000");
    let arguments = Command::new("tidegate-webhook-stand-in")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Simulates the agent and the chat API of a webhook: prints every request")
        .arg(address)
        .get_matches();
    let address: &String = arguments.get_one("address").expect("it is required");
    match ListenSocket::bind(address).await {
        Ok(socket) => {
            let stop = terminated();
            serve(socket, Router::new().fallback(called), stop).await;
            ExitCode::SUCCESS
        }
        Err(error) => {
            // If stderr fails too, there is nowhere else to report it.
            let _ = writeln!(io::stderr(), "error: cannot listen on {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Bot methods belong to the chat API; everything else is for the agent.
async fn called(OriginalUri(uri): OriginalUri, body: Option<Json<Value>>) -> Json<Value> {
    let body = body.map(|Json(body)| body).unwrap_or_default();
    let line = if uri.path().ends_with("/sendMessage") {
        format!("chat {}: {}", body["chat_id"], body["text"])
    } else {
        format!("agent: {} from user {}", body["message"]["text"], body["message"]["from"]["id"])
    };
    // The reader of stdout may be gone.
    let _ = writeln!(io::stdout(), "{line}");
    Json(json!({ "ok": true }))
}
