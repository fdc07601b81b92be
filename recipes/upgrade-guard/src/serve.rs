//! The server: the accept loop of tidegate-listen, with a reserve for the health check.

use std::time::Duration;

use axum::Router;
use tidegate_listen::{Accept, Connections, Http, PermitLimits};
use tokio::io::{AsyncRead, AsyncWrite};

/// Serves routes with these limits until `stop` is ready, then lets requests in progress complete.
///
/// Connections are bounded, in total and per address, and have time-outs until they are upgraded;
/// `/healthz` is served even if there are too many. The routes have to close their WebSockets
/// themselves.
pub async fn serve_within<A>(
    source: A,
    limits: PermitLimits,
    app: Router,
    stop: impl Future<Output = ()>,
) where
    A: Accept,
    A::Io: AsyncRead + AsyncWrite + Unpin,
{
    let permits = Connections::default().listener("http", limits);
    let http = Http::new(app).reserve_for(|request| request.uri.path() == "/healthz");
    tidegate_listen::serve(source, permits, http, stop, MAX_GRACE).await;
}

/// How long requests in progress and open sockets may take once the server stops.
const MAX_GRACE: Duration = Duration::from_secs(3);
