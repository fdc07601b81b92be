//! Runs the guide to operating the daemon.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::guide::Guide;
use crate::run;

#[test]
fn commands_of_the_guide_print_what_it_shows() {
    let folder = run::folder("operating", &[]);
    let built = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().unwrap();
    // The path of a socket must be short, so it is outside of the build directory.
    let socket = std::env::temp_dir().join(format!("tgo-{}.sock", std::process::id()));
    let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [admin, http] = free.each_ref().map(|it| it.local_addr().unwrap().to_string());
    drop(free);
    let mut shell = Command::new("bash");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            shell.env_remove(name);
        }
    }
    shell.env("PATH", format!("{}:{}", built.display(), std::env::var("PATH").unwrap()));
    shell.env("TIDEGATE_UNIX", &socket).env("TIDEGATE_ADMIN", admin);
    shell.env("TIDEGATE_HTTP", http).env("TIDEGATE_GRPC", "off").env("TIDEGATE_RESP", "off");
    let guide = Guide {
        text: include_str!("../../../../docs/guides/operating.md"),
        folder: &folder,
        // The usual ports may be in use where tests run.
        prelude: "curl() {
            set -- \"${@//127.0.0.1:9090/$TIDEGATE_ADMIN}\"
            command curl \"${@//127.0.0.1:8080/$TIDEGATE_HTTP}\"
        }
        tidegate() {
            set -- \"${@//127.0.0.1:9090/$TIDEGATE_ADMIN}\"
            # In the background it is in a subshell, which this replaces.
            if [ \"$1\" = serve ]; then exec tidegate \"$@\"; fi
            command tidegate \"$@\"
        }",
        without_varying,
    };
    guide.run(shell);
}

/// A line without what varies: times of day, uptime, table size and user.
fn without_varying(line: &str) -> String {
    let words = line.split(' ').map(|word| {
        let bare = word.trim_end_matches(':');
        // Milliseconds that end in zeros are written without those.
        let is_time =
            (20..=24).contains(&bare.len()) && bare.ends_with('Z') && bare.as_bytes()[10] == b'T';
        if is_time { word.replace(bare, "TIME") } else { word.to_owned() }
    });
    let line = words.collect::<Vec<_>>().join(" ");
    let line = match line.split_once(", up ") {
        Some((version, _)) => version.to_owned(),
        None => line,
    };
    let line = match line.split_once(" bytes") {
        Some((before, _)) if before.starts_with("keys ") => {
            before.rsplit_once(' ').unwrap().0.to_owned()
        }
        _ => line,
    };
    match line.split_once("TIME user ") {
        Some((before, after)) => {
            format!("{before}TIME user {}", after.split_once(": ").unwrap_or(("", after)).1)
        }
        None => line,
    }
}
