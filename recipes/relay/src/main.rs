//! `tidegate-relay`: the relay as a program, configured by its environment.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Command;
use tidegate_listen::{ListenSocket, PermitLimits, log, terminated};
use tidegate_relay::{Guard, Relay, Settings, VARIABLES, serve, unknown_variables};
use tidegate_tower::{ClientIp, UpgradeGuard};
use tokio::time::timeout;

fn main() -> ExitCode {
    command().get_matches();
    log::run(start)
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
    help.push_str("\nAn empty value counts as unset. An invalid one prevents the start.");
    Command::new("tidegate-relay")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Forwards envelopes between clients over WebSockets, with one bucket per connection")
        .after_help(help)
}

fn start() -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings::from_env(|name| std::env::var_os(name))?;
    let set = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    for name in unknown_variables(set.map(|(name, _)| name)).into_iter().take(MOST_WARNINGS) {
        tracing::warn!("{name} is set, but this relay does not have it: it has no effect");
    }
    let relay = Relay::builder(&settings.public_host)
        .limit(Some(settings.limit))
        .bucket_life(settings.bucket_life)
        .max_connections(settings.max_connections)
        .max_handshakes(MAX_HANDSHAKES)
        .allowed_origins(settings.allowed_origins.clone())
        .folder(settings.data_folder.clone())
        .proxies(settings.trusted_proxies.iter().copied())
        .build()?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(settings, relay))
}

async fn run(settings: Settings, relay: Relay) -> Result<(), Box<dyn std::error::Error>> {
    let signalled = terminated();
    let limits = limits(&settings);
    let socket = ListenSocket::bind(settings.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", settings.listen))?;
    let address = socket.local_addr()?;
    writeln!(io::stdout(), "listening on {address}")?;
    let stop = async {
        signalled.await;
        tracing::info!(connections = relay.connections(), "shutting down");
        if timeout(MAX_SHUTDOWN_TIME, relay.close()).await.is_err() {
            tracing::warn!(connections = relay.connections(), "some clients did not close in time");
        }
    };
    let routes = match settings.guard {
        Guard::On => {
            let client = ClientIp::behind_networks(settings.trusted_proxies)
                .header(settings.forwarded_header);
            relay.guarded(&UpgradeGuard::default(), client)
        }
        Guard::Off => relay.router(),
    };
    serve(socket, limits, routes, stop).await;
    Ok(())
}

/// All clients, handshakes, and some connections that are plain HTTP.
fn limits(settings: &Settings) -> PermitLimits {
    let wanted = (settings.max_connections + MAX_HANDSHAKES + PLAIN_CONNECTIONS) as u64;
    PermitLimits::new(wanted)
        .per_peer(settings.max_connections_per_address)
        .shared_by(settings.trusted_proxies.iter().copied())
        .within_descriptors(OTHER_DESCRIPTORS)
}

/// Connections that are not yet authenticated.
const MAX_HANDSHAKES: usize = 1_000;

/// Connections that are no WebSockets.
const PLAIN_CONNECTIONS: usize = 2_048;

/// Descriptors that the runtime, the listener and the folder need.
const OTHER_DESCRIPTORS: u64 = 32;

/// Unknown variables that are warned about.
const MOST_WARNINGS: usize = 50;

/// The time that clients have to close when the relay shuts down.
const MAX_SHUTDOWN_TIME: Duration = Duration::from_secs(5);
