//! One server process.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use builder::Mode;
pub use builder::{Appendfsync, ServerBuilder, TlsFiles};

use crate::folder::Folder;
use crate::port::Port;
use crate::process::Process;
use crate::program::Program;
use crate::resp::{Connection, Reply};
use crate::wait;

mod builder;
mod clock;

/// A server with a folder and ports of its own. It is killed and its folder removed with this value.
///
/// It keeps no data over a restart, unless it has [`appendonly`](ServerBuilder::appendonly).
#[derive(Debug)]
pub struct Server {
    settings: ServerBuilder,
    port: Port,
    tls_port: Option<Port>,
    /// Where nodes of a cluster talk to each other.
    bus_port: Option<Port>,
    state: Mutex<State>,
    /// Removed after the process is gone.
    folder: Folder,
}

#[derive(Debug)]
struct State {
    process: Option<Process>,
    is_paused: bool,
    clock_offset_secs: i64,
}

impl Server {
    /// Starts a server with usual settings, and waits until it answers.
    ///
    /// # Panics
    ///
    /// As [`ServerBuilder::start`].
    #[must_use]
    #[track_caller]
    pub fn start(program: Program) -> Self {
        Self::builder(program).start()
    }

    /// The settings of a server to start.
    #[must_use]
    pub fn builder(program: Program) -> ServerBuilder {
        ServerBuilder::new(program)
    }

    fn try_start(settings: &ServerBuilder) -> Result<Self, String> {
        let state = State { process: None, is_paused: false, clock_offset_secs: 0 };
        let server = Self {
            settings: settings.clone(),
            port: Port::reserve(),
            tls_port: settings.tls.is_some().then(Port::reserve),
            bus_port: (settings.mode == Mode::ClusterNode).then(Port::reserve),
            state: Mutex::new(state),
            folder: Folder::new(),
        };
        server.folder.write(CONFIGURATION, &server.configuration());
        server.launch(&mut server.state())?;
        Ok(server)
    }

    /// Where it listens without TLS.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Where it listens with TLS.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_port.as_ref().map(Port::address)
    }

    /// Where other servers reach it: with TLS, if it has it.
    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.tls_address().unwrap_or(self.address())
    }

    /// The path of its socket.
    #[must_use]
    pub fn unix_socket(&self) -> Option<PathBuf> {
        self.settings.has_unix_socket.then(|| self.folder.path().join(SOCKET))
    }

    /// Its address as `redis://127.0.0.1:6379`, with the password if it has one.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.url_password(), self.address())
    }

    /// Its address with TLS, as `rediss://127.0.0.1:6379`, with the password if it has one.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        Some(format!("rediss://{}{}", self.url_password(), self.tls_address()?))
    }

    fn url_password(&self) -> String {
        let password = self.password().unwrap_or_default();
        let encoded: String = password.bytes().map(percent_encoded).collect();
        if encoded.is_empty() { encoded } else { format!(":{encoded}@") }
    }

    /// The program that it runs.
    #[must_use]
    pub const fn program(&self) -> Program {
        self.settings.program
    }

    /// Its folder: configuration, log, data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.settings.password.as_deref()
    }

    pub(crate) fn bus_port(&self) -> u16 {
        self.bus_port.as_ref().map_or(0, Port::number)
    }

    /// What it has logged since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether the process runs: neither killed nor paused.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let mut state = self.state();
        !state.is_paused && state.process.as_mut().is_some_and(Process::is_alive)
    }

    /// A new connection, as the default user.
    ///
    /// # Errors
    ///
    /// If the server does not accept the connection.
    pub fn connect(&self) -> io::Result<Connection> {
        let mut connection = Connection::open(self.address())?;
        if let Some(password) = self.password() {
            let reply = connection.command(&["AUTH", password])?;
            if let Some(message) = reply.error() {
                return Err(io::Error::other(message.to_owned()));
            }
        }
        Ok(connection)
    }

    /// Sends a command over a new connection, and returns its reply.
    ///
    /// # Panics
    ///
    /// If there is no reply. An error is a reply.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, words: &[A]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| {
            let name = words.first().map(|name| String::from_utf8_lossy(name.as_ref()));
            panic!("{} at {}: {name:?}: {error}", self.program(), self.address())
        })
    }

    /// Sends a command over a new connection, and returns its reply.
    ///
    /// # Errors
    ///
    /// If there is no reply.
    pub fn try_command<A: AsRef<[u8]>>(&self, words: &[A]) -> io::Result<Reply> {
        self.connect()?.command(words)
    }

    /// A field of `INFO`, such as `role`.
    #[must_use]
    pub fn info(&self, field: &str) -> Option<String> {
        let Ok(Reply::Bulk(text)) = self.try_command(&["INFO", "everything"]) else { return None };
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| *name == field).map(|(_, value)| value.trim_end().to_owned())
    }

    /// Kills the process with SIGKILL, and waits until it is gone. Its port refuses connections.
    pub fn kill(&self) {
        let mut state = self.state();
        let pid = state.process.take().map(|process| process.id());
        if let Some(pid) = pid.filter(|_| self.settings.has_steppable_clock) {
            clock::remove_shared_memory(pid);
        }
        state.is_paused = false;
    }

    /// Kills the process if it runs, and starts it again with the same ports and the same folder.
    ///
    /// # Panics
    ///
    /// If it does not start; the message has its log.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        let result = self.launch(&mut self.state());
        result.unwrap_or_else(|message| panic!("{message}"));
    }

    /// Stops the process with SIGSTOP: its connections stay open, and nothing is answered.
    ///
    /// # Panics
    ///
    /// If it does not run.
    #[track_caller]
    pub fn pause(&self) {
        let mut state = self.state();
        state.process.as_ref().expect("the server was killed").pause();
        state.is_paused = true;
    }

    /// Continues the process with SIGCONT.
    ///
    /// # Panics
    ///
    /// If it does not run.
    #[track_caller]
    pub fn resume(&self) {
        let mut state = self.state();
        state.process.as_ref().expect("the server was killed").resume();
        state.is_paused = false;
    }

    /// Steps the clock of the server, forward or backward. Steps add up, and a restart keeps them; the
    /// monotonic clock is not stepped. If the server runs, this returns when `TIME` and the expiry of keys
    /// have followed.
    ///
    /// # Panics
    ///
    /// If the server was started without [`steppable_clock`](ServerBuilder::steppable_clock), or does not
    /// follow.
    #[track_caller]
    pub fn step_clock(&self, secs: i64) {
        assert!(self.settings.has_steppable_clock, "the server has no steppable clock");
        let mut state = self.state();
        state.clock_offset_secs = state.clock_offset_secs.saturating_add(secs);
        let offset_secs = state.clock_offset_secs;
        self.write_clock(offset_secs);
        drop(state);
        if self.is_running() {
            wait::until("the server's clock is stepped", || clock::is_stepped(self, offset_secs));
        }
    }

    fn write_clock(&self, offset_secs: i64) {
        self.folder.write(CLOCK, &format!("{offset_secs:+}\n"));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn configuration(&self) -> String {
        let folder = self.folder.path().display();
        let mut text = format!("bind 127.0.0.1\nport {}\ndir {folder}\n", self.port.number());
        if self.settings.mode != Mode::Sentinel {
            // A replica must not wait for more replicas, and needs no disk.
            text += "save \"\"\nrepl-diskless-sync yes\nrepl-diskless-sync-delay 0\n";
        }
        if let Some(bus) = &self.bus_port {
            text += &format!("cluster-enabled yes\ncluster-port {}\n", bus.number());
        }
        if self.settings.has_unix_socket {
            text += &format!("unixsocket {folder}/{SOCKET}\n");
        }
        if let (Some(port), Some(files)) = (&self.tls_port, &self.settings.tls) {
            text += &format!(
                "tls-port {}\ntls-cert-file {:?}\ntls-key-file {:?}\ntls-ca-cert-file {:?}\n\
                 tls-auth-clients no\n",
                port.number(),
                files.certificate,
                files.key,
                files.authority
            );
        }
        for line in &self.settings.lines {
            text += &format!("{line}\n");
        }
        text
    }

    /// Starts the process, and waits until it answers.
    fn launch(&self, state: &mut State) -> Result<(), String> {
        let mut command = Command::new(self.program().path());
        command.arg(self.folder.path().join(CONFIGURATION));
        if self.settings.mode == Mode::Sentinel {
            command.arg("--sentinel");
        }
        if self.settings.has_steppable_clock {
            self.write_clock(state.clock_offset_secs);
            clock::fake(&mut command, &self.folder.path().join(CLOCK));
        }
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join(LOG));
        let process = log.and_then(|log| Process::start(&command, log));
        let process = process.map_err(|error| {
            format!("cannot start {command:?} by setpriv: {error}; scripts/install installs both")
        })?;
        let process = state.process.insert(process);
        let is_up = wait::holds_within(wait::ROUNDS, &mut || {
            !process.is_alive() || self.try_command(&["PING"]).is_ok_and(|reply| is_pong(&reply))
        });
        if is_up && process.is_alive() {
            return Ok(());
        }
        state.process = None;
        Err(format!("{} did not start; its log:\n{}", self.program(), self.log()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Before its folder is removed.
        self.kill();
    }
}

fn is_pong(reply: &Reply) -> bool {
    // A user without rights for `PING` is an answer, too; a server that loads its data answers `LOADING`.
    match reply {
        Reply::Error(message) => message.starts_with("NOPERM"),
        reply => *reply == Reply::Status("PONG".into()),
    }
}

fn percent_encoded(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
}

const CONFIGURATION: &str = "server.conf";
const LOG: &str = "server.log";
const SOCKET: &str = "s.sock";
const CLOCK: &str = "clock";
