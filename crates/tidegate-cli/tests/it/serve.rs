//! The daemon as a process: output, signals and exit codes.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use crate::run::{Watchdog, with_default_signals};

/// A daemon that is killed when it is dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) stderr: BufReader<ChildStderr>,
    _watchdog: Watchdog,
}

impl Daemon {
    pub(crate) fn start(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = with_default_signals(env!("CARGO_BIN_EXE_tidegate"));
        Self::spawn(command.arg("serve"), args, environment)
    }

    /// Starts one that can only write files up to this size.
    fn with_small_files(kib: u64, args: &[&str]) -> Self {
        let limited = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" serve \"$@\"", kib * 2);
        let shell = &mut with_default_signals("sh");
        Self::spawn(shell.args(["-c", &limited, env!("CARGO_BIN_EXE_tidegate")]), args, &[])
    }

    fn spawn(command: &mut Command, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let child = command
            .args(args)
            .env_remove("NOTIFY_SOCKET")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self::of(child)
    }

    /// A daemon that was started with a pipe as its log.
    pub(crate) fn of(mut child: Child) -> Self {
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { _watchdog: Watchdog::of(&child), child, stderr }
    }

    /// Reads up to the first line that contains a text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let mut read = String::new();
        loop {
            let mut line = String::new();
            assert!(self.stderr.read_line(&mut line).unwrap() > 0, "no {text:?} in\n{read}");
            if line.contains(text) {
                return line;
            }
            read.push_str(&line);
        }
    }

    pub(crate) fn send(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) const FREE: [&str; 10] =
    ["--http", "127.0.0.1:0", "--grpc", "off", "--resp", "off", "--unix", "off", "--admin", "off"];

const QUOTA: &str = "[[rule]]\nname = 'calls'\nkey = ['user']\nquota = { max = 2, per = 'year' }\n";

pub(crate) fn curl(url: &str, body: &str) -> u16 {
    let Output { stdout, stderr, .. } = Command::new("curl")
        .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-d", body, url])
        .output()
        .unwrap();
    let code = String::from_utf8(stdout).unwrap();
    code.parse().unwrap_or_else(|_| panic!("{code}{}", String::from_utf8_lossy(&stderr)))
}

/// The `address` field of a log line.
pub(crate) fn address(line: &str) -> &str {
    line.split("address=\"").nth(1).unwrap().split('"').next().unwrap()
}

#[test]
fn unwritable_disk_is_reported_by_every_interface() {
    let folder = Folder::new("full");
    let policy = folder.file("policy.toml", &format!("{QUOTA}on_error = 'deny'\n"));
    let store = format!("file:{}", folder.path("store"));
    let mut args = vec![&*policy, "--store", &store];
    args.extend(FREE.iter().copied().take(8).chain(["--admin", "127.0.0.1:0"]));
    let mut daemon = Daemon::with_small_files(32, &args);
    let http = address(&daemon.wait_for("listener=\"http\"")).to_owned();
    let admin = address(&daemon.wait_for("listener=\"admin\"")).to_owned();
    let bans = format!("http://{admin}/admin/v1/bans");
    let check = || curl(&format!("http://{http}/v1/check"), r#"{"attributes":{"user":"ada"}}"#);
    assert_eq!(check(), 200);
    assert_eq!(curl(&bans, r#"{"match":{"user":"eve"}}"#), 200);
    // More than fits into a file.
    let long = format!(r#"{{"match":{{"user":"bob"}},"reason":"{}"}}"#, "x".repeat(40 << 10));
    assert_eq!(curl(&bans, &long), 503);
    daemon.wait_for("store unavailable");
    assert_eq!(curl(&bans, r#"{"match":{"user":"mal"}}"#), 503);
    assert_eq!(check(), 503, "the rule has on_error = deny");
    for (path, expected) in [
        ("readyz", "\"ready\":true,\"degraded\":[\"store\"]"),
        ("metrics", "\ntidegate_store_writable 0\n"),
    ] {
        let output = Command::new("curl").args(["-sS", &format!("http://{http}/{path}")]).output();
        let body = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(body.contains(expected), "{path}: {body}");
    }
    let status = |path: &str| {
        let url = format!("http://{http}/{path}");
        let curl = ["-sS", "-o", "/dev/null", "-w", "%{http_code}", &url];
        String::from_utf8(Command::new("curl").args(curl).output().unwrap().stdout).unwrap()
    };
    assert_eq!(["readyz", "healthcheck", "readyz?strict"].map(status), ["200", "200", "503"]);
    let ping = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["ping", "--at", &format!("http://{http}")])
        .output()
        .unwrap();
    let notes = String::from_utf8(ping.stderr).unwrap();
    assert!(
        ping.status.success() && notes.contains("note: store: the store cannot write"),
        "{notes}"
    );
    daemon.send("-TERM");
    assert_eq!(daemon.end().code(), Some(0));
}

#[test]
fn demo_prints_a_curl_command_that_ends_in_a_429() {
    let mut daemon = Daemon::start(&FREE, &[]);
    let line = daemon.wait_for("curl -i ");
    let paste = line.trim().replace("curl -i ", "curl -s -o /dev/null -w '%{http_code}' ");
    let mut codes = Vec::new();
    for _ in 0..6 {
        let output = Command::new("sh").args(["-c", &paste]).output().unwrap();
        codes.push(String::from_utf8(output.stdout).unwrap());
    }
    assert_eq!(codes, ["200", "200", "200", "200", "200", "429"]);
    daemon.send("-TERM");
    assert_eq!(daemon.end().code(), Some(0));
}

#[test]
fn quota_on_disk_survives_restart_and_kill() {
    let folder = Folder::new("serve-disk");
    let policy = folder.file("policy.toml", QUOTA);
    let store = format!("file:{}", folder.path("state"));
    let mut args = vec![policy.as_str(), "--store", &store];
    args.extend(FREE);
    let mut codes = Vec::new();
    for signal in ["-TERM", "-KILL", "-INT"] {
        let mut daemon = Daemon::start(&args, &[]);
        let line = daemon.wait_for("listening");
        let url = format!("http://{}/v1/check", address(&line));
        codes.push(curl(&url, r#"{"attributes":{"user":"ada"}}"#));
        daemon.send(signal);
        let status = daemon.end();
        assert!(signal == "-KILL" || status.code() == Some(0), "{status}");
    }
    assert_eq!(codes, [200, 200, 429]);
}

#[test]
fn store_folder_is_used_by_one_daemon_at_a_time() {
    let folder = Folder::new("serve-twice");
    let policy = folder.file("policy.toml", QUOTA);
    let store = format!("file:{}", folder.path("state"));
    let mut args = vec![policy.as_str(), "--store", &store];
    args.extend(FREE);
    let mut first = Daemon::start(&args, &[]);
    first.wait_for("listening");
    let mut second = Daemon::start(&args, &[]);
    second.wait_for("error: ");
    assert_eq!(second.end().code(), Some(2));
}

#[test]
fn systemd_is_notified_of_ready_and_stopping() {
    let folder = Folder::new("serve-notify");
    let path = folder.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let receive = || {
        let mut bytes = [0; 64];
        let read = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    };
    let daemon = Daemon::start(&FREE, &[("NOTIFY_SOCKET", &path)]);
    assert_eq!(receive(), "READY=1");
    daemon.send("-TERM");
    assert_eq!(receive(), "STOPPING=1");
    assert_eq!(daemon.end().code(), Some(0));
}

#[test]
fn the_example_of_a_unit_is_one_that_systemd_understands() {
    let folder = Folder::new("serve-unit");
    let unit = include_str!("../../../../examples/tidegate.service");
    let installed = "/usr/local/bin/tidegate ";
    assert!(unit.contains(installed), "{unit}");
    let program = format!("{} ", env!("CARGO_BIN_EXE_tidegate"));
    for (unit, is_understood) in [
        (unit.replace(installed, &program), true),
        (unit.replace(installed, &program).replace("Type=notify", "Type=notfy"), false),
    ] {
        let path = folder.file("tidegate.service", &unit);
        let mut verify = Command::new("timeout");
        verify.args(["60", "systemd-analyze", "verify", &path]);
        let output = verify.output().unwrap();
        assert_ne!(output.status.code(), Some(127), "run scripts/install");
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(!complaints.contains("tidegate.service:"), is_understood, "{complaints}");
    }
}

#[test]
fn start_errors_have_a_hint() {
    let folder = Folder::new("serve-wrong");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let bad =
        folder.file("bad.toml", "[[rule]]\nname = 'n'\nbucket = { rate = '10/s', burts = 1 }\n");
    let good = folder.file("good.toml", QUOTA);
    let absent = folder.path("absent.toml");
    for (args, expected) in [
        (vec!["--http", &*taken], "the address is in use; use --http"),
        (vec![&*bad], "did you mean `burst`?"),
        (vec![&*absent], "no such file"),
        (vec!["--store", "redis://localhost", "--store-secret-file", &*absent], "cannot read"),
        (
            vec!["--store", "redis+cluster://localhost", "--store-namespace", "a b"],
            "namespace has to be",
        ),
        (vec!["--store", "disk"], "unknown store"),
        (vec!["--http", "nowhere"], "cannot listen on nowhere"),
        (vec![&*good, "--threads", "0"], "a number from 1 to 1024"),
    ] {
        let mut all = FREE.to_vec();
        if args[0] == "--http" {
            all.drain(..2);
        }
        all.extend(&args);
        let mut daemon = Daemon::start(&all, &[]);
        daemon.wait_for(expected);
        assert_eq!(daemon.end().code(), Some(2), "{args:?}");
    }
}

#[test]
fn environment_sets_options_without_flags() {
    let folder = Folder::new("serve-env");
    let policy = folder.file("policy.toml", QUOTA);
    let mut environment = vec![("TIDEGATE_POLICY", policy.as_str()), ("TIDEGATE_LOG", "json")];
    environment.extend([("TIDEGATE_HTTP", "127.0.0.1:0"), ("TIDEGATE_UNIX", "off")]);
    environment.extend([("TIDEGATE_GRPC", "off"), ("TIDEGATE_ADMIN", "off")]);
    let mut daemon = Daemon::start(&["--resp", "off"], &environment);
    let line = daemon.wait_for("listening");
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((event["level"].as_str(), event["listener"].as_str()), (Some("INFO"), Some("http")));
    assert!(Path::new(&policy).exists());
}

#[test]
fn second_signal_stops_at_once() {
    let mut daemon = Daemon::start(&FREE, &[]);
    let line = daemon.wait_for("curl -i ");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
    // A client whose request does not end.
    let mut slow = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(
        &mut slow,
        b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n",
    )
    .unwrap();
    // After this response the daemon has read the request above.
    assert_eq!(
        curl(&format!("http://{address}/v1/check"), r#"{"attributes":{"user":"bob"}}"#),
        200
    );
    daemon.send("-TERM");
    daemon.wait_for("stopping");
    daemon.send("-TERM");
    assert_eq!(daemon.end().code(), Some(1));
}
