//! Runs the guide to one limit over many machines: three daemons, a Valkey server and an Envoy.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::guide::Guide;

#[test]
fn commands_of_the_guide_print_what_it_shows() {
    let built = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let [envoy, valkey] = ["envoy-1.40.0/envoy", "valkey-9.1.2/valkey-server"].map(|program| {
        let program = tools.join(program);
        assert!(program.exists(), "{} is missing: run scripts/install", program.display());
        program
    });
    // The paths of sockets must be short, so they are outside of the build directory.
    let folder = std::env::temp_dir().join(format!("tgm-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let guide = Guide {
        text: &with_free_ports(include_str!("../../../../docs/guides/many-machines.md")),
        folder: &folder,
        // A function in the background runs in a subshell; `exec` replaces that with the program.
        prelude: &format!(
            "tidegate() {{ if [ \"$1\" = serve ]; then exec '{tidegate}' \"$@\"; fi; '{tidegate}' \"$@\"; }}\n\
             valkey-server() {{ exec '{}' \"$@\"; }}\n\
             envoy() {{ exec '{}' \"$@\"; }}\n\
             trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT",
            valkey.display(),
            envoy.display(),
            tidegate = built.display(),
        ),
        without_varying: str::to_owned,
    };
    guide.run(Command::new("bash"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The guide with ports that are free here.
fn with_free_ports(text: &str) -> String {
    let mut text = text.to_owned();
    // Bound at the same time, so that they differ.
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    for (documented, listener) in ["6379", "10000", "10001"].iter().zip(&listeners) {
        let port = listener.local_addr().unwrap().port().to_string();
        for before in ["127.0.0.1:", "port_value: ", "port "] {
            let (old, new) = (format!("{before}{documented}"), format!("{before}{port}"));
            text = text.replace(&old, &new);
        }
    }
    // Ports that differ in their last digit, as the guide has them.
    let mut tens = 2_000 + std::process::id() % 1_000;
    for documented in ["808", "909"] {
        let are_free = |tens: u32| {
            (1..=3).all(|digit| TcpListener::bind(format!("127.0.0.1:{tens}{digit}")).is_ok())
        };
        tens += 1;
        while !are_free(tens) {
            tens += 1;
        }
        for before in ["127.0.0.1:", "port_value: "] {
            let (old, new) = (format!("{before}{documented}"), format!("{before}{tens}"));
            text = text.replace(&old, &new);
        }
    }
    text
}
