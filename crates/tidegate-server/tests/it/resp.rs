//! The Redis protocol, with raw sockets and Redis clients.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use redis::{Parser, Value};
use tidegate::policy::Policy;
use tidegate_server::{Bounds, Listener, Server, Settings};

mod bad_input;
mod commands;
mod library;
mod pipelines;
mod policy;
mod slow;
mod tools;

const POLICY: &str = r#"
    [[rule]]
    name   = "per-user"
    key    = ["user"]
    window = { max = 3, per = "1h" }
    deny   = "three an hour"

    [[rule]]
    name   = "tokens"
    domain = "tokens"
    key    = ["team"]
    quota  = { max = 100, per = "day" }

    [[rule]]
    name   = "calls"
    domain = "calls"
    slots  = { max = 1 }
"#;

/// A daemon on a free port.
struct Daemon {
    server: Server,
    address: SocketAddr,
}

impl Daemon {
    async fn start() -> Self {
        Self::with(POLICY, |bounds| bounds).await
    }

    async fn with(policy: &str, bounds: impl Fn(Bounds) -> Bounds) -> Self {
        let file = Policy::parse("policy.toml", policy.as_bytes()).unwrap();
        let settings = Settings::on_free_ports(file);
        Self::of(settings.bounds(bounds(Bounds::default()))).await
    }

    async fn of(settings: Settings) -> Self {
        let server = Server::start(settings).await.unwrap();
        let address = server.address(Listener::Resp).unwrap();
        Self { server, address }
    }

    fn client(&self) -> Client {
        Client::new(self.address)
    }

    async fn stop(self) {
        self.server.stop().await;
    }
}

/// A client with a raw socket.
struct Client {
    stream: TcpStream,
    parser: Parser,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, parser: Parser::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next reply.
    fn reply(&mut self) -> Value {
        self.parser.parse_value(&mut self.stream).unwrap()
    }

    fn ask(&mut self, words: &[&str]) -> Value {
        self.send(&array(words));
        self.reply()
    }

    /// Sends bytes, and asserts the bytes of the reply.
    fn raw(&mut self, bytes: &[u8], expected: &str) {
        self.send(bytes);
        let mut reply = vec![0; expected.len()];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(String::from_utf8_lossy(&reply), expected, "{}", bytes.escape_ascii());
    }

    /// The next line.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    fn integers(&mut self, words: &[&str]) -> Vec<i64> {
        self.send(&array(words));
        self.integers_reply()
    }

    fn integers_reply(&mut self) -> Vec<i64> {
        redis::from_redis_value(self.reply()).unwrap()
    }

    /// Everything until the daemon closes the connection.
    fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A connection that is reset is closed as well.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Closes this half of the connection.
    fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// A command as an array of bulk strings.
fn array(words: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    array_of_bytes(&words)
}

fn array_of_bytes(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The text of an error.
fn error(value: &Value) -> String {
    match value {
        Value::ServerError(error) => {
            format!("{} {}", error.code(), error.details().unwrap_or_default())
        }
        other => panic!("not an error: {other:?}"),
    }
}
