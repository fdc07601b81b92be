//! The local socket: access, limits and verbs.
//!
//! A request passes these steps in this order, and one that fails before the limits is not charged:
//! its peer is checked against the access list, it is decoded, its version is checked, the socket's
//! own limits are charged, and then it is handled. The peer is identified by the kernel alone.

use std::sync::Arc;

use serde_json::{Map, Value};
use tidegate::policy::{Scope, Scopes};
use tidegate_proto::ipc::{self, Failure, IpcError, PROTOCOL_VERSION, Request};

pub use access::{Access, AccessEntry, AccessError};
pub use frames::{Ended, FrameTimes, Frames, StopReceiving};
pub use peer::PeerCredentials;
pub use socket_file::{BindError, SocketFile};
pub use socket_limits::RatesError;
pub use socket_path::default_socket;

use crate::access::{AccessDenial, ConnectionAccess, Principal};
use crate::admin::AdminClient;
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
    async fn handle(
        &self,
        peer: &PeerCredentials,
        access: &ConnectionAccess,
        frame: Result<String, IpcError>,
    ) -> Reply {
        let principal = match self.principal(peer, access) {
            Ok(principal) => principal,
            Err(denial) => {
                self.daemon.access.note(Listener::Unix, peer, &denial);
                let why = match denial {
                    AccessDenial::Expired => "Access denied. The token of the user has ended.",
                    _ => "Access denied. The user is not in the daemon's access list.",
                };
                return failed(why, Next::Close);
            }
        };
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
        let client = AdminClient { principal: &principal, actor: &actor, permit: None };
        let since = self.daemon.now();
        let done = verbs::handle(&self.daemon, client, &request.kind, &text).await;
        self.daemon.observe_durations(Listener::Unix, since, 1);
        match done {
            Ok(fields) => reply(true, fields, Next::Request),
            Err(VerbError::Bad(error)) => self.malformed(peer, &error),
            Err(VerbError::Failed(reason)) => failed(&reason, Next::Request),
            Err(VerbError::Denied(denial)) => {
                self.daemon.access.note(Listener::Unix, peer, &denial);
                failed(&format!("Access denied: {denial}."), Next::Request)
            }
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

    /// Who a peer is, if it is admitted: root and the daemon's own user may do everything, a user or
    /// group with a token what that says, and others in the access list all but changes.
    fn principal(
        &self,
        peer: &PeerCredentials,
        access: &ConnectionAccess,
    ) -> Result<Principal, AccessDenial> {
        if peer.name.is_empty() {
            return Err(AccessDenial::Unknown);
        }
        if peer.uid == 0 || peer.uid == self.owner {
            return Ok(Principal::open());
        }
        let tokens = &self.daemon.access;
        // A token that has ended is not replaced by the access list, which may grant more.
        match tokens.local_user(access, peer.uid, &peer.gids, self.daemon.wall()) {
            Some(principal) => principal,
            None if self.access.admits(peer) => Ok(tokens.listed_user(&peer.name, listed_scopes())),
            None => Err(AccessDenial::Unknown),
        }
    }

    async fn serve_connection(&self, peer: &PeerCredentials, connection: Connection) -> Ended {
        let Connection { io, mut shutdown, permit, .. } = connection;
        let access = self.daemon.access.connect(permit.state(), None);
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
                    self.handle(peer, &access, frame).await
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

/// What a user in the access list may do.
fn listed_scopes() -> Scopes {
    Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin).collect()
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
