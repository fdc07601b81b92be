//! Arguments, files and pipes: errors that all commands share.

use std::process::Stdio;

use crate::run::{GOOD, Watchdog, command, folder, root, tidegate, tidegate_in};

#[test]
fn invalid_usage_is_reported_on_stderr() {
    for (args, expected) in [
        (&[][..], "Usage: tidegate"),
        (&["validte", "x"], "'validate'"),
        (&["validate"], "<POLICY>"),
        (&["validate", "x", "--fromat", "json"], "'--format'"),
        (&["validate", "x", "--format", "xml"], "text, json, github"),
        (&["test", "examples/policies/relay.toml"], "<CASES>"),
        (&["explain", "x", "--attr", "ip"], "write ip=VALUE"),
        (&["explain", "x", "--attr", "=1"], "missing name"),
        (&["explain", "x", "--cost", "0"], "0 is not in 1.."),
        (&["explain", "x", "--time", "noon"], "2026-01-31T12:00:00Z"),
        (&["explain", "x", "--time", "1969-12-31T23:59:59Z"], "between 1970 and 2262"),
        (&["completions", "tcsh"], "bash"),
        (&["test", "-", "-"], "`-` is given twice"),
        (&["validate", "-", "x", "-"], "`-` is given twice"),
    ] {
        let _ = tidegate(args).with(2).err(&[expected]).silent_out();
    }
}

#[test]
fn every_command_has_short_and_long_help() {
    tidegate(&["--help"]).with(0).silent_err().out(&["Exit codes:", "Examples:", "validate"]);
    tidegate(&["--version"]).with(0).out(&[concat!("tidegate ", env!("CARGO_PKG_VERSION"))]);
    for name in ["validate", "explain", "test", "schema", "completions", "man"] {
        tidegate(&[name, "--help"]).with(0).silent_err().out(&["Examples:", "Usage: tidegate "]);
        let short = tidegate(&[name, "-h"]).with(0);
        assert!(short.out.lines().count() < 30, "{}", short.out);
    }
}

#[test]
fn unreadable_file_is_reported_with_the_reason() {
    let folder = folder("unreadable", &[("policy.toml", GOOD), ("x.test.toml", "")]);
    std::fs::create_dir(folder.join("folder")).unwrap();
    for args in [
        &["validate", "polcy.toml"][..],
        &["explain", "polcy.toml"],
        &["test", "polcy.toml", "x.test.toml"],
    ] {
        tidegate_in(&folder, args, b"")
            .with(2)
            .err(&["cannot read `polcy.toml`", "did you mean `policy.toml`?"])
            .silent_out();
    }
    tidegate_in(&folder, &["validate", "folder"], b"")
        .with(2)
        .err(&["`folder`: the folder has no policy"]);
    tidegate_in(&folder, &["test", "policy.toml", "folder"], b"").with(2).err(&["a directory"]);
    // The other files are checked all the same.
    tidegate_in(&folder, &["validate", "none", "policy.toml"], b"")
        .with(2)
        .out(&["policy.toml: ok"])
        .err(&["cannot read `none`"]);
}

#[test]
fn hostile_files_are_rejected_quickly() {
    let folder = folder("hostile", &[("policy.toml", GOOD)]);
    std::fs::write(folder.join("huge.toml"), vec![b'#'; 20 << 20]).unwrap();
    std::fs::write(folder.join("binary.toml"), b"name = \"\xff\xfe\"").unwrap();
    let deep = format!("[[case]]\n{} = 1\n", ["a"; 200_000].join("."));
    std::fs::write(folder.join("deep.toml"), deep).unwrap();
    let nested = format!("[[case]]\nname = {}", "[".repeat(200_000));
    std::fs::write(folder.join("nested.toml"), nested).unwrap();
    for (file, expected) in [
        ("huge.toml", "more than 16777216"),
        ("binary.toml", "binary.toml:1:9: error: byte 0xff is not UTF-8"),
        ("deep.toml", "the key has too many parts"),
        ("nested.toml", "nested.toml:2:"),
    ] {
        tidegate_in(&folder, &["validate", file], b"").with(1).err(&[expected]);
        let test = tidegate_in(&folder, &["test", "policy.toml", file], b"");
        test.with(2).err(&[expected]).silent_out();
        tidegate_in(&folder, &["explain", file], b"").with(2).err(&[expected]).silent_out();
    }
}

#[cfg(unix)]
#[test]
fn endless_file_is_read_up_to_the_limit() {
    let _ = tidegate(&["validate", "/dev/zero"]).with(1);
}

#[cfg(unix)]
#[test]
fn non_utf8_paths_are_accepted() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let folder = folder("not-text", &[]);
    let name = OsStr::from_bytes(b"pol\xffcy.toml");
    std::fs::write(folder.join(name), GOOD).unwrap();
    tidegate_in(&folder, &[OsStr::new("validate"), name], b"")
        .with(0)
        .out(&["pol\u{fffd}cy.toml: ok"]);
    tidegate_in(&folder, &[OsStr::new("validate"), name, OsStr::new("--format=json")], b"").with(0);
}

/// `tidegate … | head` does not panic, and the exit code stays what it would have been.
#[test]
fn closed_pipe_does_not_change_the_exit_code() {
    let bad = folder("closed-pipe", &[("bad.toml", "x = 1")]);
    for (folder, args, code) in [
        (root(), &["schema"][..], 0),
        (root(), &["--help"], 0),
        (root(), &["man"], 0),
        (root(), &["completions", "bash"], 0),
        (root(), &["validate", "examples/policies/api.toml", "--explain"], 0),
        (bad, &["validate", "bad.toml", "--format=json"], 1),
    ] {
        let mut command = command(&folder);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).spawn().unwrap();
        let _watchdog = Watchdog::of(&child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

/// Such as a full disk.
#[cfg(target_os = "linux")]
#[test]
fn unwritable_output_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = command(&root());
    command.arg("schema").stdout(full).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the output"));
}
