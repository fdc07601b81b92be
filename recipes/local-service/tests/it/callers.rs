//! The `ping` command.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use tidegate_proto::ipc::encode_text;

use crate::harness::{Folder, InProcess, command};

#[test]
fn ping_command_prints_twenty_responses() {
    let server = InProcess::usual();
    let mut ping = command();
    ping.args(["ping", "--count", "20", "--socket"]).arg(server.folder.socket());
    let output = ping.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(lines[0], format!("1: ok: version {version}, 2026-01-31T23:59:59.000Z"));
    assert_eq!(
        lines[19],
        "20: denied: Rate limit exceeded. Please wait before retrying. \
         (limit user, retry in 10000 ms)"
    );
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "10 succeeded, 10 denied\n");
}

#[test]
fn successful_ping_exits_with_0() {
    let server = InProcess::usual();
    let mut ping = command();
    let output = ping.arg("ping").env("TIDEGATE_LOCAL_SOCKET", server.folder.socket()).output();
    assert_eq!(output.unwrap().status.code(), Some(0));
}

#[test]
fn no_response_exits_with_2() {
    let folder = Folder::new();
    let mut ping = command();
    let output = ping.args(["ping", "--socket"]).arg(folder.socket()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("No such file"));
}

/// Invalid responses of a service do the client no harm.
#[test]
fn invalid_responses_exit_with_2() {
    for response in [
        Vec::new(),
        b"\xff\xff\xff\xff".to_vec(),
        b"\x00\x00\x00\x00".to_vec(),
        encode_text("{}").unwrap(),
        encode_text("nonsense").unwrap(),
        encode_text(r#"{"ok":true}"#).unwrap(),
        b"\x10\x00\x00\x00half".to_vec(),
    ] {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.socket()).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 39]).unwrap();
            stream.write_all(&response).unwrap();
        });
        let mut ping = command();
        let output = ping.args(["ping", "--socket"]).arg(folder.socket()).output().unwrap();
        serving.join().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.starts_with(b"error: "), "{output:?}");
    }
}

#[test]
fn ping_times_out_without_a_response() {
    let folder = Folder::new();
    let _listener = UnixListener::bind(folder.socket()).unwrap();
    let mut ping = command();
    ping.args(["ping", "--timeout", "50ms", "--socket"]).arg(folder.socket());
    assert_eq!(ping.output().unwrap().status.code(), Some(2));
}
