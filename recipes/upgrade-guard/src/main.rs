//! A WebSocket service behind an upgrade guard.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use tidegate_listen::{ListenSocket, PermitLimits, bind_tcp, log, terminated};
use tidegate_tower::ProxyListener;
use tidegate_upgrade_guard::{GuardArgs, echo, guarded, serve_within};
use tokio::sync::watch;

/// A WebSocket echo service at /ws, behind a guard that denies floods of connection attempts: one
/// bucket per address, checked before the upgrade.
///
/// GET /healthz is not limited, and is served even if there are too many connections. Each denial is
/// one line in the log, on standard error, up to 10 per second. RUST_LOG sets the log level: error,
/// warn, info, debug.
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

    /// Maximum number of connections of one address, in place of a quarter of all; trusted proxies
    /// have no such maximum
    #[arg(long, value_name = "N", env = "UPGRADE_GUARD_MAX_CONNECTIONS_PER_ADDRESS",
          value_parser = clap::value_parser!(u64).range(1..))]
    max_connections_per_address: Option<u64>,

    #[command(flatten)]
    guard: GuardArgs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log::run(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(run(arguments))
    })
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let guard = arguments.guard.guard()?;
    let stopping = watch::Sender::new(false);
    let service = echo(arguments.max_sockets, stopping.subscribe())?;
    let app = guarded(service, &guard, arguments.guard.client());
    let limits = limits(&arguments);
    let listener = bind_tcp(arguments.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", arguments.listen))?;
    let address = listener.local_addr()?;
    let signalled = terminated();
    writeln!(std::io::stdout().lock(), "listening on {address}")?;
    let stop = async {
        signalled.await;
        stopping.send_replace(true);
    };
    if arguments.proxy_protocol {
        let balancers = arguments.guard.balancers()?;
        let listener = ProxyListener::new(listener).only_from_networks(balancers);
        serve_within(listener, limits, app, stop).await;
    } else {
        serve_within(ListenSocket::Tcp(listener), limits, app, stop).await;
    }
    stopping.closed().await;
    guard.close();
    tracing::info!("stopped");
    Ok(())
}

/// All sockets, and some connections that are still plain HTTP.
fn limits(arguments: &Arguments) -> PermitLimits {
    let wanted = u64::from(arguments.max_sockets) + PLAIN_CONNECTIONS;
    PermitLimits::new(wanted)
        .per_peer(arguments.max_connections_per_address)
        .shared_by(arguments.guard.trusted_proxies.iter().copied())
        .within_descriptors(OTHER_DESCRIPTORS)
}

/// Connections that are no sockets yet.
const PLAIN_CONNECTIONS: u64 = 2_048;

/// Descriptors that the runtime and the listener need; with the PROXY protocol connections without
/// their header need some, too.
const OTHER_DESCRIPTORS: u64 = 1_024 + 32;
