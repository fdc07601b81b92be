//! The server: the accept loop of tidegate-listen, with a reserve for the health check.

use std::time::Duration;

use axum::Router;
use tidegate_listen::{Connections, Http, ListenSocket, PermitLimits};

/// Serves routes until `stop` is ready, then lets requests in progress complete, for 3 s at most.
///
/// 2 048 connections at a time, of which an address may have half: updates come from few addresses.
/// `/healthz` is served even if there are too many.
pub async fn serve(socket: ListenSocket, app: Router, stop: impl Future<Output = ()>) {
    let limits = PermitLimits::new(MAX_CONNECTIONS)
        .within_descriptors(OTHER_DESCRIPTORS)
        .per_peer(Some(MAX_CONNECTIONS / 2));
    let permits = Connections::default().listener("http", limits);
    let http = Http::new(app).reserve_for(|request| request.uri.path() == "/healthz");
    tidegate_listen::serve(socket, permits, http, stop, MAX_GRACE).await;
}

const MAX_CONNECTIONS: u64 = 2_048;

/// Descriptors that the runtime, the listener and the store need, and calls of the agent and the chat
/// API at their usual concurrency.
const OTHER_DESCRIPTORS: u64 = 256;

/// How long requests in progress may take once the server stops.
const MAX_GRACE: Duration = Duration::from_secs(3);
