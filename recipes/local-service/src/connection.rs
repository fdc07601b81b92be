use std::pin::pin;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_proto::ipc;
use tidegate_server::local::{Ended, FrameTimes, Frames, StopReceiving};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Next, PeerCredentials, Service};

/// The time-outs of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a frame to its last.
    pub frame: Duration,
    /// From the connection or the last response to the first byte of a frame.
    pub idle: Duration,
    /// For the client to read a response.
    pub write: Duration,
    /// For requests that have arrived when the service stops.
    pub close: Duration,
}

impl Default for Timeouts {
    /// 30 seconds for a frame and between frames, 10 for a response, 5 for the stop.
    fn default() -> Self {
        Self {
            frame: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            write: Duration::from_secs(10),
            close: Duration::from_secs(5),
        }
    }
}

impl Timeouts {
    const fn of_frames(self) -> FrameTimes {
        FrameTimes { frame: self.frame, idle: self.idle, write: self.write }
    }
}

/// Serves a peer's requests one after another, until either side ends the connection.
///
/// When `closing` is ready, the peer can send no more; the requests that have arrived by then get
/// their responses, and the connection ends.
pub async fn serve_connection<S, C>(
    stream: S,
    peer: &PeerCredentials,
    service: &Service<C>,
    timeouts: Timeouts,
    closing: impl Future<Output = ()>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + StopReceiving + Unpin,
    C: Clock + Send + Sync + 'static,
{
    let mut frames = Frames::new(stream, timeouts.of_frames());
    let mut closing = pin!(closing);
    let mut is_closing = false;
    loop {
        let frame = tokio::select! {
            biased;
            () = &mut closing, if !is_closing => {
                if let Err(error) = frames.stop_receiving() {
                    return Ended::Failed(error);
                }
                is_closing = true;
                continue;
            }
            frame = frames.next() => frame,
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(Ended::Left | Ended::LeftHalfway) if is_closing => return Ended::Stopping,
            Err(ended) => return ended,
        };
        let reply = service.handle(peer, frame.as_deref());
        // A response is far below the size of a frame.
        let Ok(bytes) = ipc::encode(&reply.response) else { return Ended::Dismissed };
        if let Err(ended) = frames.send(&bytes).await {
            return ended;
        }
        if reply.next == Next::Close {
            return Ended::Dismissed;
        }
    }
}
