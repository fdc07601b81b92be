//! The server: the accept loop of tidegate-listen, with a reserve for the health check.

use std::time::Duration;

use axum::Router;
use tidegate_listen::{Accept, Connections, Http, PermitLimits, Timeouts};
use tokio::io::{AsyncRead, AsyncWrite};

/// Serves a relay's routes until `stop` is ready.
///
/// Connections are bounded, in total and per address, and have time-outs until they are WebSockets;
/// `/health` is served even if there are too many. [`close`](crate::Relay::close) closes the
/// WebSockets: call it in `stop`.
pub async fn serve<A>(
    source: A,
    limits: PermitLimits,
    routes: Router,
    stop: impl Future<Output = ()>,
) where
    A: Accept,
    A::Io: AsyncRead + AsyncWrite + Unpin,
{
    let permits = Connections::default().listener("http", limits);
    let http = Http::new(routes)
        .timeouts(Timeouts { idle_time: MAX_IDLE_TIME, ..Timeouts::default() })
        .reserve_for(|request| request.uri.path() == "/health");
    tidegate_listen::serve(source, permits, http, stop, MAX_GRACE).await;
}

/// The time between two requests of plain HTTP.
const MAX_IDLE_TIME: Duration = Duration::from_secs(5);

/// How long requests in progress may take once the relay has closed its WebSockets.
const MAX_GRACE: Duration = Duration::from_secs(3);
