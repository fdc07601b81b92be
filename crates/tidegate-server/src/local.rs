//! The local socket: access, limits and verbs.
//!
//! A request passes these steps in this order, and one that fails before the limits is not charged:
//! its peer is checked against the access list, it is decoded, its version is checked, the socket's
//! own limits are charged, and then it is handled. The peer is identified by the kernel alone.

use std::sync::Arc;

use serde_json::{Map, Value};
use tidegate_proto::ipc::{self, Failure, IpcError, PROTOCOL_VERSION, Request};

pub use access::{Access, AccessEntry, AccessError};
pub use frames::{Ended, FrameTimes, Frames, StopReceiving};
pub use peer::PeerCredentials;
pub use socket_file::{BindError, SocketFile};
pub use socket_limits::RatesError;
pub use socket_path::default_socket;

use crate::admin::{Principal, Role};
use crate::daemon::SharedDaemon;
use crate::listener::Listener;
use budgeted_stream::BudgetedStream;
use socket_limits::SocketDenial;
pub(crate) use socket_limits::SocketLimits;
use tidegate_listen::{BudgetKind, Connection, PeerId, Protocol};
use verbs::VerbError;

mod access;
mod budgeted_stream;
mod frames;
mod peer;
mod request;
mod socket_file;
mod socket_limits;
mod socket_path;
#[cfg(test)]
mod tests;
mod verbs;

/// The protocol of the local socket.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    daemon: SharedDaemon,
    access: Arc<Access>,
    gate: Arc<SocketLimits>,
    /// The user that the daemon runs as, who owns the socket.
    owner: u32,
}

/// Frames to send, and what happens to the connection after them.
struct Reply {
    frames: Vec<Vec<u8>>,
    next: Next,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

impl Local {
    pub(crate) fn new(daemon: SharedDaemon, access: Access, gate: SocketLimits) -> Self {
        let owner = nix::unistd::geteuid().as_raw();
        Self { daemon, access: Arc::new(access), gate: Arc::new(gate), owner }
    }

    /// Passes one frame of a peer through all steps, in their order.
    async fn handle(&self, peer: &PeerCredentials, frame: Result<String, IpcError>) -> Reply {
        if !self.access.admits(peer) {
            tracing::warn!(client = %peer, "access denied");
            return failed(
                "Access denied. The user is not in the daemon's access list.",
                Next::Close,
            );
        }
        let read = frame.and_then(|text| Ok((ipc::parse::<Request>(&text)?, text)));
        let (request, text) = match read {
            Ok(read) => read,
            Err(error) => return self.malformed(peer, &error),
        };
        if !request.is_of_known_version() {
            let error = format!("Unsupported protocol version. Send {PROTOCOL_VERSION}.");
            return failed(&error, Next::Request);
        }
        if let Err(error) = self.gate.check(&peer.name) {
            tracing::warn!("Rate limit exceeded for client: {peer}");
            return too_soon(error);
        }
        let actor = peer.user();
        let principal = Principal { role: self.role(peer), actor: &actor };
        let since = self.daemon.now();
        let done = verbs::handle(&self.daemon, &principal, &request.kind, &text).await;
        self.daemon.observe_durations(Listener::Unix, since, 1);
        match done {
            Ok(fields) => reply(true, fields, Next::Request),
            Err(VerbError::Bad(error)) => self.malformed(peer, &error),
            Err(VerbError::Failed(reason)) => failed(&reason, Next::Request),
            Err(VerbError::Refused(reason, mut fields)) => {
                fields.insert("error".into(), reason.into());
                reply(false, fields, Next::Request)
            }
        }
    }

    fn malformed(&self, peer: &PeerCredentials, error: &IpcError) -> Reply {
        tracing::info!(client = %peer, error = error.to_string(), "bad request");
        self.daemon.metrics.listener(Listener::Unix).malformed.add(1);
        // After a frame of the wrong length the start of the next one is unknown; after an invalid
        // one the peer may speak another protocol.
        failed(&format!("Bad request: {error}."), Next::Close)
    }

    /// Root and the daemon's own user may change everything, others may read.
    fn role(&self, peer: &PeerCredentials) -> Role {
        if peer.uid == 0 || peer.uid == self.owner { Role::Full } else { Role::Read }
    }

    async fn serve_connection(&self, peer: &PeerCredentials, connection: Connection) -> Ended {
        let Connection { io, mut shutdown, permit, .. } = connection;
        let io = BudgetedStream::new(io, Arc::clone(&permit));
        let mut frames = Frames::new(io, FrameTimes::from(&self.daemon.settings.bounds));
        let mut is_stopping = false;
        loop {
            let frame = tokio::select! {
                biased;
                () = shutdown.wanted(), if !is_stopping => {
                    // Requests that have arrived are handled even then, and no others.
                    if let Err(error) = frames.stop_receiving() {
                        return Ended::Failed(error);
                    }
                    is_stopping = true;
                    continue;
                }
                frame = frames.next() => frame,
            };
            let reply = match frame {
                Ok(frame) => {
                    permit.begin_request();
                    self.handle(peer, frame).await
                }
                Err(Ended::Left | Ended::LeftHalfway) if is_stopping => return Ended::Stopping,
                Err(ended) => return ended,
            };
            // The request is gone; what is left is the beginning of others.
            permit.hold(BudgetKind::Received, frames.unread_len());
            permit.hold(BudgetKind::Unsent, reply.frames.iter().map(Vec::len).sum());
            for frame in &reply.frames {
                if let Err(ended) = frames.send(frame).await {
                    return ended;
                }
            }
            permit.hold(BudgetKind::Unsent, 0);
            permit.end_request();
            if reply.next == Next::Close {
                return Ended::Dismissed;
            }
        }
    }
}

impl Protocol for Local {
    async fn serve(&self, connection: Connection) {
        let PeerId::Process(process) = connection.peer else { return };
        let (uid, gid) = (process.uid(), process.gid());
        // The user database may be on another machine.
        let peer =
            match tokio::task::spawn_blocking(move || PeerCredentials::look_up(uid, gid)).await {
                Ok(Ok(peer)) => peer,
                failed => {
                    let error = match failed {
                        Ok(Err(error)) => error.to_string(),
                        _ => "the task failed".into(),
                    };
                    // A peer without a name is not admitted.
                    tracing::error!(uid, error, "cannot look up the user");
                    PeerCredentials { uid, name: String::new(), gids: Vec::new() }
                }
            };
        let ended = self.serve_connection(&peer, connection).await;
        tracing::debug!(client = %peer, %ended, "connection ended");
    }
}

fn failed(error: &str, next: Next) -> Reply {
    reply(false, verbs::fields_of(&Failure::new(error)), next)
}

fn too_soon(SocketDenial { limit, retry_after_ms }: SocketDenial) -> Reply {
    let failure = Failure { retry_after_ms, limit, ..Failure::new(LIMITED) };
    reply(false, verbs::fields_of(&failure), Next::Request)
}

/// A response as frames: one, or, for a response of the admin API that does not fit, several with a
/// part of its body each.
fn reply(is_ok: bool, fields: Map<String, Value>, next: Next) -> Reply {
    let frame = |mut fields: Map<String, Value>| {
        fields.insert("ok".into(), is_ok.into());
        fields.insert("protocolVersion".into(), PROTOCOL_VERSION.into());
        ipc::encode(&fields)
    };
    let mut whole = fields;
    if let Ok(frame) = frame(whole.clone()) {
        return Reply { frames: vec![frame], next };
    }
    let Some(body) = whole.remove("body") else {
        // The parts of single rules; the other fields have the decision over all of them.
        whole.remove("rules");
        let frames = frame(whole).into_iter().collect();
        return Reply { frames, next };
    };
    let body = body.to_string();
    let mut parts = parts(&body).peekable();
    let mut frames = Vec::new();
    while let Some(part) = parts.next() {
        let mut fields = whole.clone();
        fields.insert("part".into(), part.into());
        fields.insert("more".into(), parts.peek().is_some().into());
        frames.extend(frame(fields));
    }
    Reply { frames, next }
}

/// Parts of a text that each fit into a frame, whatever is escaped in them.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = PART_BYTES.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, after) = rest.split_at(end);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

const LIMITED: &str = "Rate limit exceeded. Please wait before retrying.";

/// Escaped, a byte becomes six at most.
const PART_BYTES: usize = 8 * 1024;
