//! Runs the guide to moving from redis-cell.

use std::net::TcpListener;
use std::process::Command;

use crate::guide::Guide;

#[test]
fn commands_of_the_guide_print_what_it_shows() {
    assert!(
        Command::new("redis-cli").arg("--version").output().is_ok(),
        "no redis-cli: scripts/install installs it"
    );
    let text = include_str!("../../../../docs/guides/moving-from-redis-cell.md");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = std::env::temp_dir().join(format!("tidegate-redis-cell-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = text.replace("6380", &port.to_string());
    let prelude = format!(
        "cargo() {{ :; }}\ntidegate() {{ exec '{}' \"$@\"; }}",
        env!("CARGO_BIN_EXE_tidegate")
    );
    let guide = Guide {
        text: &text,
        folder: &folder,
        prelude: &prelude,
        without_varying: |line| line.trim_end().to_owned(),
    };
    guide.run(Command::new("bash"));
    std::fs::remove_dir_all(&folder).unwrap();
}
