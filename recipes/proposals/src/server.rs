//! The server: the accept loop of tidegate-listen, with the desk's own response to a connection too
//! many.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::Response;
use tidegate_listen::{Connections, Http, ListenSocket, PermitLimits, Surplus, Timeouts};

use crate::problem::DeskError;

/// The bounds of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In total.
    pub all: u64,
    /// Of one address: an IPv4 address, or the /64 of an IPv6 address.
    pub per_address: u64,
}

impl ConnectionLimits {
    /// The same with no more connections than the process has descriptors for, of which `kept` are
    /// for other uses.
    #[must_use]
    pub fn within_descriptors(self, kept: u64) -> Self {
        let all = self.permits().within_descriptors(kept).max();
        Self { all, per_address: self.per_address.min(all) }
    }

    fn permits(self) -> PermitLimits {
        PermitLimits::new(self.all).per_peer(Some(self.per_address))
    }

    /// The response to a connection beyond them.
    fn too_many(self) -> Response<Bytes> {
        let Self { all, per_address } = self;
        let why = format!(
            "Too many connections: {per_address} from one address and {all} in total are served at \
             once. Try again later."
        );
        DeskError::Invalid { status: 503, why }.to_response()
    }
}

/// Serves routes until `stop` is ready, then lets requests in progress complete, for 3 s at most.
///
/// A client that does not send the head of a request within 10 s is disconnected. A connection
/// beyond the limits gets a 503 with the reason.
pub async fn serve(
    socket: ListenSocket,
    app: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) {
    let permits = Connections::default().listener("http", limits.permits());
    let http = Http::new(app)
        .timeouts(Timeouts { head_time: MAX_HEAD_TIME, ..Timeouts::default() })
        .head_bytes(MAX_HEAD_BYTES)
        .surplus(Surplus::Respond)
        .refusal_response(move |_| limits.too_many());
    tidegate_listen::serve(socket, permits, http, stop, MAX_GRACE).await;
}

/// The time-out of a request's head, and its maximum size. Bodies have a shorter time-out than the
/// connection's, with a response: see the routes.
const MAX_HEAD_TIME: Duration = Duration::from_secs(10);
const MAX_HEAD_BYTES: usize = 16 << 10;

/// How long requests in progress may take once the server stops.
pub(crate) const MAX_GRACE: Duration = Duration::from_secs(3);
