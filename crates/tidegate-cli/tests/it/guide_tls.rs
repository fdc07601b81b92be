//! Runs the guide to TLS: openssl, curl, redis-cli, Envoy, nginx and Caddy.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::guide::Guide;

#[test]
fn commands_of_the_guide_print_what_it_shows() {
    let built = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/envoy-1.40.0/envoy");
    assert!(envoy.exists(), "{} is missing: run scripts/install", envoy.display());
    let folder = std::env::temp_dir().join(format!("tgtls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let guide = Guide {
        text: &with_free_ports(include_str!("../../../../docs/guides/tls.md")),
        folder: &folder,
        // A function in the background runs in a subshell; `exec` replaces that with the program.
        prelude: &format!(
            "tidegate() {{ exec '{}' \"$@\"; }}\n\
             envoy() {{ exec '{}' \"$@\"; }}\n\
             trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT",
            built.display(),
            envoy.display(),
        ),
        without_varying: str::to_owned,
    };
    let mut shell = Command::new("timeout");
    shell.args(["120", "bash"]);
    // Caddy stores files there.
    shell.env("HOME", &folder).env("XDG_DATA_HOME", &folder).env("XDG_CONFIG_HOME", &folder);
    guide.run(shell);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The guide with ports that are free here.
fn with_free_ports(text: &str) -> String {
    let mut text = text.to_owned();
    let documented = ["8080", "8081", "6380", "9090", "10000", "3000", "3001", "3002"];
    // Bound at the same time, so that they differ.
    let listeners = documented.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    for (documented, listener) in documented.iter().zip(&listeners) {
        let port = listener.local_addr().unwrap().port().to_string();
        for before in ["127.0.0.1:", "port_value: ", "-p "] {
            let (old, new) = (format!("{before}{documented}"), format!("{before}{port}"));
            text = text.replace(&old, &new);
        }
    }
    text
}
