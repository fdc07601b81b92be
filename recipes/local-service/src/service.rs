use tidegate::clock::Clock;
use tidegate_proto::ipc::{self, Failure, IpcError, PROTOCOL_VERSION, Pong, Request, Response};
use tidegate_proto::times::time_text;
use tracing::{error, info, warn};

use crate::{Access, LimitOutcome, PeerCredentials, RequestLimiter};

/// Serves requests, independent of their socket.
#[derive(Debug)]
pub struct Service<C> {
    access: Access,
    limiter: RequestLimiter,
    clock: C,
}

/// A response, and what happens to the connection after it.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The response.
    pub response: Response,
    /// The next step.
    pub next: Next,
}

/// The next step after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the next request.
    Request,
    /// Close the connection: no request on it would be served, or the start of its next request is
    /// unknown.
    Close,
}

impl<C: Clock + Send + Sync + 'static> Service<C> {
    /// A service for these users, with these limits and this clock.
    pub const fn new(access: Access, limiter: RequestLimiter, clock: C) -> Self {
        Self { access, limiter, clock }
    }

    /// The limits.
    #[must_use]
    pub const fn limiter(&self) -> &RequestLimiter {
        &self.limiter
    }

    /// Takes one frame of a peer through all steps, in order. A frame that fails before the limits
    /// costs nothing.
    pub fn handle(&self, peer: &PeerCredentials, frame: Result<&str, &IpcError>) -> Reply {
        let request = match frame.map(ipc::parse::<Request>) {
            Ok(Ok(request)) => request,
            Ok(Err(error)) => return malformed(peer, &error),
            Err(error) => return malformed(peer, error),
        };
        if !self.access.admits(peer) {
            warn!("Access denied for client: {peer}");
            return failed("Access denied. You are not on the list of this service.", Next::Close);
        }
        if !request.is_of_known_version() {
            let error = format!("Unsupported protocol version. Send {PROTOCOL_VERSION}.");
            return failed(error, Next::Request);
        }
        match self.limiter.check(&peer.name, &request.kind) {
            Ok(LimitOutcome::Allowed) => self.process(&request),
            Ok(LimitOutcome::Denied { limit, retry_after_ms }) => {
                warn!("Rate limit exceeded for client: {peer}");
                let failure = Failure { error: LIMITED.into(), retry_after_ms, limit };
                Reply { response: Response::Error(failure), next: Next::Request }
            }
            // Without a decision the request is not allowed.
            Err(why) => {
                error!("No decision for client: {peer}: {why}");
                failed("The request could not be decided.", Next::Request)
            }
        }
    }

    fn process(&self, request: &Request) -> Reply {
        if request.kind != "ping" {
            return failed("Unknown type of request. Known is: ping.", Next::Request);
        }
        let pong = Pong { service_version: env!("CARGO_PKG_VERSION").into(), time: self.time() };
        Reply { response: Response::Ok(pong), next: Next::Request }
    }

    /// The time of day in ISO 8601, in UTC.
    fn time(&self) -> String {
        time_text(self.clock.wall())
    }
}

fn malformed(peer: &PeerCredentials, error: &IpcError) -> Reply {
    info!("Bad request of client: {peer}: {}", error.to_string().escape_debug());
    failed(format!("Bad request: {error}."), Next::Close)
}

fn failed(error: impl Into<String>, next: Next) -> Reply {
    Reply { response: Response::Error(Failure::new(error)), next }
}

const LIMITED: &str = "Rate limit exceeded. Please wait before retrying.";
