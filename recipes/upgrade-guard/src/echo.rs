use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseCode, CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use axum::routing::any;
use tidegate::StoreEngine;
use tidegate::policy::{Limit, Policy, PolicyErrors, Rule, Slots};
use tidegate_tower::{Admission, Permit, PolicyLayer};
use tokio::sync::watch;
use tokio::time::timeout;

/// A WebSocket echo service at `/ws`, with at most `max_sockets` open sockets.
///
/// A socket holds its slot until it is closed, or silent for a minute. When `stopping` becomes
/// true, all are closed with 1001; the channel is closed when the last one has ended.
pub fn echo(max_sockets: u32, stopping: watch::Receiver<bool>) -> Result<Router, PolicyErrors> {
    let slots = Slots::new(max_sockets.into()).queue(0).expires(FOR_EVER);
    let rule = Rule::builder("sockets", Limit::Slots(slots)).build();
    let sockets = StoreEngine::new(Policy::new([rule.expect("there is no pattern")])?);
    let detail = format!("all {max_sockets} sockets are open; try again later");
    let no_wait = PolicyLayer::new(sockets, "default")
        .expect("the domain of the rule above")
        .slots(Some(Duration::ZERO))
        .no_slot(detail, RETRY_AFTER);
    let upgrade = move |admission: Admission, upgrade: WebSocketUpgrade| {
        let open = OpenSocket { permit: admission.permit().cloned(), stopping: stopping.clone() };
        async { upgraded(upgrade, open) }
    };
    Ok(Router::new().route("/ws", any(upgrade)).route_layer(no_wait))
}

/// What an open socket holds.
struct OpenSocket {
    permit: Option<Permit>,
    stopping: watch::Receiver<bool>,
}

fn upgraded(upgrade: WebSocketUpgrade, open: OpenSocket) -> Response {
    upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .max_write_buffer_size(2 * MAX_MESSAGE_BYTES)
        .write_buffer_size(0)
        .on_upgrade(move |socket| echoed(socket, open))
}

/// Echoes messages until the socket is closed.
async fn echoed(mut socket: WebSocket, mut open: OpenSocket) {
    let close = loop {
        let received = tokio::select! {
            received = timeout(MAX_SILENCE, socket.recv()) => received,
            () = stops(&mut open.stopping) => break Some((close_code::AWAY, "stopping")),
        };
        let message = match received {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(error))) => break close_of(error),
            Ok(None) | Err(_) => break None,
        };
        let is_data = matches!(message, Message::Text(_) | Message::Binary(_));
        if is_data && !matches!(timeout(MAX_WRITE_TIME, socket.send(message)).await, Ok(Ok(()))) {
            break None;
        }
    };
    if let Some((code, reason)) = close {
        let close = CloseFrame { code, reason: reason.into() };
        let _ = timeout(MAX_WRITE_TIME, socket.send(Message::Close(Some(close)))).await;
    }
    drop(open.permit);
}

/// The close code for what the client sent, as the standard has it; `None` if it is gone.
fn close_of(error: axum::Error) -> Option<(CloseCode, &'static str)> {
    use tungstenite::Error;
    use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
    match *error.into_inner().downcast::<Error>().ok()? {
        Error::Protocol(ResetWithoutClosingHandshake) => None,
        Error::Protocol(_) => Some((close_code::PROTOCOL, "protocol error")),
        Error::Utf8(_) => Some((close_code::INVALID, "text is not UTF-8")),
        Error::Capacity(_) => Some((close_code::SIZE, "message too big")),
        _ => None,
    }
}

/// Waits until the service stops.
async fn stops(stopping: &mut watch::Receiver<bool>) {
    // An error would mean that the sender is gone.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

const MAX_MESSAGE_BYTES: usize = 65_536;

/// The maximum silence of a socket.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// The time-out of sending an echo.
const MAX_WRITE_TIME: Duration = Duration::from_secs(5);

/// When a client may try again that found no free socket.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A task releases its slot however it ends, so slots need no expiry.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
