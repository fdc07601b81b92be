//! Servers as separate processes, each on one processor.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that runs on processor 0, until it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a command, and waits until its address accepts connections.
    pub fn start(command: &Path, args: &[String], address: SocketAddr) -> Result<Self, String> {
        let child = Command::new("taskset")
            .args(["-c", "0"])
            .arg(command)
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", command.display()))?;
        let mut server = Self { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{} ended: {status}", command.display()));
            }
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!("{} does not listen", command.display()));
            }
        }
        Ok(server)
    }

    /// The processor time that it has used so far.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.unwrap_or_default();
        // After the name, which is in parentheses: the 12th and 13th field, in hundredths.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |it| it.1).split_whitespace().collect();
        let ticks = |index: usize| -> u64 {
            fields.get(index).and_then(|field| field.parse().ok()).unwrap_or(0)
        };
        Duration::from_millis(10 * (ticks(11) + ticks(12)))
    }

    /// Resident memory, in MiB.
    pub fn resident_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0.0);
        kib / 1_024.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that is not in use.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback interface");
    listener.local_addr().expect("it is bound")
}

/// The daemon with a single listener.
pub fn tidegate(listener: &str, policy: &Path) -> Result<Server, String> {
    tidegate_with(listener, policy, &[])
}

/// The same with more arguments.
pub fn tidegate_with(listener: &str, policy: &Path, more: &[String]) -> Result<Server, String> {
    let address = free_address();
    let mut args = vec!["serve".to_owned(), policy.display().to_string()];
    args.extend_from_slice(more);
    for other in ["http", "grpc", "resp", "unix", "admin"] {
        args.push(format!("--{other}"));
        args.push(if other == listener { address.to_string() } else { "off".into() });
    }
    Server::start(&daemon()?, &args, address)
}

/// The path of the daemon that is measured.
pub fn daemon() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    let path = target.join("release/tidegate");
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{} does not exist; run `cargo build --release -p tidegate-cli`", path.display()))
}

pub fn redis() -> Result<Server, String> {
    let address = free_address();
    let port = address.port().to_string();
    let args = ["--port", &port, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"];
    Server::start(Path::new("redis-server"), &args.map(Into::into), address)
}

pub fn throttlecrab() -> Result<Server, String> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/bin/throttlecrab-server");
    if !path.exists() {
        return Err(format!("{} does not exist; run `scripts/install peers`", path.display()));
    }
    let address = free_address();
    let port = address.port().to_string();
    let args = [
        "--http",
        "--http-host",
        "127.0.0.1",
        "--http-port",
        &port,
        "--store",
        "periodic",
        "--store-capacity",
        "1100000",
        "--log-level",
        "error",
    ];
    Server::start(&path, &args.map(Into::into), address)
}

/// Pins this process, and its load, to one processor.
pub fn pin_self(processor: u32) -> io::Result<()> {
    let pid = std::process::id().to_string();
    let status = Command::new("taskset")
        .args(["-a", "-c", "-p", &processor.to_string(), &pid])
        .stdout(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("taskset failed")) }
}
