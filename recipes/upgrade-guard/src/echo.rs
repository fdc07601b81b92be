use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use axum::routing::any;
use tidegate::Engine;
use tidegate::policy::{Limit, Policy, PolicyErrors, Rule, Slots};
use tidegate_tower::{Admission, Permit, PolicyLayer};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::serve::FOR_EVER;

/// A WebSocket service at `/ws` that sends back what it gets, to at most `max_sockets` at a time.
///
/// A socket keeps its place until it is closed, or nothing has come for a minute. When `stopping` turns
/// true, all are told goodbye (1001); it is closed when the last one has gone.
pub fn echo(max_sockets: u32, stopping: watch::Receiver<bool>) -> Result<Router, PolicyErrors> {
    let slots = Slots::new(max_sockets.into()).queue(0).expires(FOR_EVER);
    let sockets = Engine::new(Policy::new([Rule::new("sockets", Limit::Slots(slots))])?);
    let nobody_waits = PolicyLayer::new(sockets, "default").slots(Some(Duration::ZERO));
    let upgrade = move |admission: Admission, upgrade: WebSocketUpgrade| {
        let guest = OpenSocket { permit: admission.permit().cloned(), stopping: stopping.clone() };
        async { upgraded(upgrade, guest) }
    };
    Ok(Router::new().route("/ws", any(upgrade)).route_layer(nobody_waits))
}

/// What a socket holds for as long as it is open.
struct OpenSocket {
    permit: Option<Permit>,
    stopping: watch::Receiver<bool>,
}

fn upgraded(upgrade: WebSocketUpgrade, guest: OpenSocket) -> Response {
    upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .max_write_buffer_size(2 * MAX_MESSAGE_BYTES)
        .write_buffer_size(0)
        .on_upgrade(move |socket| echoed(socket, guest))
}

/// Sends back what comes, until the socket is closed.
async fn echoed(mut socket: WebSocket, mut guest: OpenSocket) {
    loop {
        let received = tokio::select! {
            received = timeout(MAX_SILENCE, socket.recv()) => received,
            () = stops(&mut guest.stopping) => {
                let goodbye = CloseFrame { code: close_code::AWAY, reason: "stopping".into() };
                let _ = timeout(MAX_WRITE_TIME, socket.send(Message::Close(Some(goodbye)))).await;
                break;
            }
        };
        let Ok(Some(Ok(message))) = received else { break };
        let is_data = matches!(message, Message::Text(_) | Message::Binary(_));
        if is_data && !matches!(timeout(MAX_WRITE_TIME, socket.send(message)).await, Ok(Ok(()))) {
            break;
        }
    }
    drop(guest.permit);
}

/// Waits until the service stops.
async fn stops(stopping: &mut watch::Receiver<bool>) {
    // An error would mean that nobody is left who could stop it.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

const MAX_MESSAGE_BYTES: usize = 65_536;

/// How long a socket may be silent.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// How long a client may take to read what it gets back.
const MAX_WRITE_TIME: Duration = Duration::from_secs(5);
