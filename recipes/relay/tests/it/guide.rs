//! The commands and outputs of the guide. Its Rust code is tested as documentation.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

#[path = "../../../../scripts/guide.rs"]
mod run;

use run::Guide;

#[test]
fn commands_of_the_guide_print_what_it_shows() {
    let relay = env!("CARGO_BIN_EXE_tidegate-relay");
    let visit = Path::new(relay).parent().unwrap().join("examples/visit");
    assert!(visit.exists(), "{} is missing: run `cargo build --examples`", visit.display());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = std::env::temp_dir().join(format!("tidegate-relay-guide-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = include_str!("../../../../docs/guides/replace-a-relay-limiter.md")
        .replace("127.0.0.1:3000", &address.to_string())
        .replace("PINCH_RELAY_PORT=3000", &format!("PINCH_RELAY_PORT={}", address.port()))
        .replace("target/debug/examples/visit", visit.to_str().unwrap())
        .replace("target/debug/tidegate-relay", relay);
    let guide = Guide {
        text: &text,
        folder: &folder,
        prelude: "cargo() { :; }",
        without_varying: ToOwned::to_owned,
    };
    guide.run(Command::new("bash"));
    std::fs::remove_dir_all(&folder).unwrap();
}
