//! The program itself: configured by its environment, used over sockets, stopped by signals.

use std::net::SocketAddr;
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::{TestClient, closed};
use crate::server::TIMEOUT;

/// A running relay.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Program {
    pub(crate) async fn start(variables: &[(&str, &str)]) -> Self {
        Self::start_with(variables, Stdio::null()).await
    }

    /// The program, and its log as it is written.
    pub(crate) async fn start_logged(variables: &[(&str, &str)]) -> (Self, JoinHandle<String>) {
        let mut program = Self::start_with(variables, Stdio::piped()).await;
        let mut stderr = program.child.stderr.take().unwrap();
        let reading = tokio::spawn(async move {
            let mut log = String::new();
            stderr.read_to_string(&mut log).await.unwrap();
            log
        });
        (program, reading)
    }

    /// Stops it; returns its log.
    pub(crate) async fn stopped(mut self, log: JoinHandle<String>) -> String {
        self.signal("-TERM").await;
        assert_eq!(self.status().await, Some(0));
        log.await.unwrap()
    }

    async fn start_with(variables: &[(&str, &str)], stderr: Stdio) -> Self {
        // Tests reconnect more often than the guard allows; some of them enable it.
        let variables = [&[("PINCH_RELAY_GUARD", "off")], variables].concat();
        let mut child = command(&variables)
            .env("PINCH_RELAY_LISTEN", "127.0.0.1")
            .env("PINCH_RELAY_PORT", "0")
            .env("PINCH_RELAY_PUBLIC_HOST", "relay.example")
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().unwrap();
        let address = line.strip_prefix("listening on ").expect(&line).parse().unwrap();
        Self { child, address }
    }

    /// Its resident memory.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// Its peak resident memory.
    pub(crate) fn peak_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    fn status_kib(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id().unwrap());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    async fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().await.unwrap().success());
    }

    async fn status(&mut self) -> Option<i32> {
        timeout(TIMEOUT, self.child.wait()).await.unwrap().unwrap().code()
    }
}

/// The program with only this environment.
fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-relay"));
    command.env_clear().envs(variables.iter().copied()).kill_on_drop(true);
    command
}

async fn output(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    timeout(TIMEOUT, command(variables).args(arguments).output()).await.unwrap().unwrap()
}

/// The whole response to a request.
async fn http(address: SocketAddr, method: &str, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{more}Connection: close\r\n\r\n");
    let mut response = Vec::new();
    // The relay may close before it has read the whole request.
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = timeout(TIMEOUT, stream.read_to_end(&mut response)).await.expect("an end in time");
    String::from_utf8(response).unwrap()
}

pub(crate) async fn health(address: SocketAddr) -> serde_json::Value {
    let response = http(address, "GET", "/health", "").await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn program_forwards_limits_and_reports_health() {
    let mut program =
        Program::start(&[("PINCH_RELAY_RATE_LIMIT", "0.001"), ("PINCH_RELAY_RATE_BURST", "2")])
            .await;
    assert_eq!(health(program.address).await["connections"], 0);
    let mut ada = TestClient::join(program.address, 1).await;
    let mut bob = TestClient::join(program.address, 2).await;
    assert_eq!(health(program.address).await["connections"], 2);
    for id in 0..3 {
        ada.send_to(&bob.address, &[id]).await;
    }
    for id in 0..2 {
        assert_eq!(bob.receive_envelope().await.message_id, [id]);
    }
    let (limited, id) = ada.denied().await;
    assert_eq!(id, [2]);
    // One per 1000 s, minus the time of this test so far.
    assert!((900_000..=1_000_000).contains(&limited.retry_after_ms), "{limited:?}");
    bob.leave().await;
    assert_eq!(health(program.address).await["connections"], 1);
    program.signal("-TERM").await;
    assert_eq!(closed(&mut ada.socket).await.0, 1001);
    drop(ada);
    assert_eq!(program.status().await, Some(0));
}

#[tokio::test]
async fn default_is_one_per_second_and_ten_at_once() {
    let program = Program::start(&[]).await;
    let mut ada = TestClient::join(program.address, 1).await;
    for id in 0..11 {
        ada.send_to("absent", &[id]).await;
    }
    let (limited, id) = ada.denied().await;
    assert_eq!(id, [10]);
    assert!((1..=1_000).contains(&limited.retry_after_ms), "{limited:?}");
}

#[tokio::test]
async fn interrupt_stops_the_program_though_a_client_does_not_close() {
    let mut program = Program::start(&[]).await;
    let _silent = TestClient::join(program.address, 1).await;
    let _half_a_request = {
        let mut stream = TcpStream::connect(program.address).await.unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\n").await.unwrap();
        stream
    };
    program.signal("-INT").await;
    assert_eq!(program.status().await, Some(0));
}

#[tokio::test]
async fn invalid_value_prevents_the_start_and_is_named() {
    let host = ("PINCH_RELAY_PUBLIC_HOST", "relay.example");
    for (name, value) in [
        ("PINCH_RELAY_RATE_LIMIT", "fast"),
        ("PINCH_RELAY_RATE_LIMIT", "0"),
        ("PINCH_RELAY_RATE_LIMIT", "-1"),
        ("PINCH_RELAY_RATE_LIMIT", "inf"),
        ("PINCH_RELAY_RATE_LIMIT", "nan"),
        ("PINCH_RELAY_RATE_LIMIT", "1e30"),
        ("PINCH_RELAY_RATE_BURST", "0"),
        ("PINCH_RELAY_RATE_BURST", "-1"),
        ("PINCH_RELAY_RATE_BURST", "1.5"),
        ("PINCH_RELAY_PORT", "65536"),
        ("PINCH_RELAY_GUARD", "maybe"),
    ] {
        let output = output(&[host, (name, value)], &[]).await;
        assert_eq!(output.status.code(), Some(1), "{name}={value}");
        let message = String::from_utf8(output.stderr).unwrap();
        let start = format!("error: {name} is {value:?}: expected ");
        assert!(message.starts_with(&start), "{message}");
        assert_eq!(output.stdout, b"", "{name}={value}");
    }
    let message = String::from_utf8(output(&[], &[]).await.stderr).unwrap();
    assert!(message.starts_with("error: PINCH_RELAY_PUBLIC_HOST is not set: "), "{message}");
}

#[tokio::test]
async fn a_log_filter_that_cannot_be_read_prevents_the_start() {
    let host = ("PINCH_RELAY_PUBLIC_HOST", "relay.example");
    for wrong in ["warning", "tidegate=loud"] {
        let output = output(&[host, ("RUST_LOG", wrong)], &[]).await;
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{wrong}");
        assert!(message.starts_with(&format!("error: RUST_LOG is {wrong:?}: ")), "{message}");
    }
}

#[tokio::test]
async fn variables_of_other_relays_are_warned_about() {
    let set = [("PINCH_RELAY_DB", "x.db"), ("PINCH_RELAY_QUEUE_TTL", ""), ("RUST_LOG", "")];
    let (program, log) = Program::start_logged(&set).await;
    let log = program.stopped(log).await;
    assert!(log.contains("WARN") && log.contains("PINCH_RELAY_DB is set, but"), "{log}");
    assert!(!log.contains("PINCH_RELAY_QUEUE_TTL"), "empty is unset: {log}");
}

#[tokio::test]
async fn the_other_host_is_the_name_too() {
    let mut child = command(&[
        ("PINCH_RELAY_HOST", "old.example"),
        ("PINCH_RELAY_LISTEN", "127.0.0.1"),
        ("PINCH_RELAY_PORT", "0"),
        ("PINCH_RELAY_PUBLIC_HOST", ""),
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().unwrap();
    let address = line.strip_prefix("listening on 127.0.0.1:").expect(&line);
    let address = SocketAddr::from(([127, 0, 0, 1], address.parse().unwrap()));
    assert!(TestClient::join(address, 1).await.address.ends_with("@old.example"));
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let program = Program::start(&[]).await;
    let port = program.address.port().to_string();
    let variables = [
        ("PINCH_RELAY_LISTEN", "127.0.0.1"),
        ("PINCH_RELAY_PORT", &*port),
        ("PINCH_RELAY_PUBLIC_HOST", "relay.example"),
    ];
    let output = output(&variables, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains(&format!("cannot listen on 127.0.0.1:{port}: ")), "{message}");
}

#[tokio::test]
async fn help_lists_every_setting() {
    let output = output(&[], &["--help"]).await;
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for variable in tidegate_relay::VARIABLES {
        assert!(help.contains(variable.name), "{help}");
    }
}

#[tokio::test]
async fn other_requests_get_ordinary_responses() {
    let program = Program::start(&[]).await;
    for (method, path, status) in [
        ("GET", "/ws", 400),
        ("POST", "/ws", 405),
        ("GET", "/", 404),
        ("POST", "/health", 405),
        ("GET", "/health/", 404),
    ] {
        let response = http(program.address, method, path, "").await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{method} {path}: {response}"
        );
    }
    let long = format!("X-Long: {}\r\n", "x".repeat(100_000));
    let response = http(program.address, "GET", "/health", &long).await;
    assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
    assert_eq!(health(program.address).await["connections"], 0);
}

/// Ten seconds for the head of a request, and for the next one on the same connection.
#[tokio::test]
async fn idle_or_unfinished_request_is_disconnected() {
    let program = Program::start(&[]).await;
    let beginnings =
        ["", "GET /ws HTTP/1.1\r\nHost: x\r\n", "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"];
    let ends = beginnings.map(|beginning| async move {
        let mut stream = TcpStream::connect(program.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        timeout(TIMEOUT, stream.read_to_end(&mut response)).await.unwrap().unwrap();
        response.len()
    });
    let [nothing, half, whole] = ends;
    let (nothing, _half, whole) = tokio::join!(nothing, half, whole);
    assert_eq!(nothing, 0);
    assert!(whole > 0);
}
