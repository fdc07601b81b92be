//! Concurrent connections: bounded in total and per user, without leaks.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::iter;
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use serde_json::json;
use tidegate_proto::ipc::encode_text;

use crate::harness::{
    Caller, Folder, InProcess, PING, Running, Setup, can_be_others, command, command_as, ping_as,
    pongs,
};

#[test]
fn connections_per_user_are_bounded() {
    let server = InProcess::start(Setup { limits: (8, 3), policy: None, ..Setup::default() });
    let mut callers: Vec<Caller> = (0..3).map(|_| server.call()).collect();
    assert!(callers.iter_mut().all(Caller::ping));
    let mut fourth = server.call();
    let response: serde_json::Value = serde_json::from_str(&fourth.next().unwrap()).unwrap();
    let error = "Too many connections.";
    assert_eq!(response, json!({ "ok": false, "error": error, "protocolVersion": 1 }));
    assert_eq!(fourth.next(), None);
    // A slot is free again when its connection has ended.
    drop(callers.pop());
    while !server.call().is_served() {}
    assert!(callers.iter_mut().all(Caller::ping), "the others are not affected");
}

#[test]
fn user_at_the_maximum_leaves_slots_for_others() {
    if !can_be_others() {
        return;
    }
    let setup = Setup { limits: (10, 8), ..Setup::default() };
    let server = InProcess::start(setup);
    let mut callers: Vec<Caller> = (0..8).map(|_| server.call()).collect();
    assert!(callers.iter_mut().all(Caller::ping));
    assert!(
        server.call().next().is_some_and(|response| response.contains("Too many connections."))
    );
    let other = ping_as(&server.folder, 20_001, 20_001, 10);
    assert_eq!(pongs(&other), 10, "{other:?}");
}

#[test]
fn connections_are_bounded_in_total() {
    if !can_be_others() {
        return;
    }
    let server = InProcess::start(Setup { limits: (4, 3), policy: None, ..Setup::default() });
    let mut callers: Vec<Caller> = (0..3).map(|_| server.call()).collect();
    assert!(callers.iter_mut().all(Caller::ping));
    // Another user takes the last slot and keeps it: the command's output is not read.
    let mut command = command_as(&server.folder, 20_001, 20_001);
    command.args(["--count", "1000000"]).stdout(std::process::Stdio::piped());
    let mut last = command.spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(last.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with(r#"{"ok":true,"#), "{line}");
    let denied = ping_as(&server.folder, 20_002, 20_002, 1);
    assert!(String::from_utf8_lossy(&denied.stdout).contains("Too many connections."));
    last.kill().unwrap();
    last.wait().unwrap();
}

#[test]
fn slow_reader_delays_no_other() {
    let server = InProcess::start(Setup { policy: None, ..Setup::default() });
    let mut slow = server.call();
    slow.stream.set_nonblocking(true).unwrap();
    // Requests until neither the service nor the socket accepts more, and no response is read.
    let frames = encode_text(PING).unwrap().repeat(100);
    while slow.stream.write(&frames).is_ok() {}
    let mut quick = server.call();
    assert_eq!(quick.pings(100), 100);
    // It is dropped: the service reads no more requests.
    slow.stream.set_nonblocking(false).unwrap();
    let refused = |written: io::Result<usize>| {
        written.err().filter(|error| error.kind() != ErrorKind::Interrupted)
    };
    let gone = iter::repeat_with(|| slow.stream.write(&frames)).find_map(refused).unwrap();
    assert!(matches!(gone.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{gone}");
    assert_eq!(quick.pings(100), 100);
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    let running = Running::start(&["--no-limit"]);
    let socket = running.folder.socket();
    let whole = encode_text(PING).unwrap();
    let cycle = |number: usize| {
        let mut caller = Caller::connect(&socket);
        match number % 4 {
            0 => {}
            // There may be no slot yet for a connection that does not wait for a response.
            1 => drop(caller.stream.write_all(&whole[..7])),
            2 => {
                drop(caller.stream.write_all(&[whole.clone(), b"\xff\xff\xff\xff".into()].concat()))
            }
            _ => {
                caller.send(PING);
                assert!(caller.next().is_some());
            }
        }
    };
    for number in 0..2_000 {
        cycle(number);
    }
    let (before_kb, before_fds) = (rss_kb(running.pid()), descriptors(running.pid()));
    for number in 0..10_000 {
        cycle(number);
    }
    assert!(running.call().ping());
    let (after_kb, after_fds) = (rss_kb(running.pid()), descriptors(running.pid()));
    println!("{before_kb} kB before, {after_kb} kB after; {before_fds} and {after_fds} open files");
    // 10 000 connections of 2 kB each would be 20 MB.
    assert!(after_kb < before_kb + 6_000, "{before_kb} kB before, {after_kb} kB after");
    assert!(after_fds < before_fds + 20, "{before_fds} open files before, {after_fds} after");
}

#[test]
fn silent_connections_cost_little() {
    let running =
        Running::start(&["--max-connections", "600", "--max-connections-per-user", "500"]);
    let before_kb = rss_kb(running.pid());
    let mut callers: Vec<UnixStream> = Vec::new();
    for _ in 0..500 {
        let mut stream = UnixStream::connect(running.folder.socket()).unwrap();
        // The length of the largest frame, without its bytes.
        stream.write_all(&65_536_u32.to_le_bytes()).unwrap();
        callers.push(stream);
    }
    assert!(Caller::connect(&running.folder.socket()).next().is_some(), "all slots are taken");
    let after_kb = rss_kb(running.pid());
    // A buffer of the stated size for each would be 32 MB.
    assert!(after_kb < before_kb + 16_000, "{before_kb} kB before, {after_kb} kB after");
}

#[test]
fn signals_shut_it_down_gracefully() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let running = Running::start(&[]);
        let mut idle = running.call();
        assert!(idle.ping());
        let folder_path = running.folder.path().to_owned();
        let socket = running.folder.socket();
        let (status, log) = running.stop_keeping(signal, |folder| {
            assert_eq!(folder.names(), Vec::<String>::new(), "nothing is left in {folder_path:?}");
        });
        assert!(status.success(), "{status} {log:#?}");
        assert!(log.last().is_some_and(|line| line.ends_with("Closing")), "{log:#?}");
        assert_eq!(idle.next(), None);
        assert!(UnixStream::connect(socket).is_err());
    }
}

/// A client that sends requests and never reads a response is cut off.
#[test]
fn client_cannot_delay_the_shutdown() {
    let running =
        Running::start(&["--no-limit", "--close-timeout", "50ms", "--write-timeout", "2s"]);
    let mut stuck = running.call();
    stuck.stream.set_nonblocking(true).unwrap();
    let frames = encode_text(PING).unwrap().repeat(100);
    while stuck.stream.write(&frames).is_ok() {}
    assert!(running.call().ping());
    let (status, log) = running.stop(Signal::SIGTERM);
    assert!(status.success(), "{status} {log:#?}");
    assert!(log.iter().any(|line| line.contains("did not end in time")), "{log:#?}");
}

/// Running out of file descriptors does not stop the service.
#[test]
fn running_out_of_descriptors_does_not_stop_it() {
    let folder = Folder::new();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 24; exec \"$0\" \"$@\""]);
    limited.arg(command().get_program());
    let running = Running::start_in(folder, limited, &["--max-connections-per-user", "100"]);
    let callers: Vec<UnixStream> =
        (0..40).map(|_| UnixStream::connect(running.folder.socket()).unwrap()).collect();
    running.wait_for("cannot accept connections", 1);
    drop(callers);
    assert!(running.call().ping());
}

fn rss_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}
