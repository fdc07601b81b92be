//! A WebSocket service behind an upgrade guard.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use axum::serve::ListenerExt;
use clap::Parser;
use tidegate_tower::ProxyListener;
use tidegate_upgrade_guard::{GuardArgs, echo, guarded, serve, stopped};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

/// A WebSocket service at /ws that sends back what it gets, behind a guard that refuses floods of
/// connection attempts: one bucket per address, asked before the upgrade.
///
/// GET /healthz is not limited. Refusals are one line each in the log, on standard error; RUST_LOG says
/// how much else is there.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Where to listen; port 0 is any free port, and is told on standard output
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "UPGRADE_GUARD_LISTEN"
    )]
    listen: SocketAddr,

    /// Connections begin with a header of the PROXY protocol (only behind a balancer that sends it)
    #[arg(long)]
    proxy_protocol: bool,

    /// How many sockets may be open
    #[arg(long, value_name = "N", default_value_t = 10_000, env = "UPGRADE_GUARD_MAX_SOCKETS",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_sockets: u32,

    #[command(flatten)]
    guard: GuardArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let guard = arguments.guard.guard()?;
    let stopping = watch::Sender::new(false);
    let service = echo(arguments.max_sockets, stopping.subscribe())?;
    let app = guarded(service, &guard, arguments.guard.client());
    let listener = TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", arguments.listen))?;
    let address = listener.local_addr()?;
    let asked_to_stop = stopped();
    writeln!(std::io::stdout().lock(), "listening on {address}")?;
    let stop = async {
        asked_to_stop.await;
        stopping.send_replace(true);
    };
    if arguments.proxy_protocol {
        serve(ProxyListener::new(listener), app, stop).await;
    } else {
        // Small messages should leave at once. If that cannot be had, they leave a little later.
        serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), app, stop).await;
    }
    stopping.closed().await;
    guard.close();
    tracing::info!("stopped");
    Ok(())
}
