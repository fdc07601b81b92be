//! The guides' commands and outputs.

use std::net::TcpListener;
use std::process::Command;

#[path = "../../../../scripts/guide.rs"]
mod guide;

use guide::Guide;

/// Runs a guide whose program is an example of this crate.
fn follow(text: &str, example: &str) {
    let exe = std::env::current_exe().unwrap();
    let program = exe.parent().unwrap().parent().unwrap().join("examples").join(example);
    assert!(program.exists(), "{} is missing: run `cargo build --examples`", program.display());
    // Any free port.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let folder =
        std::env::temp_dir().join(format!("tidegate-guide-{example}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // `cargo run … -- ADDRESS` runs the built example.
    let prelude = format!(
        "cargo() {{ if [ \"$1\" = run ]; then shift $(($# - 1)); exec '{}' \"$1\"; fi; }}",
        program.display()
    );
    Guide {
        text: &text.replace("127.0.0.1:3000", &address),
        folder: &folder,
        prelude: &prelude,
        without_varying: without_waits,
    }
    .run(Command::new("bash"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A line without its waits: a second may have passed.
fn without_waits(line: &str) -> String {
    let is_wait = line.starts_with("retry-after:") || line.starts_with("ratelimit:");
    let end = line.trim_end_matches(|it: char| it.is_ascii_digit());
    if is_wait { end.to_owned() } else { line.to_owned() }
}

#[test]
fn a_limiter_in_axum_in_ten_lines() {
    let text = include_str!("../../../../docs/guides/axum.md");
    let (_, code) = include_str!("../../examples/axum.rs").split_once("\n\n").unwrap();
    assert!(text.contains(code), "the guide's code differs from examples/axum.rs");
    follow(text, "axum");
}

#[test]
fn behind_a_proxy() {
    follow(include_str!("../../../../docs/guides/behind-a-proxy.md"), "proxied");
}
