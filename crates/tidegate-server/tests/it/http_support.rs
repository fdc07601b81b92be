//! A daemon in this process, and a minimal HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tidegate::policy::Policy;
use tidegate_server::{Bounds, Listener, Server, Settings};
use tokio::runtime::Runtime;

use crate::openapi::{Exchange, assert_documented};

/// A daemon that runs until this is dropped.
pub(crate) struct Running {
    server: Option<Server>,
    runtime: Runtime,
}

impl Running {
    pub(crate) fn new(policy: &str) -> Self {
        Self::with(policy, |_| {})
    }

    /// A daemon with changed bounds.
    pub(crate) fn with(policy: &str, change: impl FnOnce(&mut Bounds)) -> Self {
        let file = Policy::parse("policy.toml", policy.as_bytes()).unwrap();
        let mut bounds = Bounds::default();
        change(&mut bounds);
        Self::start(Settings::on_free_ports(file).bounds(bounds))
    }

    pub(crate) fn start(settings: Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let server = Some(runtime.block_on(Server::start(settings)).unwrap());
        Self { server, runtime }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().address(Listener::Http).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address())
    }

    /// The response to one request, over a connection of its own.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.client().post(path, body)
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.client().ask("GET", path, &[], b"")
    }

    /// Stops the daemon in the background.
    pub(crate) fn stop(&mut self) -> tokio::task::JoinHandle<()> {
        self.runtime.spawn(self.server.take().unwrap().stop())
    }

    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

/// A daemon in a process of its own, so that its memory can be measured apart from the test's.
pub(crate) struct Apart {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Apart {
    pub(crate) fn new(name: &str, policy: &str) -> Self {
        Self::behind(Listener::Http, name, policy)
    }

    /// A daemon with another listener, in a folder of its own. The policy may begin with further
    /// fields of its table `[server]`.
    pub(crate) fn behind(listener: Listener, name: &str, policy: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("policy.toml");
        let mut server = String::from("[server]\n");
        for it in [Listener::Http, Listener::Grpc, Listener::Resp, Listener::Admin] {
            let address = if it == listener { "127.0.0.1:0" } else { "off" };
            server += &format!("{it} = \"{address}\"\n");
        }
        std::fs::write(&file, format!("{server}{policy}")).unwrap();
        // Without SIGXFSZ a file at its limit is an error, and does not end the process.
        let mut process = Command::new("sh")
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$1\""])
            .args([&example("serve"), &file])
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = BufReader::new(process.stdout.take().unwrap()).lines().next();
        let line = line.expect("it prints its address").unwrap();
        let address = line.strip_prefix(&format!("{listener} ")).unwrap().parse().unwrap();
        Self { process, address, folder }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Limits the size of its files.
    pub(crate) fn limit_files(&self, most: &str) {
        let process = format!("--pid={}", self.process.id());
        let done = Command::new("prlimit").args([process, format!("--fsize={most}:")]).status();
        assert!(done.unwrap().success());
    }

    /// Its resident memory.
    pub(crate) fn resident_kb(&self) -> u64 {
        self.memory_kb("VmRSS:")
    }

    /// The peak of its resident memory.
    pub(crate) fn most_resident_kb(&self) -> u64 {
        self.memory_kb("VmHWM:")
    }

    fn memory_kb(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // It may have ended already; the test has noticed then.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The path of an example of this crate, which is built together with the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let program = exe.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is missing: run `cargo build --examples`", program.display());
    program
}

/// A connection of a client.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // So that a failed test ends.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes; false if the connection is closed.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Closes this half of the connection.
    pub(crate) fn finish(&self) {
        // The daemon may have closed it already.
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// Everything until the daemon closes the connection, which it must.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the connection stays open")
            }
            _ => rest,
        }
    }

    /// Whether any byte of a response has arrived.
    pub(crate) fn has_response(&self) -> bool {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).unwrap();
        let has_response = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        has_response
    }

    /// The next response; `None` if the daemon has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        let length = reply.header("content-length").map_or(0, |it| it.parse().unwrap());
        reply.body.resize(length, 0);
        self.stream.read_exact(&mut reply.body).unwrap();
        Some(reply)
    }

    #[track_caller]
    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        self.send(&request(method, target, headers, body));
        let reply = self.receive().expect("a response");
        let (status, content_type) = (reply.status, reply.header("content-type"));
        assert_documented(Exchange { method, target, status, content_type, body: &reply.body });
        reply
    }

    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Reply {
        self.ask("POST", path, &[("content-type", "application/json")], body.as_bytes())
    }
}

/// The bytes of a request.
pub(crate) fn request(
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!("content-length: {}\r\n", body.len());
    }
    text += "\r\n";
    [text.as_bytes(), body].concat()
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The status, detail and pointer of a problem.
    #[track_caller]
    pub(crate) fn problem(&self) -> (u16, String, Option<String>) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status);
        let pointer = json.get("pointer").map(|it| it.as_str().unwrap().to_owned());
        (self.status, json["detail"].as_str().unwrap().to_owned(), pointer)
    }
}
