//! The dashboard in a real browser, against a running daemon.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::remote;
use crate::replay_page::is_installed;
use crate::run::{Watchdog, root};
use crate::serve::{Daemon, Folder, address};

const POLICY: &str = r#"
[[rule]]
name   = "search"
domain = "api"
key    = ["user"]
window = { max = 5, per = "1h" }
deny   = "too many searches"

[[rule]]
name   = "per-ip"
domain = "api"
key    = ["ip"]
bucket = { rate = "200/s", burst = 2000 }

[[rule]]
name    = "uploads"
domain  = "api"
match   = { route = "/upload" }
key     = ["user"]
sliding = { max = 2, per = "1m" }
mode    = "shadow"

[[rule]]
name   = "proposals"
domain = "game"
key    = ["player"]
quota  = { max = 2, per = "round" }
"#;

/// Starts a daemon with an admin listener at this address; returns it with the addresses of its
/// HTTP and admin listeners.
fn start(policy: &str, admin: &str) -> (Daemon, String, String) {
    let flags = ["--http", "127.0.0.1:0", "--grpc", "off", "--resp", "off", "--unix", "off"];
    let args = [&[policy][..], &flags, &["--admin", admin]].concat();
    let mut daemon = Daemon::start(&args, &[]);
    let http = address(&daemon.wait_for("listener=\"http\"")).to_owned();
    let admin = address(&daemon.wait_for("listener=\"admin\"")).to_owned();
    (daemon, http, admin)
}

fn script(args: &[&str]) -> Command {
    let mut node = Command::new("node");
    node.arg(root().join("clients/browser-tests/dashboard.mjs")).args(args);
    node
}

/// Runs the script, and panics with everything that is wrong.
fn run(args: &[&str]) {
    let output = script(args).output().unwrap();
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problems}");
}

#[test]
fn every_page_works_and_changes_are_seen_in_effect() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("dashboard");
    let policy = folder.file("policy.toml", POLICY);
    let (_daemon, http, admin) = start(&policy, "127.0.0.1:0");
    run(&["use", &format!("http://{admin}"), &format!("http://{http}")]);
}

#[test]
fn without_a_login_nothing_is_shown_and_inspectors_see_no_controls() {
    if !is_installed() {
        return;
    }
    let daemon = remote::Daemon::start(remote::new_folder(), &["--tokens", "tokens.toml"]);
    let [ops, look] = ["ops", "look"].map(|name| daemon.folder.join(name).display().to_string());
    run(&["login", &daemon.http(), &ops, &look]);
}

#[test]
fn a_daemon_that_goes_away_is_reported_and_found_again() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("dashboard-away");
    let policy = folder.file("policy.toml", POLICY);
    let (daemon, _http, admin) = start(&policy, "127.0.0.1:0");
    let mut daemon = Some(daemon);
    let mut node = script(&["away", &format!("http://{admin}")]);
    let node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut node = node.spawn().unwrap();
    let _watchdog = Watchdog::of(&node);
    let mut stdin = node.stdin.take().unwrap();
    for line in BufReader::new(node.stdout.take().unwrap()).lines() {
        daemon = match &*line.unwrap() {
            "stop" => None,
            "start" => Some(start(&policy, &admin).0),
            other => panic!("{other}"),
        };
        stdin.write_all(b"done\n").unwrap();
    }
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(daemon);
}
