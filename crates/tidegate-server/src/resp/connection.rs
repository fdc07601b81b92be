//! The loop of a connection: reads, writes and time-outs.

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
use crate::settings::Bounds;
use tidegate_listen::{BudgetKind, Connection, PeerStream, Permit, ReadGate};

/// An event of a connection.
enum Event {
    /// This many bytes have arrived.
    Bytes(usize),
    /// A tick of the time-outs.
    Tick,
    /// The client has closed the connection, or the daemon stops.
    End,
}

/// Serves the connection until the client closes it, a time-out expires, or shutdown begins.
pub(super) async fn serve(connection: Connection, mut session: Session, bounds: &Bounds) {
    let Connection { mut io, mut shutdown, permit, peer, .. } = connection;
    let is_stopping = shutdown.clone();
    let mut stop = pin!(async move { shutdown.wanted().await });
    let (mut input, mut replies) = (InputBuffer::new(), Vec::new());
    let mut arguments = Arguments::default();
    let (mut timeouts, mut gate) = (IdleTimeouts::new(bounds), ReadGate::default());
    while !is_stopping.is_wanted() {
        let room = match input.spare(session.command_bytes_max()) {
            Ok(room) => room,
            Err(TooLong) => {
                reject_too_long(&mut io, &mut replies, bounds.write_time).await;
                break;
            }
        };
        let event = poll_fn(|context| {
            if gate.poll_open(&permit, context).is_ready()
                && let Poll::Ready(event) = poll_read(&mut io, room, context)
            {
                return Poll::Ready(event);
            }
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::End);
            }
            timeouts.ticks.poll_tick(context).map(|_| Event::Tick)
        });
        match event.await {
            Event::Bytes(bytes) => {
                input.read(bytes);
                timeouts.silent_ticks = 0;
                hold(&permit, &input, &session, &replies);
            }
            Event::Tick => {
                if timeouts.is_expired(&input) {
                    tracing::debug!(listener = "resp", %peer, "connection closed: time-out");
                    break;
                }
                input.shrink();
                replies = Vec::new();
                hold(&permit, &input, &session, &replies);
                continue;
            }
            Event::End => break,
        }
        permit.begin_request();
        loop {
            let used = session.handle(&mut arguments, input.arrived(), &mut replies).await;
            input.consume(used);
            if used > 0 {
                timeouts.unfinished_ticks = 0;
            }
            hold(&permit, &input, &session, &replies);
            if let Err(error) = write(&mut io, &mut replies, bounds.write_time).await {
                tracing::debug!(listener = "resp", %peer, %error, "connection closed: the client reads no replies");
                return;
            }
            let has_more = session.is_executing() || (used > 0 && !input.is_empty());
            if !has_more || session.is_leaving() {
                break;
            }
        }
        hold(&permit, &input, &session, &replies);
        permit.end_request();
        if session.is_leaving() {
            break;
        }
    }
    let _ = timeout(LINGER, close(&mut io)).await;
    drop(permit);
}

/// Counts the memory of a connection beyond that of an idle one.
fn hold(permit: &Permit, input: &InputBuffer, session: &Session, replies: &Vec<u8>) {
    permit.hold(BudgetKind::Received, input.extra_bytes() + session.queued_bytes());
    permit.hold(BudgetKind::Unsent, replies.capacity());
}

/// Closes a connection. Further input is read and dropped: closing the socket with unread input
/// would make the system discard the last reply.
async fn close(io: &mut PeerStream) -> io::Result<()> {
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

async fn reject_too_long(io: &mut PeerStream, replies: &mut Vec<u8>, time: Duration) {
    Replies::new(replies, Version::Resp2).error("ERR", "Protocol error: too big command");
    // The connection is closed after it.
    let _ = write(io, replies, time).await;
}

/// Writes all replies. Fails if the client does not read them in time.
async fn write(io: &mut PeerStream, replies: &mut Vec<u8>, time: Duration) -> io::Result<()> {
    if replies.is_empty() {
        return Ok(());
    }
    // Nearly always the socket accepts all of it at once, without a wait.
    let mut written = 0;
    let at_once = poll_fn(|context| {
        let write = Pin::new(&mut *io).poll_write(context, replies);
        Poll::Ready(match write {
            Poll::Ready(Ok(count)) => {
                written = count;
                // TLS may hold a part of it.
                Pin::new(&mut *io).poll_flush(context)
            }
            write => write.map_ok(|_| ()),
        })
    });
    let is_sent = match at_once.await {
        Poll::Ready(result) => result.map(|()| written == replies.len())?,
        Poll::Pending => false,
    };
    if !is_sent {
        let rest = async {
            io.write_all(&replies[written..]).await?;
            io.flush().await
        };
        timeout(time, rest).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
    replies.clear();
    replies.shrink_to(REPLIES_BYTES_KEPT);
    Ok(())
}

/// The time-outs of a connection: for silence, and for one command.
///
/// Counted in ticks, so that no command reads a clock: a time-out may be a little late, never
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

    /// Counts a tick, and returns whether a time-out has expired.
    fn is_expired(&mut self, input: &InputBuffer) -> bool {
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
