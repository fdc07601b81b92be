//! `tidegate-webhook`: the webhook as a program, configured by its environment.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Command;
use tidegate::StoreEngine;
use tidegate_listen::{ListenSocket, log, terminated};
use tidegate_webhook::{
    MessageLimiter, PATH, Settings, Storage, VARIABLES, Webhook, opened, serve,
};

fn main() -> ExitCode {
    command().get_matches();
    log::run(start)
}

/// The command line: only `--help` and `--version`.
fn command() -> Command {
    let width = VARIABLES.iter().map(|variable| variable.name.len()).max().unwrap_or(0);
    let mut help = String::from("Environment:\n");
    for variable in VARIABLES {
        let (name, meaning) = (variable.name, variable.meaning);
        let default = variable.default.unwrap_or(variable.unset);
        // Writing to a string does not fail.
        let _ = writeln!(help, "  {name:width$}  {meaning} [{default}]");
    }
    let _ = writeln!(help, "  {:width$}  log level: error, warn, info, debug [info]", "RUST_LOG");
    help.push_str("\nAn invalid value prevents the start.");
    Command::new("tidegate-webhook")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A bot's webhook that limits the messages per user that reach an expensive agent")
        .after_help(help)
}

fn start() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_env(|name| std::env::var_os(name))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let policy = settings.policy.clone();
    match &settings.storage {
        Storage::InMemory => runtime.block_on(async {
            tracing::warn!(
                "RATE_LIMIT_STORE is memory: the end of the process loses the counts, and accepted \
                 messages that were not dispatched"
            );
            run(&settings, Webhook::new(&settings, MessageLimiter::new(StoreEngine::new(policy)))?)
                .await
        }),
        Storage::InFolder(path) => {
            let engine =
                opened(policy, path).map_err(|error| format!("RATE_LIMIT_STORE: {error}"))?;
            runtime.block_on(async {
                let limiter = MessageLimiter::new(engine);
                run(&settings, Webhook::resume(&settings, limiter).await?).await
            })
        }
    }
}

async fn run(settings: &Settings, webhook: Webhook) -> Result<(), Box<dyn Error>> {
    let socket = ListenSocket::bind(settings.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", settings.listen))?;
    let address = socket.local_addr()?;
    if settings.access.secret.is_none() {
        tracing::warn!("TELEGRAM_WEBHOOK_AUTH is off: any client may send updates");
    }
    if settings.is_token_in_the_clear() {
        tracing::warn!("TELEGRAM_API_BASE is not https: the token is sent in clear text");
    }
    let stop = terminated();
    writeln!(io::stdout(), "listening on {address}, updates go to http://{address}{PATH}")?;
    serve(socket, webhook.router(), stop).await;
    webhook.finish().await;
    tracing::info!("stopped");
    Ok(())
}
