use std::time::Duration;

use tidegate::Clock;
use tidegate_proto::ipc;
use tidegate_server::local::{Ended, FrameTimes, Frames};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::{Next, PeerCredentials, Service};

/// How long a connection may take for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a frame to its last.
    pub frame: Duration,
    /// From the connection or the last answer to the first byte of a frame.
    pub idle: Duration,
    /// For taking an answer.
    pub write: Duration,
    /// For what has arrived when the service ends.
    pub close: Duration,
}

impl Default for Timeouts {
    /// 30 seconds for a frame and between frames, 10 for an answer, 5 for the end.
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

/// Serves a peer's requests one after another, until either has had enough.
///
/// When `closing` turns true it ends as soon as nothing more has arrived.
pub async fn serve_connection<S, C>(
    stream: S,
    peer: &PeerCredentials,
    service: &Service<C>,
    timeouts: Timeouts,
    mut closing: watch::Receiver<bool>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Clock + Send + Sync + 'static,
{
    let mut frames = Frames::new(stream, timeouts.of_frames());
    loop {
        let frame = tokio::select! {
            // A request that has arrived is answered even then.
            biased;
            frame = frames.next() => frame,
            _ = closing.wait_for(|is_closing| *is_closing) => return Ended::Stopping,
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(ended) => return ended,
        };
        let reply = service.handle(peer, frame.as_deref());
        // An answer is far below the size of a frame.
        let Ok(bytes) = ipc::encode(&reply.response) else { return Ended::Dismissed };
        if let Err(ended) = frames.send(&bytes).await {
            return ended;
        }
        if reply.next == Next::Close {
            return Ended::Dismissed;
        }
    }
}
