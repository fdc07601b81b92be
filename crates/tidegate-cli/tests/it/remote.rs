//! `tidegate admin --at` and `tidegate ping --at`, against daemons with TLS, tokens and client
//! certificates.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tidegate_redis_servers::{Authority, Certificate};

use crate::run::{Ended, command, finish};
use crate::serve::{Daemon as Process, address};

pub(crate) const POLICY: &str = r#"
[[rule]]
name   = "search"
domain = "api"
key    = ["user"]
window = { max = 2, per = "1h" }

[[rule]]
name   = "a/b é%?"
domain = "x y"
key    = ["user"]
window = { max = 2, per = "1h" }

[[rule]]
name   = "turns"
domain = "game"
key    = ["user"]
quota  = { max = 1, per = "round" }
"#;

/// A daemon with an admin listener, and a folder with the files of its clients.
pub(crate) struct Daemon {
    pub(crate) folder: PathBuf,
    process: Process,
    /// The address of the admin listener.
    pub(crate) address: String,
}

impl Daemon {
    /// Starts one with these flags; a flag `--tokens` has the files of [`new_folder`].
    pub(crate) fn start(folder: PathBuf, flags: &[&str]) -> Self {
        fs::write(folder.join("policy.toml"), POLICY).unwrap();
        let mut serve = clean(command(&folder));
        serve.args(["serve", "policy.toml", "--http", "off", "--grpc", "off", "--resp", "off"]);
        serve.args(["--admin", "127.0.0.1:0"]).args(flags);
        if !flags.contains(&"--unix") {
            serve.args(["--unix", "off"]);
        }
        let serve = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process::of(serve.spawn().unwrap());
        let line = process.wait_for("listener=\"admin\"");
        Self { folder, process, address: address(&line).to_owned() }
    }

    /// Runs `tidegate` with these arguments; those that say where the daemon is come second.
    pub(crate) fn run(&self, args: &[&str], at: &[&str]) -> Ended {
        let (command, rest) = args.split_at(1);
        tidegate(&self.folder, &[command, at, rest].concat())
    }

    pub(crate) fn https(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn http(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn tidegate(folder: &Path, args: &[&str]) -> Ended {
    finish(clean(command(folder)).args(args), b"")
}

/// Removes the `TIDEGATE_*` variables of the environment.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command
}

/// A folder with a short path, for sockets; with tokens `ops` (admin) and `look` (inspect), whose
/// secrets are in the files of these names, and with `other`, which no daemon knows.
pub(crate) fn new_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tgm-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    for (name, scope, file) in [
        ("ops", "admin", "tokens.toml"),
        ("look", "inspect", "tokens.toml"),
        ("other", "admin", "others.toml"),
    ] {
        let new = ["token", "new", name, "--scope", scope, "--file", file];
        let secret = tidegate(&folder, &new).with(0).out;
        let path = folder.join(name);
        fs::write(&path, secret).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

/// Adds a certificate to a folder, as `NAME.crt` and `NAME.key`.
pub(crate) fn copy(certificate: &Certificate, folder: &Path, name: &str) {
    fs::copy(&certificate.path, folder.join(format!("{name}.crt"))).unwrap();
    let key = folder.join(format!("{name}.key"));
    fs::copy(&certificate.key, &key).unwrap();
    fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
}

/// A folder with tokens, and with `ca.crt`, `server.crt` and `client.crt`.
pub(crate) fn folder_with_certificates() -> (PathBuf, Authority) {
    let (folder, authority) = (new_folder(), Authority::new("test authority"));
    fs::copy(authority.path(), folder.join("ca.crt")).unwrap();
    copy(&authority.server("limits"), &folder, "server");
    copy(&authority.issue("operator").write(), &folder, "client");
    (folder, authority)
}

pub(crate) const TLS: [&str; 4] = ["--tls-cert", "server.crt", "--tls-key", "server.key"];

/// Every command, with all of its kinds, and mistakes.
const SCRIPT: &[&[&str]] = &[
    &["status"],
    &["policy"],
    &["rules"],
    &["change", "search", "--domain", "api", "window.max = 3"],
    &["change", "search", "--domain", "api", "window.max = 3"],
    &["change", "a/b é%?", "--domain", "x y", "window.max = 3", "mode = 'shadow'"],
    &["change", "unknown", "mode = 'shadow'"],
    &["change", "search", "--domain", "api", "window.max = 0"],
    &["change", "search", "--domain", "api", "{}"],
    &["change", "search", "--domain", "api", ""],
    &["change", "search", "--domain", "api", "x = "],
    &["policy", "--edits"],
    &["policy", "--drop-edits"],
    &["policy", "--apply", "policy.toml"],
    &["policy", "--apply", "bad.toml"],
    &["policy", "--apply", "brace.toml"],
    &["policy", "--apply", "empty.toml"],
    &["policy", "--apply", "other.toml"],
    &["policy", "--apply", "gone.toml"],
    &["override", "search", "--domain", "api", "--key", "user=ada", "max = 4"],
    &["override", "search", "--domain", "api", "--key", "user=eve", "--unlimited", "--now"],
    &["override"],
    &["override", "search", "--domain", "api", "--key", "user=ada", "--drop"],
    &["override", "search", "--domain", "api", "--key", "user=ada", "--drop"],
    &["ban", "--domain", "api", "--match", "user=eve", "--match", "user=bob", "--reason", "no"],
    &["ban", "--domain", "api", "--match", "user=eve", "--for", "never"],
    &["ban"],
    &["unban", "--domain", "api", "--match", "user=eve", "--match", "user=bob"],
    &["unban", "--domain", "api", "--match", "user=eve"],
    &["ban"],
    &["reset", "--domain", "api", "--attr", "user=ada"],
    &["reset", "--all"],
    &["reset", "--all", "--domain", "nowhere"],
    &["round", "game"],
    &["round", "nowhere"],
    &["audit"],
    &["audit", "--since", "3"],
    &["top"],
    &["top", "--count", "1"],
];

/// Runs every command as text and as JSON against a daemon of its own over its socket, and against
/// one that is started with these flags, at a URL.
fn assert_same_as_over_the_socket(folder: PathBuf, flags: &[&str], at: &[&str]) {
    let local = Daemon::start(new_folder(), &["--unix", "s.sock"]);
    let remote = Daemon::start(folder, flags);
    for daemon in [&local, &remote] {
        let file = |name: &str, text: &str| fs::write(daemon.folder.join(name), text).unwrap();
        file("bad.toml", "[[rule]]\nname = 'x'\nburst = 1\n");
        file("brace.toml", "{\"policy\":\"\"}");
        file("empty.toml", "");
        file("other.toml", &format!("[server]\nmax_keys = 1000\n{POLICY}"));
    }
    let url = remote.https();
    let at = &[&["--at", &url], at].concat();
    for (number, args) in SCRIPT.iter().enumerate() {
        for format in ["text", "json"] {
            let args = [&["admin", "--format", format], *args].concat();
            let over_socket = local.run(&args, &["--socket", "s.sock"]);
            let over_http = remote.run(&args, at);
            assert_eq!(over_http.code, over_socket.code, "{number} {args:?} {over_http:#?}");
            let (out, expected) =
                (without_varying(&over_http.out), without_varying(&over_socket.out));
            assert_eq!(out, expected, "{number} {args:?} {over_http:#?}");
            // The rest may be hints.
            let expected = without_varying(&over_socket.err);
            assert!(
                without_varying(&over_http.err).starts_with(&expected),
                "{number} {args:?} {over_http:#?} {over_socket:#?}"
            );
        }
    }
}

/// The output without times, sizes, addresses and names of clients.
fn without_varying(text: &str) -> String {
    if let Ok(mut json) = serde_json::from_str::<Value>(text) {
        remove_varying(&mut json);
        return json.to_string();
    }
    let lines = text.lines().filter(|line| {
        let first = line.split(' ').next().unwrap_or_default();
        !["version", "keys", "unix", "admin"].contains(&first)
    });
    let lines = lines.map(|line| {
        // Of the audit log: a number, a time and a client.
        match line.split_once(": ") {
            Some((head, rest)) if head.contains("Z user ") || head.contains("Z token ops at ") => {
                format!("{}: {rest}", head.split(' ').next().unwrap_or_default())
            }
            Some((head, rest)) if head.contains("Z certificate operator at ") => {
                format!("{}: {rest}", head.split(' ').next().unwrap_or_default())
            }
            _ => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn remove_varying(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            for name in [
                "time",
                "at",
                "uptime_ms",
                "keys",
                "bytes",
                "actor",
                "listeners",
                "tokens",
                "last_ok",
            ] {
                fields.remove(name);
            }
            fields.values_mut().for_each(remove_varying);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_varying),
        _ => {}
    }
}

#[test]
fn every_command_does_with_a_token_what_it_does_over_the_socket() {
    let (folder, _authority) = folder_with_certificates();
    let flags = [&TLS[..], &["--tokens", "tokens.toml"]].concat();
    assert_same_as_over_the_socket(folder, &flags, &["--token-file", "ops", "--ca", "ca.crt"]);
}

#[test]
fn every_command_does_with_a_certificate_what_it_does_over_the_socket() {
    let (folder, _authority) = folder_with_certificates();
    let flags = [&TLS[..], &["--tls-client-ca", "ca.crt"]].concat();
    let at = ["--ca", "ca.crt", "--cert", "client.crt", "--key", "client.key"];
    assert_same_as_over_the_socket(folder, &flags, &at);
}

#[test]
fn the_audit_log_names_the_token() {
    let (folder, _authority) = folder_with_certificates();
    let flags = ["--tokens", "tokens.toml", "--tls-client-ca", "ca.crt"];
    let daemon = Daemon::start(folder, &[&TLS[..], &flags].concat());
    let url = daemon.https();
    let at = ["--at", &url, "--ca", "ca.crt", "--cert", "client.crt", "--key", "client.key"];
    let at = [&at[..], &["--token-file", "ops"]].concat();
    daemon.run(&["admin", "round", "game"], &at).with(0).out(&["round 1 of game is closed"]);
    let audit = daemon.run(&["admin", "audit"], &at).with(0);
    audit.out(&["token ops at 127.0.0.1: round 1 of domain `game` closed"]);
}

#[test]
fn the_scope_inspect_may_look_and_not_change() {
    let (folder, _authority) = folder_with_certificates();
    let daemon = Daemon::start(folder, &[&TLS[..], &["--tokens", "tokens.toml"]].concat());
    let url = daemon.https();
    let at = ["--at", &url, "--token-file", "look", "--ca", "ca.crt"];
    for args in
        [&["status"][..], &["policy"], &["rules"], &["override"], &["ban"], &["audit"], &["top"]]
    {
        let _ = daemon.run(&[&["admin"], args].concat(), &at).with(0);
    }
    for args in [
        &["policy", "--apply", "policy.toml"][..],
        &["policy", "--drop-edits"],
        &["change", "search", "--domain", "api", "window.max = 3"],
        &["override", "search", "--domain", "api", "--key", "user=a", "--unlimited"],
        &["override", "search", "--domain", "api", "--key", "user=a", "--drop"],
        &["ban", "--match", "user=a"],
        &["unban", "--match", "user=a"],
        &["reset", "--all"],
        &["round", "game"],
    ] {
        let ended = daemon.run(&[&["admin"], args].concat(), &at).with(1).silent_out();
        ended.err(&["error: the client lacks the scope `admin`", "hint", "`inspect`"]);
    }
    let audit = daemon.run(&["admin", "audit", "--format", "json"], &at).with(0).json();
    assert_eq!(audit["version"], 0);
}

#[test]
fn a_policy_of_16_mib_can_be_applied() {
    let (folder, _authority) = folder_with_certificates();
    let daemon = Daemon::start(folder, &[&TLS[..], &["--tokens", "tokens.toml"]].concat());
    let url = daemon.https();
    let at = ["--at", &url, "--token-file", "ops", "--ca", "ca.crt"];
    let changed = POLICY.replace("max = 2", "max = 9");
    let line = format!("#{}\n", "x".repeat(99));
    let mut large = changed.clone();
    while large.len() + line.len() < 16 << 20 {
        large.push_str(&line);
    }
    large.push_str(&"#".repeat((16 << 20) - large.len()));
    fs::write(daemon.folder.join("large.toml"), &large).unwrap();
    let apply = ["admin", "policy", "--apply", "large.toml"];
    daemon.run(&apply, &at).with(0).out(&["in force: 2 changes"]);
    large.push('#');
    fs::write(daemon.folder.join("large.toml"), &large).unwrap();
    daemon.run(&apply, &at).with(1).err(&["larger than 16777216 bytes"]);
    daemon.run(&["admin", "policy"], &at).with(0).out(&["max = 9"]);
}

#[test]
fn ping_needs_no_token_and_prints_the_version_to_those_who_may_know_it() {
    let (folder, _authority) = folder_with_certificates();
    let daemon = Daemon::start(folder, &[&TLS[..], &["--tokens", "tokens.toml"]].concat());
    let url = daemon.https();
    let at = ["--at", &url, "--ca", "ca.crt"];
    let pong = format!("pong from https://{}\n", daemon.address);
    assert_eq!(daemon.run(&["ping"], &at).with(0).silent_err().out, pong);
    let with = |file: &'static str| [&at[..], &["--token-file", file]].concat();
    let pong = format!("pong from tidegate {} at 2", env!("CARGO_PKG_VERSION"));
    daemon.run(&["ping"], &with("look")).with(0).silent_err().out(&[&pong]);
    let json = daemon.run(&["ping", "--format", "json"], &with("look")).with(0).json();
    assert_eq!((&json["ok"], &json["ready"]), (&true.into(), &true.into()));
    assert_eq!(json["serviceVersion"], env!("CARGO_PKG_VERSION"));
    let unknown = daemon.run(&["ping"], &with("other")).with(0);
    unknown.out(&["pong from https://"]).err(&["note:", "is not known"]);
    daemon.run(&["ping"], &["--at", "https://127.0.0.1:1"]).with(1).silent_out();
}

#[test]
fn files_and_url_may_come_from_the_environment() {
    let daemon = Daemon::start(new_folder(), &["--tokens", "tokens.toml"]);
    let url = daemon.http();
    let run = |args: &[&str], environment: &[(&str, &str)]| {
        let mut tidegate = clean(command(&daemon.folder));
        finish(tidegate.args(args).envs(environment.iter().copied()), b"")
    };
    let both = [("TIDEGATE_AT", &*url), ("TIDEGATE_TOKEN_FILE", "ops")];
    run(&["admin", "rules"], &both).with(0).out(&["api/search"]);
    let at = ["admin", "rules", "--at", &url];
    // The variable of the daemon's socket is set wherever the daemon runs.
    let _ = run(&at, &[("TIDEGATE_UNIX", "s.sock"), ("TIDEGATE_TOKEN_FILE", "ops")]).with(0);
    let socket = ["admin", "rules", "--socket", "s.sock"];
    run(&socket, &both).with(2).err(&["cannot connect to s.sock"]);
    let two = [both[0], both[1], ("TIDEGATE_UNIX", "s.sock")];
    run(&["admin", "rules"], &two).with(2).err(&["TIDEGATE_AT and TIDEGATE_UNIX", "--at URL"]);
    let exclusive = [&at[..], &["--socket", "s.sock"]].concat();
    run(&exclusive, &[]).with(2).silent_out().err(&["--at and --socket exclude each other"]);
    run(&["admin", "rules", "--ca", "x"], &[]).with(2).err(&["--ca", "--at https://HOST:PORT"]);
}
