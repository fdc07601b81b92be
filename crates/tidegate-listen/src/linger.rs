use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Closes a connection so that the peer can read what was sent: closing a socket with unread bytes
/// would reset it, and discard that.
///
/// What the peer still sends is read and discarded, for a second and up to 256 KiB at most.
pub async fn linger(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    let lingering = async {
        if io.shutdown().await.is_err() {
            return;
        }
        let (mut bytes, mut total) = ([0; 4_096], 0);
        while let Ok(read @ 1..) = io.read(&mut bytes).await {
            total += read;
            if total > LINGER_BYTES {
                return;
            }
        }
    };
    let _ = timeout(LINGER_TIME, lingering).await;
}

const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 << 10;
