//! Runs the guides about the daemon.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::guide::Guide;

/// Runs a guide with the built command, on free ports.
fn follow(name: &str, text: &str) {
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/envoy-1.40.0/envoy");
    if text.contains("envoy -c") {
        assert!(envoy.exists(), "{} is missing: run scripts/install", envoy.display());
    }
    let mut text = text.to_owned();
    // Bound at the same time, so that they differ.
    let listeners = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    for (documented, listener) in ["8080", "8081", "9090", "10000"].iter().zip(&listeners) {
        let port = listener.local_addr().unwrap().port().to_string();
        text = text.replace(&format!("127.0.0.1:{documented}"), &format!("127.0.0.1:{port}"));
        text = text.replace(&format!("port_value: {documented}"), &format!("port_value: {port}"));
    }
    drop(listeners);
    let folder = std::env::temp_dir().join(format!("tidegate-guide-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // A function in the background runs in a subshell; `exec` replaces that with the program.
    let prelude = format!(
        "tidegate() {{ if [ \"$1\" = serve ]; then exec '{}' \"$@\"; fi; '{}' \"$@\"; }}\n\
         envoy() {{ exec '{}' \"$@\"; }}\n\
         trap 'kill $(jobs -p) 2>/dev/null' EXIT",
        env!("CARGO_BIN_EXE_tidegate"),
        env!("CARGO_BIN_EXE_tidegate"),
        envoy.display()
    );
    Guide { text: &text, folder: &folder, prelude: &prelude, without_varying: without_waits }
        .run(Command::new("bash"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A line without the wait, which depends on the time of the request.
fn without_waits(line: &str) -> String {
    let is_wait = line.starts_with("retry-after:") || line.starts_with("ratelimit:");
    let end = line.trim_end_matches(|it: char| it.is_ascii_digit());
    if is_wait { end.to_owned() } else { line.to_owned() }
}

#[test]
fn behind_envoy() {
    follow("envoy", include_str!("../../../../docs/guides/behind-envoy.md"));
}

#[test]
fn over_http() {
    follow("http", include_str!("../../../../docs/guides/http.md"));
}

#[test]
fn moving_from_ratelimit() {
    follow("ratelimit", include_str!("../../../../docs/guides/moving-from-ratelimit.md"));
}

#[test]
fn moving_from_limitador() {
    follow("limitador", include_str!("../../../../docs/guides/moving-from-limitador.md"));
}

#[test]
fn before_you_switch_a_limit_on() {
    let guide = include_str!("../../../../docs/guides/before-you-switch-a-limit-on.md");
    follow("replay", guide);
}

#[test]
fn why_was_i_denied() {
    follow("denied", include_str!("../../../../docs/guides/why-was-i-denied.md"));
}
