//! A daemon in this process, and clients of it.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::Policy;
use tidegate_proto::ipc::{Decoder, encode_text};
use tidegate_server::{Listener, Server, Settings, StartError};
use tokio::runtime::Runtime;

use crate::openapi::{Exchange, assert_documented};

/// The time-out of a client: longer than any test needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Two per hour and user.
pub(crate) const POLICY: &str = r#"
[[rule]]
name   = "per-user"
key    = ["user"]
window = { max = 2, per = "1h" }
"#;

/// A temporary folder. Socket paths must be short, so it is not in the target folder.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tgs-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a token file: secrets, each with the other fields of its token.
    pub(crate) fn tokens(&self, tokens: &[(&str, &str)]) -> PathBuf {
        let path = self.0.join("tokens.toml");
        // As deployments do it.
        let new = self.0.join("tokens.new");
        fs::write(&new, token_file(tokens)).unwrap();
        fs::rename(&new, &path).unwrap();
        path
    }

    /// A path in a folder that does not exist yet.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("run/s.sock")
    }
}

/// The text of a token file: secrets, each with the other fields of its token.
pub(crate) fn token_file(tokens: &[(&str, &str)]) -> String {
    let entry = |(secret, fields): &(&str, &str)| {
        let digest = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[token]]\nsha256 = '{hex}'\n{fields}\n")
    };
    tokens.iter().map(entry).collect()
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A daemon with all listeners, in this process.
pub(crate) struct Running {
    pub(crate) folder: Folder,
    server: Option<Server>,
    runtime: Runtime,
}

impl Running {
    pub(crate) fn start(policy: &str) -> Self {
        Self::start_with(policy, |settings| settings).unwrap()
    }

    /// Starts with changed settings.
    pub(crate) fn start_with(
        policy: &str,
        change: impl FnOnce(Settings) -> Settings,
    ) -> Result<Self, StartError> {
        Self::start_in(Folder::new(), policy, change)
    }

    /// Starts with a token file: secrets, each with the other fields of its token.
    pub(crate) fn start_with_tokens(policy: &str, tokens: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let path = folder.tokens(tokens);
        Self::start_in(folder, policy, |settings| settings.tokens(path)).unwrap()
    }

    pub(crate) fn start_in(
        folder: Folder,
        policy: &str,
        change: impl FnOnce(Settings) -> Settings,
    ) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let file = Policy::parse("policy.toml", policy.as_bytes()).unwrap();
        let settings =
            Settings::on_free_ports(file).listen(Listener::Unix, folder.socket().to_str());
        let server = runtime.block_on(Server::start(change(settings)))?;
        Ok(Self { folder, server: Some(server), runtime })
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.server().address(Listener::Admin).unwrap()
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::connect(&self.folder.socket())
    }

    /// Sends a request to the admin listener, without a token.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> HttpReply {
        ask(self.admin(), method, path, &[], body)
    }

    /// The same with a token.
    pub(crate) fn ask_as(&self, token: &str, method: &str, path: &str, body: &str) -> HttpReply {
        let token = format!("Bearer {token}");
        ask(self.admin(), method, path, &[("Authorization", &token)], body)
    }

    /// The body of a response of the admin listener, which must be a 200.
    #[track_caller]
    pub(crate) fn admin_ok(&self, method: &str, path: &str, body: &str) -> Value {
        let reply = self.ask(method, path, body);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Repeats a check until it holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    // Each check is a round trip to the daemon, so this is no busy loop; the number of rounds is
    // bounded.
    let rounds = 200_000;
    assert!((0..rounds).any(|_| holds()), "never: {what}");
}

/// A response of HTTP.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpReply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn with(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// Sends one request of HTTP on a connection of its own, and compares the response with the OpenAPI
/// document.
#[track_caller]
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpReply {
    let reply = ask_undocumented(address, method, path, headers, body);
    let content_type = reply.head.lines().find_map(|line| line.strip_prefix("content-type: "));
    let (status, body) = (reply.status, reply.body.as_bytes());
    assert_documented(Exchange { method, target: path, status, content_type, body });
    reply
}

/// The same for a response that is not of the operation: the listener speaks TLS.
pub(crate) fn ask_undocumented(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpReply {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        head.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    let response = exchange(address, format!("{head}{body}").as_bytes(), Ending::Wait);
    let response = String::from_utf8(response).unwrap();
    let (head, body) =
        response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {response:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    HttpReply { status, head: head.to_ascii_lowercase(), body: body.into() }
}

/// What happens after everything is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The daemon closes after its response.
    Wait,
    /// This side closes its half of the connection.
    Close,
}

/// Sends bytes, and reads until the daemon closes.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8], ending: Ending) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes);
    if ending == Ending::Close {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut response = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return response,
            Ok(count) => response.extend(&buffer[..count]),
            // The daemon closed it with unread input.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return response,
            Err(error) => panic!("no response: {error}"),
        }
    }
}

/// A client of the local socket.
pub(crate) struct Caller {
    pub(crate) stream: UnixStream,
    decoder: Decoder,
    unread: Vec<u8>,
}

impl Caller {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, decoder: Decoder::new(), unread: Vec::new() }
    }

    /// Sends bytes; errors of a closed connection are ignored.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next response; `None` if the daemon has closed the connection.
    pub(crate) fn next(&mut self) -> Option<String> {
        loop {
            let mut input = &self.unread[..];
            let next = self.decoder.next(&mut input).unwrap();
            self.unread = input.to_vec();
            if next.is_some() {
                return next;
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.unread.extend(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no response: {error}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.send_bytes(&encode_text(&request.to_string()).unwrap());
        serde_json::from_str(&self.next().expect("a response")).unwrap()
    }

    #[track_caller]
    pub(crate) fn admin(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/admin/v1/{path}");
        self.ask(&json!({ "type": "admin", "method": method, "path": path, "body": body }))
    }
}

/// A ping of the current version.
pub(crate) fn ping() -> Value {
    json!({ "type": "ping", "protocolVersion": 1 })
}
