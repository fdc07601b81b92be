//! Time-outs of slow clients, in paused time.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate_local_service::{Ended, Limits, StopReceiving, Timeouts, serve_connection};
use tidegate_proto::ipc::{FRAME_BYTES_MAX, encode_text};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::harness::{PING, Running, START, peer, service};

const SECOND: Duration = Duration::from_secs(1);

/// A connection to a service; `room` is how many bytes of a response fit.
struct TestConnection {
    stream: DuplexStream,
    ended: JoinHandle<Ended>,
    closing: watch::Sender<bool>,
    began: Instant,
}

/// A stream in memory. A Unix socket would do, but paused time passes while its bytes travel.
struct Endable {
    stream: DuplexStream,
    has_ended: AtomicBool,
}

impl StopReceiving for Endable {
    fn stop_receiving(&self) -> io::Result<()> {
        self.has_ended.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl AsyncRead for Endable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending if self.has_ended.load(Ordering::Relaxed) => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl AsyncWrite for Endable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl TestConnection {
    fn new(room: usize) -> Self {
        let (stream, other) = duplex(room);
        let (closing, mut is_closing) = watch::channel(false);
        let began = Instant::now();
        let ended = tokio::spawn(async move {
            let policy = Limits::default().policy().unwrap();
            let service = service(policy, &ManualClock::new(START));
            let other = Endable { stream: other, has_ended: AtomicBool::new(false) };
            let closing = async { drop(is_closing.wait_for(|is_closing| *is_closing).await) };
            serve_connection(other, &peer("ada"), &service, Timeouts::default(), closing).await
        });
        Self { stream, ended, closing, began }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn ping(&mut self) {
        self.send(&encode_text(PING).unwrap()).await;
        self.response().await;
    }

    async fn response(&mut self) {
        let length = self.stream.read_u32_le().await.unwrap();
        let mut body = vec![0; length.try_into().unwrap()];
        self.stream.read_exact(&mut body).await.unwrap();
    }

    /// How the connection ended, and after how long.
    async fn ended(self) -> (Ended, Duration) {
        let ended = self.ended.await.unwrap();
        (ended, self.began.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn frame_has_thirty_seconds() {
    let mut line = TestConnection::new(1 << 20);
    line.send(&encode_text(PING).unwrap()[..7]).await;
    let (ended, after) = line.ended().await;
    assert!(matches!(ended, Ended::SlowFrame), "{ended:?}");
    assert_eq!(after, 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn sending_byte_by_byte_does_not_extend_the_time() {
    let mut line = TestConnection::new(1 << 20);
    line.send(&u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes()).await;
    while !line.ended.is_finished() {
        // It may have been closed already.
        let _ = line.stream.write_all(b" ").await;
        sleep(SECOND).await;
    }
    let (ended, after) = line.ended().await;
    assert!(matches!(ended, Ended::SlowFrame), "{ended:?}");
    assert!(after <= 31 * SECOND, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn frame_within_the_time_is_served() {
    let mut line = TestConnection::new(1 << 20);
    let frame = encode_text(PING).unwrap();
    sleep(29 * SECOND).await;
    line.send(&frame[..3]).await;
    sleep(29 * SECOND).await;
    line.send(&frame[3..]).await;
    assert!(line.stream.read_u32_le().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_closed() {
    let line = TestConnection::new(1 << 20);
    let (ended, after) = line.ended().await;
    assert!(matches!(ended, Ended::Idle), "{ended:?}");
    assert_eq!(after, 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn connection_with_occasional_pings_stays() {
    let mut line = TestConnection::new(1 << 20);
    for _ in 0..100 {
        line.ping().await;
        sleep(29 * SECOND).await;
    }
    line.ping().await;
    let began = Instant::now();
    let (ended, _) = line.ended().await;
    assert!(matches!(ended, Ended::Idle), "{ended:?}");
    assert_eq!(began.elapsed(), 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_is_dropped() {
    let mut line = TestConnection::new(64);
    line.send(&encode_text(PING).unwrap()).await;
    let (ended, after) = line.ended().await;
    assert!(matches!(ended, Ended::SlowReader), "{ended:?}");
    assert_eq!(after, 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn shutdown_closes_idle_connections_at_once() {
    let mut line = TestConnection::new(1 << 20);
    line.ping().await;
    line.closing.send_replace(true);
    let (ended, after) = line.ended().await;
    assert!(matches!(ended, Ended::Stopping), "{ended:?}");
    assert_eq!(after, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn shutdown_serves_requests_that_have_arrived() {
    let mut line = TestConnection::new(1 << 20);
    line.send(&encode_text(PING).unwrap().repeat(3)).await;
    line.closing.send_replace(true);
    for _ in 0..3 {
        line.response().await;
    }
    let (ended, after) = line.ended().await;
    assert!(matches!(ended, Ended::Stopping), "{ended:?}");
    assert_eq!(after, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn close_within_a_frame_is_distinguished() {
    let frame = encode_text(PING).unwrap();
    for (bytes, is_halfway) in [(&frame[..0], false), (&frame[..2], true), (&frame[..9], true)] {
        let mut line = TestConnection::new(1 << 20);
        line.send(bytes).await;
        line.stream.shutdown().await.unwrap();
        let (ended, _) = line.ended().await;
        assert_eq!(matches!(ended, Ended::LeftHalfway), is_halfway, "{ended:?}");
        assert_eq!(matches!(ended, Ended::Left), !is_halfway, "{ended:?}");
    }
}

/// The same over a real socket, with short times.
#[test]
fn time_settings_are_applied() {
    let running = Running::start(&["--frame-timeout", "50ms", "--idle-timeout", "60ms"]);
    let mut slow = running.call();
    slow.send_bytes(&encode_text(PING).unwrap()[..7]);
    assert_eq!(slow.next(), None);
    running.wait_for("ended: SlowFrame", 1);
    let mut silent = running.call();
    assert_eq!(silent.next(), None);
    running.wait_for("ended: Idle", 1);
}
