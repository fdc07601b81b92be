//! Runs the guide to access: tokens over HTTP and RESP.

use std::net::TcpListener;
use std::process::Command;

use crate::guide::Guide;

#[test]
fn commands_of_the_guide_print_what_it_shows() {
    for tool in ["redis-cli", "curl"] {
        let found = Command::new(tool).arg("--version").output();
        assert!(found.is_ok(), "no {tool}: scripts/install installs it");
    }
    let mut text = include_str!("../../../../docs/guides/access.md").to_owned();
    // Bound at the same time, so that they differ.
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    for (documented, listener) in ["8080", "6380", "9090"].iter().zip(&listeners) {
        text = text.replace(documented, &listener.local_addr().unwrap().port().to_string());
    }
    drop(listeners);
    let folder = std::env::temp_dir().join(format!("tidegate-access-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tidegate = env!("CARGO_BIN_EXE_tidegate");
    let guide = Guide {
        text: &text,
        folder: &folder,
        // A function in the background runs in a subshell; `exec` replaces that with the program.
        prelude: &format!(
            "tidegate() {{ if [ \"$1\" = serve ] && [ \"$3\" = --tokens ]; then exec '{tidegate}' \"$@\"; fi; \
             '{tidegate}' \"$@\"; true; }}\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"
        ),
        without_varying: |line| line.trim_end().to_owned(),
    };
    guide.run(Command::new("bash"));
    std::fs::remove_dir_all(&folder).unwrap();
}
