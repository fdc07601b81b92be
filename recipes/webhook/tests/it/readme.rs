//! The README's commands and outputs.

use std::net::TcpListener;
use std::process::Command;

#[path = "../../../../scripts/guide.rs"]
mod run;

use run::Guide;

#[test]
fn readme_commands_print_what_it_shows() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (webhook, stand_in) = (free(), free());
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let (webhook_address, stand_in_address) = (address(&webhook), address(&stand_in));
    drop((webhook, stand_in));
    let text = include_str!("../../README.md")
        .replace("127.0.0.1:8080", &webhook_address)
        .replace("127.0.0.1:9000", &stand_in_address)
        .replace(
            "target/debug/tidegate-webhook-stand-in",
            env!("CARGO_BIN_EXE_tidegate-webhook-stand-in"),
        )
        .replace(
            "target/debug/tidegate-webhook ",
            concat!(env!("CARGO_BIN_EXE_tidegate-webhook"), " "),
        );
    let folder = std::env::temp_dir().join(format!("tidegate-webhook-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut shell = Command::new("bash");
    shell.env("WEBHOOK_LISTEN", &webhook_address);
    let guide = Guide {
        text: &text,
        folder: &folder,
        prelude: "cargo() { :; }",
        without_varying: ToOwned::to_owned,
    };
    guide.run(shell);
    std::fs::remove_dir_all(&folder).unwrap();
}
