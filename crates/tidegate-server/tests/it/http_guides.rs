//! Runs the commands of the guides about proxies.

use std::net::TcpListener;
use std::process::Command;

#[path = "../../../../scripts/guide.rs"]
mod guide;

use guide::Guide;

use crate::http_support::example;

/// Runs a guide on free ports, with its proxy.
fn follow(text: &str, proxy: &str) {
    let found = Command::new(proxy).arg(if proxy == "nginx" { "-v" } else { "version" }).output();
    assert!(found.is_ok(), "{proxy} is missing; scripts/install installs it");
    let folder =
        std::env::temp_dir().join(format!("tidegate-guide-{proxy}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // All are bound before the first is closed, so they differ.
    let ports = [8080, 3000, 3001].map(|port| (port, TcpListener::bind("127.0.0.1:0").unwrap()));
    let mut text = text.to_owned();
    for (port, free) in &ports {
        let free = free.local_addr().unwrap().to_string();
        text = text.replace(&format!("127.0.0.1:{port}"), &free);
    }
    drop(ports);
    // `tidegate serve POLICY` is the daemon of this crate.
    let prelude = format!("tidegate() {{ exec '{}' \"$2\"; }}", example("serve").display());
    let mut shell = Command::new("bash");
    // Caddy stores files there.
    shell.env("HOME", &folder).env("XDG_DATA_HOME", &folder).env("XDG_CONFIG_HOME", &folder);
    Guide { text: &text, folder: &folder, prelude: &prelude, without_varying: without_waits }
        .run(shell);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A line without its wait, which may differ by a second.
fn without_waits(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let is_wait = lower.starts_with("retry-after:") || lower.starts_with("ratelimit:");
    let end = line.trim_end_matches(|it: char| it.is_ascii_digit());
    if is_wait { end.to_owned() } else { line.to_owned() }
}

#[test]
fn behind_nginx() {
    follow(include_str!("../../../../docs/guides/behind-nginx.md"), "nginx");
}

#[test]
fn behind_caddy() {
    follow(include_str!("../../../../docs/guides/behind-caddy.md"), "caddy");
}
