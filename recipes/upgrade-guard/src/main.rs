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

/// A WebSocket echo service at /ws, behind a guard that denies floods of connection attempts: one
/// bucket per address, checked before the upgrade.
///
/// GET /healthz is not limited. Each denial is one line in the log, on standard error; RUST_LOG
/// sets the log level.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The address to listen on; port 0 is any free port, printed on standard output
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "UPGRADE_GUARD_LISTEN"
    )]
    listen: SocketAddr,

    /// Connections begin with a PROXY header from loopback or a trusted proxy
    #[arg(long)]
    proxy_protocol: bool,

    /// Maximum number of open sockets
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
    let signalled = stopped();
    writeln!(std::io::stdout().lock(), "listening on {address}")?;
    let stop = async {
        signalled.await;
        stopping.send_replace(true);
    };
    if arguments.proxy_protocol {
        let balancers = arguments.guard.balancers()?;
        serve(ProxyListener::new(listener).only_from_networks(balancers), app, stop).await;
    } else {
        // Small messages should leave at once; without this they leave a little later.
        serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), app, stop).await;
    }
    stopping.closed().await;
    guard.close();
    tracing::info!("stopped");
    Ok(())
}
