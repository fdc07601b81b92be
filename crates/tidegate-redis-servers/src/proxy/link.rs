//! One connection through a proxy.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use socket2::SockRef;

use super::{Cut, Fault};
use crate::resp::{Frame, FrameScanner};

/// Which replies are to be lost, over all connections.
#[derive(Debug, Default)]
pub(super) struct LostReplies {
    /// Empty: any.
    command: String,
    left: u32,
    lost: u64,
}

impl LostReplies {
    pub(super) fn expect(&mut self, command: String, count: u32) {
        (self.command, self.left) = (command, count);
    }

    /// How many were lost.
    pub(super) const fn count(&self) -> u64 {
        self.lost
    }

    /// Whether the reply to this request is to be lost.
    fn takes(&mut self, command: &[u8]) -> bool {
        let is_expected =
            self.command.is_empty() || command.eq_ignore_ascii_case(self.command.as_bytes());
        let takes = self.left > 0 && is_expected;
        self.left -= u32::from(takes);
        takes
    }
}

/// A connection of a client, and the one to the server behind it.
#[derive(Debug)]
pub(super) struct Link {
    client: TcpStream,
    /// None until bytes may pass.
    server: Option<TcpStream>,
    target: SocketAddr,
    requests: Pipe,
    replies: Pipe,
    requests_seen: u64,
    replies_seen: u64,
    /// The number of the request whose reply is to be lost.
    losing: Option<u64>,
    has_discarded: bool,
    is_over: bool,
}

impl Link {
    pub(super) fn new(client: TcpStream, target: SocketAddr) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        client.set_nodelay(true)?;
        Ok(Self {
            client,
            server: None,
            target,
            requests: Pipe::new(),
            replies: Pipe::new(),
            requests_seen: 0,
            replies_seen: 0,
            losing: None,
            has_discarded: false,
            is_over: false,
        })
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether bytes are missing, so that it can never pass again.
    pub(super) const fn has_discarded(&self) -> bool {
        self.has_discarded
    }

    /// Ends both connections.
    pub(super) fn cut(self, how: Cut) {
        if how == Cut::Reset {
            for stream in [Some(&self.client), self.server.as_ref()].into_iter().flatten() {
                let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
            }
        }
        // Bytes that were not read would make a reset of it.
        let streams = [Some(&self.client), self.server.as_ref()].into_iter().flatten();
        for mut stream in streams.filter(|_| how == Cut::Close) {
            let mut bytes = [0; CHUNK_BYTES];
            let most = BUFFER_BYTES_MAX / CHUNK_BYTES;
            let _ = (0..most).all(|_| stream.read(&mut bytes).is_ok_and(|count| count > 0));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Bytes that wait for the end of a delay do not wait for longer than the new one.
    pub(super) fn change_fault(&mut self, fault: Fault, now: Instant) {
        let latest = now + delay(fault);
        for (due, _) in self.requests.queue.iter_mut().chain(&mut self.replies.queue) {
            *due = latest.min(*due);
        }
    }

    /// How long the next bytes wait for the end of their delay, if some do.
    pub(super) fn delay_left(&self, fault: Fault, now: Instant) -> Option<Duration> {
        let fronts = [self.requests.queue.front(), self.replies.queue.front()];
        let dues = fronts.into_iter().flatten().map(|(due, _)| *due);
        let left = dues.map(|due| due.saturating_duration_since(now));
        left.filter(|left| fault != Fault::Hold && !left.is_zero()).min()
    }

    /// What to wait for at each end.
    pub(super) fn interests(
        &self,
        fault: Fault,
        now: Instant,
    ) -> impl Iterator<Item = (&TcpStream, PollFlags)> {
        let wants = |from: &Pipe, to: &Pipe| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, from.can_read() && !self.is_losing_end());
            flags.set(PollFlags::POLLOUT, to.is_due(now));
            if fault == Fault::Hold { PollFlags::empty() } else { flags }
        };
        let server = self.server.as_ref();
        let server = server.map(|server| (server, wants(&self.replies, &self.requests)));
        std::iter::once((&self.client, wants(&self.requests, &self.replies))).chain(server)
    }

    /// Whether only earlier replies are still to be written.
    const fn is_losing_end(&self) -> bool {
        match self.losing {
            Some(number) => self.replies_seen >= number,
            None => false,
        }
    }

    /// Moves all bytes that may pass now. An error of either end is the end of both.
    pub(super) fn move_bytes(&mut self, fault: Fault, lost: &mut LostReplies, now: Instant) {
        let result = match fault {
            Fault::Hold => Ok(()),
            Fault::Discard => self.discard(),
            Fault::Pass | Fault::Refuse | Fault::Delay(_) => {
                self.pass(now, now + delay(fault), lost)
            }
        };
        self.is_over |= result.is_err();
    }

    fn discard(&mut self) -> io::Result<()> {
        for queue in [&mut self.requests, &mut self.replies] {
            self.has_discarded |= !queue.queue.is_empty();
            queue.clear();
        }
        for mut stream in [Some(&self.client), self.server.as_ref()].into_iter().flatten() {
            let mut bytes = [0; CHUNK_BYTES];
            loop {
                match stream.read(&mut bytes) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => self.has_discarded = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, now: Instant, due: Instant, lost: &mut LostReplies) -> io::Result<()> {
        let server = match self.server.take() {
            Some(server) => server,
            None => connect(self.target)?,
        };
        let server = self.server.insert(server);
        if self.losing.is_none_or(|number| self.replies_seen < number) {
            let (scanned, losing) = (&mut self.requests_seen, &mut self.losing);
            self.requests.read(&self.client, due, |scanner, bytes| {
                scan_requests(scanner, bytes, scanned, |number, name| {
                    if losing.is_none() && lost.takes(name) {
                        *losing = Some(number);
                    }
                });
                bytes.len()
            })?;
            let (seen, losing) = (&mut self.replies_seen, self.losing);
            let before = *seen;
            self.replies
                .read(server, due, |scanner, bytes| scan_replies(scanner, bytes, seen, losing))?;
            let is_lost = losing.is_some_and(|number| before < number && *seen >= number);
            lost.lost += u64::from(is_lost);
        }
        self.requests.write(server, now)?;
        self.replies.write(&self.client, now)?;
        let is_lost = self.is_losing_end() && self.replies.queue.is_empty();
        self.is_over |= is_lost || (self.requests.is_over && self.replies.is_over);
        Ok(())
    }
}

const fn delay(fault: Fault) -> Duration {
    match fault {
        Fault::Delay(delay) => delay,
        _ => Duration::ZERO,
    }
}

fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let server = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT)?;
    server.set_nonblocking(true)?;
    server.set_nodelay(true)?;
    Ok(server)
}

/// Counts requests, and reports the number and the command of each.
fn scan_requests(
    scanner: &mut FrameScanner,
    mut bytes: &[u8],
    seen: &mut u64,
    mut report: impl FnMut(u64, &[u8]),
) {
    while !bytes.is_empty() {
        let (used, frame) = scanner.read(bytes);
        bytes = &bytes[used..];
        if let Some(Frame::Value { name }) = frame {
            *seen += 1;
            report(*seen, &name);
        }
    }
}

/// Counts replies, and returns how many bytes come before the one that is to be lost.
fn scan_replies(
    scanner: &mut FrameScanner,
    bytes: &[u8],
    seen: &mut u64,
    losing: Option<u64>,
) -> usize {
    let (mut read, mut passing) = (0, 0);
    while read < bytes.len() {
        let is_passing = losing.is_none_or(|number| *seen + 1 < number);
        let (used, frame) = scanner.read(&bytes[read..]);
        read += used;
        if is_passing {
            passing = read;
        }
        *seen += u64::from(matches!(frame, Some(Frame::Value { .. })));
    }
    passing
}

/// The bytes of one direction that are on their way.
#[derive(Debug)]
struct Pipe {
    /// When each piece may pass, in order.
    queue: VecDeque<(Instant, VecDeque<u8>)>,
    queued_bytes: usize,
    scanner: FrameScanner,
    /// Whether the sending side has ended.
    has_ended: bool,
    /// Whether the receiving side knows it.
    is_over: bool,
}

impl Pipe {
    const fn new() -> Self {
        let scanner = FrameScanner::new();
        Self { queue: VecDeque::new(), queued_bytes: 0, scanner, has_ended: false, is_over: false }
    }

    const fn can_read(&self) -> bool {
        !self.has_ended && self.queued_bytes < BUFFER_BYTES_MAX
    }

    fn is_due(&self, now: Instant) -> bool {
        self.queue.front().is_some_and(|(due, _)| *due <= now)
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.queued_bytes = 0;
    }

    /// Reads what there is. `scan` returns how many of the bytes pass.
    fn read(
        &mut self,
        mut from: &TcpStream,
        due: Instant,
        mut scan: impl FnMut(&mut FrameScanner, &[u8]) -> usize,
    ) -> io::Result<()> {
        while self.can_read() {
            let mut bytes = [0; CHUNK_BYTES];
            let room = CHUNK_BYTES.min(BUFFER_BYTES_MAX - self.queued_bytes);
            match from.read(&mut bytes[..room]) {
                Ok(0) => self.has_ended = true,
                Ok(count) => {
                    let passing = scan(&mut self.scanner, &bytes[..count]);
                    if passing > 0 {
                        self.queue.push_back((due, bytes[..passing].to_vec().into()));
                        self.queued_bytes += passing;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what is due, then the end.
    fn write(&mut self, mut to: &TcpStream, now: Instant) -> io::Result<()> {
        while let Some((_, bytes)) = self.queue.front_mut().filter(|(due, _)| *due <= now) {
            match to.write(bytes.as_slices().0) {
                Ok(count) => {
                    bytes.drain(..count);
                    self.queued_bytes -= count;
                    if bytes.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.has_ended && self.queue.is_empty() && !self.is_over {
            self.is_over = true;
            to.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }
}

const CHUNK_BYTES: usize = 16 << 10;
const BUFFER_BYTES_MAX: usize = 64 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
