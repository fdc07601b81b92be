//! The program itself.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{attempt, head, status, upgrade};

/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The running program.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: SocketAddr,
}

pub(crate) async fn started(arguments: &[&str]) -> Program {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate-upgrade-guard"))
        .args(["--listen", "127.0.0.1:0"])
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(TIMEOUT, lines.next_line()).await.expect("its start in time");
    let line = line.unwrap().unwrap();
    let address = line.strip_prefix("listening on ").unwrap().parse().unwrap();
    Program { child, address }
}

impl Program {
    /// Stops it by a signal; returns its log.
    pub(crate) async fn stopped(self) -> String {
        self.stopped_by("-TERM").await
    }

    async fn stopped_by(mut self, signal: &str) -> String {
        let pid = self.child.id().unwrap().to_string();
        Command::new("kill").args([signal, &pid]).status().await.unwrap();
        let status = timeout(TIMEOUT, self.child.wait()).await.expect("its end in time");
        assert!(status.unwrap().success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).await.unwrap();
        log
    }

    /// Memory in use, in KiB.
    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap()));
        let status = status.unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn one_log_line_per_denial_and_none_per_success() {
    let program = started(&[]).await;
    for _ in 0..20 {
        assert_eq!(status(&attempt(program.address, "/ws", &[]).await), "101");
    }
    for _ in 0..3 {
        assert_eq!(status(&attempt(program.address, "/ws", &[]).await), "429");
    }
    let log = program.stopped().await;
    let denials = log.lines().filter(|line| line.ends_with(r#"rate_limited remote="127.0.0.1""#));
    assert_eq!((denials.count(), log.lines().count()), (3, 4), "{log}");
    assert!(log.ends_with("stopped\n"));
}

#[tokio::test]
async fn settings_are_flags_and_invalid_ones_prevent_the_start() {
    let program =
        started(&["--burst", "1", "--every", "1h", "--trusted-proxies", "127.0.0.1"]).await;
    let from = async |client: &str| {
        let header = format!("X-Forwarded-For: {client}");
        attempt(program.address, "/ws", &[&header]).await
    };
    assert_eq!(status(&from("192.0.2.1").await), "101");
    assert!(from("192.0.2.1").await.to_ascii_lowercase().contains("\r\nretry-after: 3600\r\n"));
    assert_eq!(status(&from("192.0.2.2").await), "101");
    drop(program);
    let trusting = ["--burst", "1", "--trusted-proxies", "127.0.0.1"];
    let other = [&trusting[..], &["--forwarded-header", "Forwarded"]].concat();
    let program = started(&other).await;
    for (client, expected) in [("192.0.2.1", "101"), ("192.0.2.1", "429"), ("192.0.2.2", "101")] {
        let header = format!("Forwarded: for={client}");
        assert_eq!(status(&attempt(program.address, "/ws", &[&header]).await), expected);
    }
    drop(program);
    let program = started(&["--max-sockets", "1"]).await;
    let _open = connect_async(format!("ws://{}/ws", program.address)).await.unwrap();
    assert_eq!(status(&attempt(program.address, "/ws", &[]).await), "503");
    for wrong in [
        ["--burst", "0"],
        ["--burst", "-1"],
        ["--every", "0s"],
        ["--evict-every", "0s"],
        ["--every", "six"],
        ["--trusted-proxies", "10.0.0.1/8"],
        ["--forwarded-header", "x-client-ip"],
        ["--max-addresses", "0"],
        ["--max-connections-per-address", "0"],
        ["--max-sockets", "0"],
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_tidegate-upgrade-guard")).args(wrong).output();
        let output = output.await.unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(wrong[0]), "{wrong:?}");
    }
}

#[tokio::test]
async fn signal_right_after_the_first_line_stops_it_gracefully() {
    for signal in ["-TERM", "-INT"] {
        // Only the first line has been read.
        let log = started(&[]).await.stopped_by(signal).await;
        assert!(log.ends_with("stopped\n"), "{signal}: {log}");
    }
}

#[tokio::test]
async fn open_sockets_are_closed_with_1001() {
    let program = started(&[]).await;
    let (mut socket, _) = connect_async(format!("ws://{}/ws", program.address)).await.unwrap();
    let stopped = tokio::spawn(program.stopped());
    let Some(Ok(Message::Close(Some(frame)))) = socket.next().await else { panic!("no close") };
    assert_eq!(u16::from(frame.code), 1001);
    drop(socket);
    stopped.await.unwrap();
}

#[tokio::test]
async fn proxy_header_determines_the_address() {
    let program = started(&["--proxy-protocol", "--burst", "1"]).await;
    let from = async |client: &str| {
        let mut stream = TcpStream::connect(program.address).await.unwrap();
        let line = format!("PROXY TCP4 {client} 10.0.0.1 1 80\r\n");
        let whole = line + &upgrade("/ws", &["X-Forwarded-For: 6.6.6.6"]);
        stream.write_all(whole.as_bytes()).await.unwrap();
        status(&head(&mut stream).await).to_owned()
    };
    assert_eq!(from("192.0.2.1").await, "101");
    assert_eq!(from("192.0.2.1").await, "429");
    assert_eq!(from("192.0.2.2").await, "101");
    assert_eq!(
        status(&attempt(program.address, "/ws", &[]).await),
        "none",
        "closed without a header"
    );
}

#[tokio::test]
async fn memory_stays_flat_over_thousands_of_connections() {
    let program = started(&["--burst", "1000000"]).await;
    let cycle = async |count: u32| {
        for _ in 0..count {
            assert_eq!(status(&attempt(program.address, "/ws", &[]).await), "101");
        }
    };
    cycle(1_000).await;
    let before_kib = program.resident_kib();
    cycle(10_000).await;
    let grown_kib = program.resident_kib().saturating_sub(before_kib);
    assert!(grown_kib < 8_192, "grown by {grown_kib} KiB");
}

#[tokio::test]
async fn a_log_filter_that_cannot_be_read_prevents_the_start() {
    for wrong in ["warning", "tidegate=loud"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-upgrade-guard"));
        let output = program.args(["--listen", "127.0.0.1:0"]).env("RUST_LOG", wrong).output();
        let output = output.await.unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && log.starts_with("error: RUST_LOG is "), "{log}");
    }
}

#[tokio::test]
async fn idle_addresses_make_room_for_others_in_a_small_table() {
    let options = ["--burst", "1", "--every", "100ms", "--evict-every", "200ms"];
    let trusting = ["--trusted-proxies", "127.0.0.1", "--forwarded-header", "CF-Connecting-IP"];
    let max = ["--max-addresses", "4"];
    let program = started(&[&options[..], &trusting, &max].concat()).await;
    for address in 1..=60 {
        let header = format!("CF-Connecting-IP: 192.0.2.{address}");
        loop {
            match status(&attempt(program.address, "/ws", &[&header]).await) {
                "101" => break,
                "429" => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                other => panic!("{other}"),
            }
        }
    }
}
