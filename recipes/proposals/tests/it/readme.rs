//! The README's commands and outputs.

use std::net::TcpListener;
use std::process::Command;

use crate::support::Scratch;

#[path = "../../../../scripts/guide.rs"]
mod run;

use run::Guide;

#[test]
fn readme_commands_print_what_it_shows() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (desk, ai) = (free(), free());
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let (desk_address, ai_address) = (address(&desk), address(&ai));
    drop((desk, ai));
    let text = include_str!("../../README.md")
        .replace("127.0.0.1:8080", &desk_address)
        .replace("127.0.0.1:9000", &ai_address)
        .replace(
            "target/debug/tidegate-proposals-stand-in",
            env!("CARGO_BIN_EXE_tidegate-proposals-stand-in"),
        )
        .replace(
            "target/debug/tidegate-proposals ",
            concat!(env!("CARGO_BIN_EXE_tidegate-proposals"), " "),
        );
    let folder = Scratch::new();
    let guide = Guide {
        text: &text,
        folder: &folder.0,
        prelude: "cargo() { :; }",
        without_varying: ToOwned::to_owned,
    };
    guide.run(Command::new("bash"));
}
