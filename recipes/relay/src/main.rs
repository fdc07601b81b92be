//! `tidegate-relay`: the relay as a program, configured by its environment.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use axum::serve::ListenerExt;
use clap::Command;
use tidegate_relay::{Guard, Relay, Settings, VARIABLES, serve};
use tidegate_tower::{ClientIp, UpgradeGuard};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    command().get_matches();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr fails too, there is nowhere else to report it.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command line: only `--help` and `--version`.
fn command() -> Command {
    let width = VARIABLES.iter().map(|variable| variable.name.len()).max().unwrap_or(0);
    let mut help = String::from("Environment:\n");
    for variable in VARIABLES {
        let (name, meaning, default) =
            (variable.name, variable.meaning, variable.default.unwrap_or("required"));
        // Writing to a string does not fail.
        let _ = writeln!(help, "  {name:width$}  {meaning} [{default}]");
    }
    let _ = writeln!(help, "  {:width$}  log level: error, warn, info, debug [info]", "RUST_LOG");
    help.push_str("\nAn invalid value prevents the start.");
    Command::new("tidegate-relay")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Forwards envelopes between clients over WebSockets, with one bucket per connection")
        .after_help(help)
}

fn start() -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings::from_env(|name| std::env::var_os(name))?;
    let relay = Relay::builder(&settings.public_host)
        .limit(Some(settings.limit))
        .max_connections(settings.max_connections)
        .build()?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(settings, relay))
}

async fn run(settings: Settings, relay: Relay) -> Result<(), Box<dyn std::error::Error>> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind(settings.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", settings.listen))?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "listening on {address}")?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!(connections = relay.connections(), "shutting down");
        if timeout(MAX_SHUTDOWN_TIME, relay.close()).await.is_err() {
            tracing::warn!(connections = relay.connections(), "some clients did not close in time");
        }
    };
    let routes = match settings.guard {
        Guard::On => {
            let client = ClientIp::behind_networks(settings.trusted_proxies);
            relay.guarded(&UpgradeGuard::default(), client)
        }
        Guard::Off => relay.router(),
    };
    // Small messages should leave at once; without this they leave a little later.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    serve(listener, routes, stop).await;
    Ok(())
}

/// The time that clients have to close when the relay shuts down.
const MAX_SHUTDOWN_TIME: Duration = Duration::from_secs(5);
