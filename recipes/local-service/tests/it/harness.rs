//! Starts the service in this process or as a command, and calls it.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use tidegate::policy::Policy;
use tidegate::{Timestamp, clock::ManualClock};
use tidegate_local_service::{
    Access, ConnectionLimits, Limits, PeerCredentials, RequestLimiter, Server, ServerSettings,
    Service, Timeouts,
};
use tidegate_proto::ipc::{Decoder, encode_text};
use tokio::sync::oneshot;

/// The usual request.
pub(crate) const PING: &str = r#"{"type":"ping","protocolVersion":1}"#;

/// A time in the clock of tests: the last second of January 2026.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_769_903_999);

/// A temporary folder that all users may enter. Paths of sockets are short, so it is not in the
/// build's folder.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tgl-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("s.sock")
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The names in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A service without a socket.
pub(crate) fn service(policy: Policy, clock: &ManualClock) -> Service<ManualClock> {
    Service::new(Access::Everybody, RequestLimiter::new(policy, clock.clone()), clock.clone())
}

/// A peer of this name.
pub(crate) fn peer(name: &str) -> PeerCredentials {
    PeerCredentials { uid: 4_000_000, name: name.into(), gids: Vec::new() }
}

/// A server in this process, with a stopped clock.
pub(crate) struct InProcess {
    pub(crate) folder: Folder,
    pub(crate) clock: ManualClock,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The settings of a server in this process.
pub(crate) struct Setup {
    pub(crate) policy: Option<Policy>,
    pub(crate) access: Access,
    pub(crate) limits: (u64, u64),
}

impl Default for Setup {
    fn default() -> Self {
        let policy = Some(Limits::default().policy().unwrap());
        Self { policy, access: Access::Everybody, limits: (256, 64) }
    }
}

impl InProcess {
    pub(crate) fn start(setup: Setup) -> Self {
        let folder = Folder::new();
        let clock = ManualClock::new(START);
        let limiter = match setup.policy {
            Some(policy) => RequestLimiter::new(policy, clock.clone()),
            None => RequestLimiter::open(),
        };
        let service = Service::new(setup.access, limiter, clock.clone());
        let limits = ConnectionLimits::new(setup.limits.0, setup.limits.1).unwrap();
        let settings = ServerSettings {
            socket: folder.socket(),
            mode: 0o666,
            timeouts: Timeouts { write: Duration::from_millis(200), ..Timeouts::default() },
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(&settings, limits, service).await.unwrap();
                ready.send(()).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
        });
        is_ready.recv().unwrap();
        Self { folder, clock, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn usual() -> Self {
        Self::start(Setup::default())
    }

    pub(crate) fn call(&self) -> Caller {
        Caller::connect(&self.folder.socket())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
    }
}

/// A client of the service.
pub(crate) struct Caller {
    pub(crate) stream: UnixStream,
    decoder: Decoder,
    unread: Vec<u8>,
}

impl Caller {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { stream, decoder: Decoder::new(), unread: Vec::new() }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.send_bytes(&encode_text(text).unwrap());
    }

    /// The next response; `None` if the service has closed the connection.
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
                // It was closed before the service had read everything.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no response: {error}"),
            }
        }
    }

    pub(crate) fn send_request(&mut self, text: &str) -> Value {
        self.send(text);
        serde_json::from_str(&self.next().expect("a response")).unwrap()
    }

    /// Whether a ping got a pong.
    pub(crate) fn ping(&mut self) -> bool {
        is_ok(&self.send_request(PING))
    }

    /// Whether there was a slot for this connection.
    pub(crate) fn is_served(&mut self) -> bool {
        // A connection without a slot may be closed before this is written.
        let _ = self.stream.write_all(&encode_text(PING).unwrap());
        self.next().is_some_and(|response| !response.contains("Too many connections."))
    }

    /// How many of this many pings in a row succeed.
    pub(crate) fn pings(&mut self, count: usize) -> usize {
        (0..count).filter(|_| self.ping()).count()
    }
}

pub(crate) fn is_ok(response: &Value) -> bool {
    response["ok"].as_bool().expect("every response has `ok`")
}

/// The real command, serving.
pub(crate) struct Running {
    pub(crate) folder: Folder,
    child: Child,
    log: Arc<(Mutex<Log>, Condvar)>,
}

#[derive(Default)]
struct Log {
    lines: Vec<String>,
    is_over: bool,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_in(Folder::new(), command(), args)
    }

    /// Starts `command … serve` in a folder, and waits until it listens.
    pub(crate) fn start_in(folder: Folder, mut command: Command, args: &[&str]) -> Self {
        command.arg("serve").arg("--socket").arg(folder.socket()).args(args);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new((Mutex::new(Log::default()), Condvar::new()));
        let writer = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines() {
                writer.0.lock().unwrap().lines.push(line.unwrap());
                writer.1.notify_all();
            }
            writer.0.lock().unwrap().is_over = true;
            writer.1.notify_all();
        });
        let running = Self { folder, child, log };
        running.wait_for("Listening on", 1);
        running
    }

    pub(crate) fn call(&self) -> Caller {
        Caller::connect(&self.folder.socket())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log once it has this many lines with this text, and their number.
    pub(crate) fn wait_for(&self, text: &str, count: usize) -> (Vec<String>, usize) {
        let (log, changed) = &*self.log;
        let found = |log: &Log| log.lines.iter().filter(|line| line.contains(text)).count();
        let log = log.lock().unwrap();
        let is_missing = |log: &mut Log| found(log) < count && !log.is_over;
        let (log, _) = changed.wait_timeout_while(log, TIMEOUT, is_missing).unwrap();
        assert!(found(&log) >= count, "no {count} × {text:?} in {:#?}", log.lines);
        (log.lines.clone(), found(&log))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Stops it by a signal; returns its exit status and whole log.
    pub(crate) fn stop(self, signal: Signal) -> (ExitStatus, Vec<String>) {
        self.stop_keeping(signal, |_| {})
    }

    /// Stops it by a signal, and calls this with its folder.
    pub(crate) fn stop_keeping(
        mut self,
        signal: Signal,
        look: impl FnOnce(&Folder),
    ) -> (ExitStatus, Vec<String>) {
        self.signal(signal);
        let (log, changed) = &*self.log;
        let log = log.lock().unwrap();
        // Its log ends when it ends.
        let (log, _) = changed.wait_timeout_while(log, TIMEOUT, |log| !log.is_over).unwrap();
        assert!(log.is_over, "{signal} does not stop it: {:#?}", log.lines);
        let status = self.child.wait().unwrap();
        look(&self.folder);
        (status, log.lines.clone())
    }

    /// Kills it, so that it cannot clean up; the folder is left.
    pub(crate) fn kill(mut self) -> Folder {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.folder, Folder::new())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The real command, without the environment of the tests.
pub(crate) fn command() -> Command {
    cleared(Command::new(env!("CARGO_BIN_EXE_tidegate-local-service")))
}

pub(crate) fn cleared(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_LOCAL_") {
            command.env_remove(name);
        }
    }
    command
}

/// Whether this process can act as other users. In continuous integration it has to.
#[expect(clippy::print_stdout, reason = "a test that tests nothing says so")]
pub(crate) fn can_be_others() -> bool {
    let has_tools = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if geteuid().is_root() && has_tools("setpriv") && has_tools("unshare") {
        return true;
    }
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ci, "these tests need root, setpriv and unshare");
    println!("not tested: this needs root, setpriv and unshare");
    false
}

/// A copy of the command for users who cannot enter the build's folder.
///
/// Another process makes it: a file open for writing in this one could not be executed while a
/// child of another test has it open too.
pub(crate) fn copy_of_the_command(folder: &Folder) -> PathBuf {
    let copy = folder.path().join("tidegate-local-service");
    if !copy.exists() {
        let mut install = Command::new("install");
        install.arg("--mode=0755").arg(env!("CARGO_BIN_EXE_tidegate-local-service")).arg(&copy);
        assert!(install.status().unwrap().success());
    }
    copy
}

/// Pings as another user, with one group only.
pub(crate) fn ping_as(folder: &Folder, uid: u32, gid: u32, count: u32) -> Output {
    command_as(folder, uid, gid).arg("--count").arg(count.to_string()).output().unwrap()
}

/// The command that pings as another user.
pub(crate) fn command_as(folder: &Folder, uid: u32, gid: u32) -> Command {
    let mut command = cleared(Command::new("setpriv"));
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).arg("--clear-groups");
    command.arg(copy_of_the_command(folder)).args(["ping", "--format", "json", "--socket"]);
    command.arg(folder.socket());
    command
}

/// The responses that a ping command has printed.
pub(crate) fn responses(output: &Output) -> Vec<Value> {
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// How many responses are pongs.
pub(crate) fn pongs(output: &Output) -> usize {
    responses(output).iter().filter(|response| is_ok(response)).count()
}

/// Longer than any step takes: a test that waits this long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
