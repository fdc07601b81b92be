//! The tools of Redis.

use std::process::Command;

use super::Daemon;

/// The output of a tool.
fn run(tool: &str, daemon: &Daemon, arguments: &[&str]) -> String {
    let port = daemon.address.port().to_string();
    let output = Command::new(tool)
        .args(["-p", &port])
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("no {tool} ({error}): scripts/install installs it"));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {printed}{errors}");
    printed
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cli_works() {
    let daemon = Daemon::start().await;
    let cli = |arguments: &[&str]| run("redis-cli", &daemon, arguments);
    assert_eq!(cli(&["PING"]), "PONG\n");
    assert_eq!(cli(&["CL.THROTTLE", "k", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert!(cli(&["-3", "TG.CHECK", "default", "ATTR", "user", "ada"]).contains("remaining 2"));
    assert!(cli(&["TG.CHECK", "default", "ATTR", "user", "ada"]).contains("remaining\n1\n"));
    assert!(cli(&["INFO"]).contains("tidegate_version:"));
    assert!(cli(&["COMMAND", "DOCS", "cl.throttle"]).contains("max_burst"));
    assert!(cli(&["GET", "x"]).starts_with("ERR unknown command 'GET', with args"));
    // Many at once, from a file of commands.
    let pings = format!("printf 'PING\\r\\n%.0s' {} | ", "x ".repeat(1_000));
    let port = daemon.address.port();
    let piped = Command::new("bash")
        .args(["-c", &format!("{pings} redis-cli -p {port} --pipe")])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&piped.stdout).into_owned();
    assert!(printed.contains("errors: 0, replies: 1000"), "{printed}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_benchmark_is_counted_exactly() {
    let daemon = Daemon::start().await;
    for (clients, pipeline) in [("1", "1"), ("20", "1"), ("20", "16"), ("10", "100")] {
        let key = format!("{clients} {pipeline}");
        let limit = ["CL.THROTTLE", &key, "49999", "1", "86400"];
        let shape = ["-c", clients, "-P", pipeline, "-n", "20000", "-q"];
        let printed = run("redis-benchmark", &daemon, &[&shape[..], &limit].concat());
        assert!(printed.contains("requests per second"), "{printed}");
        let peek = daemon.client().integers(&[&limit[..], &["0"]].concat());
        // The tool may send a few more requests, in whole pipelines.
        assert!((29_800..=30_000).contains(&peek[2]), "{peek:?}");
        if pipeline == "1" {
            assert_eq!(peek[2], 30_000);
        }
    }
    daemon.stop().await;
}
