//! Bytes in, bytes out, and how long either may take.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_proto::resp::{Arguments, Replies, Version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::input::{InputBuffer, TooLong};
use super::session::Session;
use crate::accept::{Connection, PeerStream};
use crate::settings::Bounds;

/// What a connection has to react to.
enum Event {
    /// This much has arrived.
    Bytes(usize),
    /// Some time has passed.
    Tick,
    /// The client has gone, or the daemon stops.
    End,
}

/// Answers commands until the client goes, is too slow, or the daemon stops.
pub(super) async fn serve(connection: Connection, mut session: Session, bounds: &Bounds) {
    let Connection { mut io, mut shutdown, permit, peer } = connection;
    let is_stopping = shutdown.clone();
    let mut stop = pin!(async move { shutdown.wanted().await });
    let (mut input, mut replies) = (InputBuffer::new(), Vec::new());
    let mut arguments = Arguments::default();
    let mut patience = IdleTimeouts::new(bounds);
    while !is_stopping.is_wanted() {
        let room = match input.spare(session.command_bytes_max()) {
            Ok(room) => room,
            Err(TooLong) => {
                let version = Version::Resp2;
                Replies::new(&mut replies, version).error("ERR", "Protocol error: too big command");
                let _ = write(&mut io, &mut replies, bounds.write_time).await;
                break;
            }
        };
        let event = poll_fn(|context| {
            if let Poll::Ready(event) = poll_read(&mut io, room, context) {
                return Poll::Ready(event);
            }
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::End);
            }
            patience.ticks.poll_tick(context).map(|_| Event::Tick)
        });
        match event.await {
            Event::Bytes(bytes) => {
                input.read(bytes);
                patience.silent_ticks = 0;
            }
            Event::Tick => {
                if patience.is_lost(&input) {
                    tracing::debug!(%peer, "let go of a client that was silent or too slow");
                    break;
                }
                input.rest();
                continue;
            }
            Event::End => break,
        }
        loop {
            let used = session.handle(&mut arguments, input.arrived(), &mut replies).await;
            input.answered(used);
            if used > 0 {
                patience.unfinished_ticks = 0;
            }
            if let Err(error) = write(&mut io, &mut replies, bounds.write_time).await {
                tracing::debug!(%peer, %error, "let go of a client that takes no replies");
                return;
            }
            if used == 0 || input.is_empty() || session.is_leaving() {
                break;
            }
        }
        if session.is_leaving() {
            break;
        }
    }
    let _ = timeout(LINGER, part(&mut io)).await;
    drop(permit);
}

/// Ends a connection. What the client is still sending is read and dropped: to close the socket at once
/// would make the system take back the last reply.
async fn part(io: &mut PeerStream) -> io::Result<()> {
    io.shutdown().await?;
    let mut dropped = [0; 512];
    while io.read(&mut dropped).await? > 0 {}
    Ok(())
}

fn poll_read(io: &mut PeerStream, room: &mut [u8], context: &mut Context<'_>) -> Poll<Event> {
    let mut buffer = ReadBuf::new(room);
    Pin::new(io).poll_read(context, &mut buffer).map(|result| match result {
        Ok(()) if !buffer.filled().is_empty() => Event::Bytes(buffer.filled().len()),
        _ => Event::End,
    })
}

/// Writes all replies. A client that does not take them in time is an error.
async fn write(io: &mut PeerStream, replies: &mut Vec<u8>, time: Duration) -> io::Result<()> {
    if replies.is_empty() {
        return Ok(());
    }
    // Nearly always the socket takes all of it at once, and there is nothing to wait for.
    let at_once =
        poll_fn(|context| Poll::Ready(Pin::new(&mut *io).poll_write(context, replies))).await;
    let written = match at_once {
        Poll::Ready(result) => result?,
        Poll::Pending => 0,
    };
    if written < replies.len() {
        timeout(time, io.write_all(&replies[written..]))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
    replies.clear();
    replies.shrink_to(REPLIES_BYTES_KEPT);
    Ok(())
}

/// How long a client may be silent, and how long it may take over one command.
///
/// Counted in ticks, so that nobody reads a clock for a command: a time is over a little late, never
/// early.
struct IdleTimeouts {
    ticks: Interval,
    silent_ticks: u32,
    silent_ticks_max: u32,
    unfinished_ticks: u32,
    unfinished_ticks_max: u32,
}

impl IdleTimeouts {
    fn new(bounds: &Bounds) -> Self {
        let tick = (bounds.idle_time.min(bounds.request_time) / 4).max(Duration::from_millis(1));
        let mut ticks = interval(tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick may come at once.
        let ticks_in = |time: Duration| {
            u32::try_from(time.as_nanos().div_ceil(tick.as_nanos()) + 1).unwrap_or(u32::MAX)
        };
        Self {
            ticks,
            silent_ticks: 0,
            silent_ticks_max: ticks_in(bounds.idle_time),
            unfinished_ticks: 0,
            unfinished_ticks_max: ticks_in(bounds.request_time),
        }
    }

    /// Counts a tick, and tells whether it was the last.
    fn is_lost(&mut self, input: &InputBuffer) -> bool {
        self.silent_ticks += 1;
        self.unfinished_ticks = if input.is_empty() { 0 } else { self.unfinished_ticks + 1 };
        self.silent_ticks >= self.silent_ticks_max
            || self.unfinished_ticks >= self.unfinished_ticks_max
    }
}

/// How long the end of a connection may take.
const LINGER: Duration = Duration::from_millis(100);
/// Memory for replies that is kept from one batch to the next.
const REPLIES_BYTES_KEPT: usize = 64 << 10;
