//! The `ping` command.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tidegate_proto::ipc::{self, Decoder, Request, Response};

use crate::args::{Format, PingArgs};

/// The numbers of successful and denied pings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) succeeded: u32,
    pub(crate) denied: u32,
}

/// Sends pings one after another over one connection, and prints the responses.
pub(crate) fn ping(args: &PingArgs, out: &mut dyn Write) -> io::Result<Tally> {
    let mut caller = PingClient::connect(&args.socket, args.timeout)?;
    let mut tally = Tally::default();
    for number in 1..=args.count {
        let text = caller.call(&Request::new("ping"))?;
        let response = ipc::parse::<Response>(&text).map_err(io::Error::other)?;
        if args.format == Format::Json {
            writeln!(out, "{text}")?;
        }
        let line = match response {
            Response::Ok(pong) => {
                tally.succeeded += 1;
                format!("ok: version {}, {}", pong.service_version, pong.time)
            }
            Response::Error(failure) => {
                tally.denied += 1;
                let limit = failure.limit.map(|limit| format!("limit {limit}"));
                let retry = failure.retry_after_ms.map(|ms| format!("retry in {ms} ms"));
                let more: Vec<String> = limit.into_iter().chain(retry).collect();
                let more =
                    if more.is_empty() { more.concat() } else { format!(" ({})", more.join(", ")) };
                format!("denied: {}{more}", failure.error)
            }
        };
        if args.format == Format::Text {
            writeln!(out, "{number}: {}", line.escape_debug())?;
        }
    }
    Ok(tally)
}

/// A connection that sends requests and waits for their responses.
struct PingClient {
    stream: UnixStream,
    decoder: Decoder,
}

impl PingClient {
    fn connect(socket: &Path, max_wait: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(max_wait))?;
        stream.set_write_timeout(Some(max_wait))?;
        Ok(Self { stream, decoder: Decoder::new() })
    }

    /// The text of the response to a request.
    fn call(&mut self, request: &Request) -> io::Result<String> {
        let bytes = ipc::encode(request).map_err(io::Error::other)?;
        let sent = self.stream.write_all(&bytes);
        // A connection that was turned away still has its response to read.
        if let Err(error) = &sent
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            sent?;
        }
        let mut buffer = [0; 1024];
        loop {
            let count = match self.stream.read(&mut buffer) {
                // A read with a time-out is not restarted automatically.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if count == 0 {
                let message = "the service closed the connection";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
            let mut input = &buffer[..count];
            // One response per request: nothing follows it.
            if let Some(text) = self.decoder.next(&mut input).map_err(io::Error::other)? {
                return Ok(text);
            }
        }
    }
}
