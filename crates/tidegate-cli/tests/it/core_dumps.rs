//! A daemon that crashes leaves no copy of its memory.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use crate::run::folder;
use crate::serve::{Daemon, FREE};

/// How a daemon ended that was sent SIGABRT, and its limits in `/proc` before that.
fn abort(name: &str, flags: &[&str], environment: &[(&str, &str)]) -> (ExitStatus, String) {
    let folder = folder(name, &[("policy.toml", crate::run::GOOD)]);
    let mut serve = Command::new("sh");
    serve.args(["-c", "ulimit -S -c $(ulimit -H -c); exec \"$@\"", "sh"]);
    serve.args([env!("CARGO_BIN_EXE_tidegate"), "serve", "policy.toml"]).args(flags).args(FREE);
    serve.current_dir(&folder).envs(environment.iter().copied());
    let child =
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut daemon = Daemon::of(child);
    daemon.wait_for("listening");
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.child.id())).unwrap();
    // Where the test may do so: the limit does not count if dumps are piped into a program.
    let process = format!("--pid={}", daemon.child.id());
    let _ = Command::new("prlimit").args([&process, "--core=unlimited"]).output();
    daemon.send("-ABRT");
    let status = daemon.child.wait().unwrap();
    let files = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name());
    let files: Vec<_> = files.filter(|name| name != "policy.toml").collect();
    assert!(status.core_dumped() || files.is_empty(), "{files:?}");
    for file in files {
        fs::remove_file(folder.join(file)).unwrap();
    }
    let limits = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    (status, limits.to_owned())
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().skip(4).collect()
}

#[test]
fn a_crash_leaves_no_core_dump() {
    let (status, limits) = abort("no-core", &[], &[]);
    assert_eq!(status.signal(), Some(6));
    assert!(!status.core_dumped());
    assert_eq!(words(&limits)[..2], ["0", "0"], "{limits}");
}

#[test]
fn core_dumps_are_left_on_if_the_operator_wants_them() {
    for (name, flags, environment) in [
        ("core-flag", &["--core-dumps"][..], &[][..]),
        ("core-variable", &[], &[("TIDEGATE_CORE_DUMPS", "true")]),
    ] {
        let (status, limits) = abort(name, flags, environment);
        assert_eq!(status.signal(), Some(6));
        // Where the system allows none, there is none to expect.
        if words(&limits)[0] == "unlimited" {
            assert!(status.core_dumped(), "{limits}");
        }
    }
}
