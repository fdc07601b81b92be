//! The commands and outputs of the guides about WebSockets and the guard. Their Rust code is tested
//! as documentation.

use std::net::TcpListener;
use std::process::Command;

#[path = "../../../../scripts/guide.rs"]
mod run;

use run::Guide;

#[test]
fn commands_of_the_guide_about_websockets_print_what_it_shows() {
    follow("websockets", include_str!("../../../../docs/guides/websockets.md"));
}

#[test]
fn commands_of_the_guide_about_the_guard_print_what_it_shows() {
    follow("guard", include_str!("../../../../docs/guides/replace-an-upgrade-guard.md"));
}

fn follow(name: &str, text: &str) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = text.replace("127.0.0.1:3000", &address).replace(
        "target/debug/tidegate-upgrade-guard",
        env!("CARGO_BIN_EXE_tidegate-upgrade-guard"),
    );
    let guide = Guide {
        text: &text,
        folder: &folder,
        prelude: "cargo() { :; }",
        without_varying: ToOwned::to_owned,
    };
    guide.run(Command::new("bash"));
    std::fs::remove_dir_all(&folder).unwrap();
}
