//! Client of a daemon's local socket.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_proto::ipc::{self, Decoder};

use crate::call_error::CallError;
use crate::format;

/// A connection to a daemon.
pub(crate) struct SocketClient {
    path: PathBuf,
    stream: UnixStream,
    decoder: Decoder,
    unread: Vec<u8>,
}

impl SocketClient {
    /// Connects to the socket at a path, or to that of the user.
    pub(crate) fn connect(path: Option<&Path>) -> Result<Self, CallError> {
        let path = path.map_or_else(tidegate_server::default_socket, Path::to_owned);
        let stream = UnixStream::connect(&path).map_err(|error| connect_error(&path, &error))?;
        let both = stream
            .set_read_timeout(Some(RESPONSE_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(RESPONSE_TIMEOUT)));
        both.map_err(|error| io_error(&path, &error))?;
        Ok(Self { path, stream, decoder: Decoder::new(), unread: Vec::new() })
    }

    /// Sends a request and reads the response.
    pub(crate) fn call(&mut self, request: &Value) -> Result<Value, CallError> {
        let frame = ipc::encode(request).map_err(|error| {
            CallError::new(format!("the request is too large: {error}")).hint(
                "edit the daemon's policy file instead, or apply the policy over HTTP: use --at URL",
            )
        })?;
        // A daemon that closed the connection may have sent the reason first.
        let sent = self.stream.write_all(&frame);
        match self.next() {
            Err(_) if sent.is_err() => Err(io_error(&self.path, &ErrorKind::BrokenPipe.into())),
            response => response,
        }
    }

    /// Sends an admin request and reads the response, which may come in parts.
    pub(crate) fn admin(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, CallError> {
        let path = format!("/admin/v1/{path}");
        let mut response = self.call(
            &json!({ "type": "admin", "protocolVersion": 1, "method": method, "path": path, "body": body }),
        )?;
        let Some(first) = response["part"].as_str() else { return Ok(response) };
        let mut text = first.to_owned();
        while response["more"] == true {
            response = self.next()?;
            text.push_str(response["part"].as_str().unwrap_or_default());
        }
        let body: Value = serde_json::from_str(&text).map_err(|error| {
            CallError::new(format!("invalid response from the daemon: {error}"))
        })?;
        response["body"] = body;
        Ok(response)
    }

    fn next(&mut self) -> Result<Value, CallError> {
        let invalid = |error: ipc::IpcError| {
            CallError::new(format!("invalid response from {}: {error}", display_path(&self.path)))
        };
        loop {
            let mut input = &self.unread[..];
            let next = self.decoder.next(&mut input).map_err(invalid)?;
            self.unread = input.to_vec();
            if let Some(text) = next {
                return ipc::parse(&text).map_err(invalid);
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io_error(&self.path, &ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(io_error(&self.path, &error)),
            }
        }
    }
}

fn connect_error(path: &Path, error: &io::Error) -> CallError {
    let hint = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            "no daemon listens there; start one with `tidegate serve`, or give its socket with \
             --socket PATH"
        }
        ErrorKind::PermissionDenied => {
            "only root and the daemon's own user may connect; `unix_users` and `unix_groups` in \
             its [server] table give access to others"
        }
        _ => "give the daemon's socket with --socket PATH",
    };
    CallError::new(format!("cannot connect to {}: {error}", display_path(path))).hint(hint)
}

fn io_error(path: &Path, error: &io::Error) -> CallError {
    let why = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "timed out".into(),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => "connection closed".into(),
        _ => error.to_string(),
    };
    CallError::new(format!("no response from {}: {why}", display_path(path)))
}

fn display_path(path: &Path) -> String {
    format::visible(&path.to_string_lossy())
}

/// How long to wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
