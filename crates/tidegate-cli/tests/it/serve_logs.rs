//! The daemon's log: no client can flood it, and JSON has values.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tidegate::durable::FileOptions;
use tidegate::policy::Policy;
use tidegate::{
    Request, StoreEngine, Timestamp,
    clock::{Clock as _, ManualClock, SystemClock},
};
use tidegate_proto::ipc::encode_text;

use crate::serve::{Daemon, Folder, address};

const POLICY: &str = "[[rule]]\nname = 'all'\ncooldown = '1s'\n";

fn args<'a>(policy: &'a str, unix: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec![policy, "--http", "off", "--grpc", "127.0.0.1:0", "--resp", "off"];
    args.extend(["--unix", unix, "--admin", "off"]);
    args.extend(more);
    args
}

/// Stops the daemon, and returns the rest of its log.
fn rest(mut daemon: Daemon) -> Vec<String> {
    daemon.send("-TERM");
    let mut log = String::new();
    daemon.stderr.read_to_string(&mut log).unwrap();
    log.lines().map(Into::into).collect()
}

/// How many lines are about an event, and how many more were left out.
fn logged(log: &[String], event: &str) -> (usize, usize) {
    let (reports, lines): (Vec<_>, Vec<_>) =
        log.iter().filter(|it| it.contains(event)).partition(|it| it.contains("left out"));
    let count = |line: &&String| {
        line.split("lines=").nth(1).unwrap().split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    (lines.len(), reports.iter().map(count).sum())
}

#[test]
fn a_dependency_cannot_flood_the_log() {
    let folder = Folder::new("log-pings");
    let policy = folder.file("policy.toml", POLICY);
    let mut daemon = Daemon::start(&args(&policy, "off", &[]), &[]);
    let grpc = address(&daemon.wait_for("listener=\"grpc\"")).to_owned();
    let mut stream = TcpStream::connect(grpc).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    // Acknowledgements of pings that were never sent, and then a ping.
    stream.write_all(&b"\0\0\x08\x06\x01\0\0\0\0\0\0\0\0\0\0\0\0".repeat(20_000)).unwrap();
    stream.write_all(b"\0\0\x08\x06\0\0\0\0\0marker!!").unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"marker!!") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    drop(stream);
    let log = rest(daemon);
    let (lines, left_out) = logged(&log, "PING ack");
    assert!((1..=500).contains(&lines), "{lines}");
    assert_eq!(lines + left_out, 20_000);
}

#[test]
fn clients_of_the_local_socket_cannot_flood_the_log() {
    let folder = Folder::new("log-socket");
    let (policy, socket) = (folder.file("policy.toml", POLICY), folder.path("s.sock"));
    let mut daemon = Daemon::start(&args(&policy, &socket, &[]), &[]);
    daemon.wait_for("listener=\"unix\"");
    for _ in 0..2_000 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(&encode_text("{]").unwrap()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    let log = rest(daemon);
    let (lines, left_out) = logged(&log, "bad request");
    assert!((1..=500).contains(&lines), "{lines}");
    assert_eq!(lines + left_out, 2_000);
}

#[test]
fn a_reload_that_changes_many_rules_does_not_flood_the_log() {
    let rules = |max: u32| -> String {
        let rule = |number| {
            let window = format!("window = {{ max = {max}, per = '1h' }}");
            format!("[[rule]]\nname = 'r{number}'\nkey = ['k{number}']\n{window}\n")
        };
        (0..3_000).map(rule).collect()
    };
    let folder = Folder::new("log-reload");
    let policy = folder.file("policy.toml", &rules(1));
    let mut daemon = Daemon::start(&args(&policy, "off", &[]), &[]);
    daemon.wait_for("listening");
    folder.file("policy.toml", &rules(2));
    daemon.send("-HUP");
    let mut lines = 0;
    loop {
        let mut line = String::new();
        let read = std::io::BufRead::read_line(&mut daemon.stderr, &mut line).unwrap();
        assert!(read > 0, "the log ends after {lines} lines");
        lines += 1;
        if line.contains("policy reloaded") {
            break;
        }
    }
    assert!(lines < 500, "{lines}");
    let log = rest(daemon);
    assert!(log.iter().any(|line| line.contains("log lines left out")), "{log:?}");
}

#[test]
fn start_errors_are_events_where_the_log_is_json() {
    let folder = Folder::new("log-start");
    let wrong =
        folder.file("wrong.toml", "[[rule]]\nname = 'a'\nwindow = { max = 0, per = '1h' }\n");
    let right = folder.file("right.toml", POLICY);
    let cases: [&[&str]; 3] = [
        &[&wrong],
        &[&right, "--store", "disk:/x"],
        &[&right, "--http", "192.0.2.1:1", "--grpc", "off", "--resp", "off", "--unix", "off"],
    ];
    for case in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--log", "json"])
            .args(case)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let log = String::from_utf8(output.stderr).unwrap();
        let events: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let last = events.last().expect("an event");
        assert_eq!((&last["level"], &last["message"]), (&"ERROR".into(), &"cannot start".into()));
        assert!(last["error"].as_str().unwrap().contains("error"), "{log}");
    }
}

#[test]
fn json_events_have_values_and_not_debug_text() {
    let folder = Folder::new("log-json");
    let (policy, socket) = (folder.file("policy.toml", POLICY), folder.path("s.sock"));
    let args = args(&policy, &socket, &["--log", "json", "--log-level", "debug"]);
    let mut daemon = Daemon::start(&args, &[]);
    daemon.wait_for("\"unix\"");
    let check = r#"{"type":"check","protocolVersion":1,"attributes":{}}"#;
    for text in [check, check, "{\"a\\\"\n"] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(&encode_text(text).unwrap()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    let log = rest(daemon);
    let event = |message: &str| -> Value {
        let line = log.iter().find(|it| it.contains(&format!("\"message\":\"{message}\"")));
        serde_json::from_str(line.unwrap_or_else(|| panic!("no {message} in {log:#?}"))).unwrap()
    };
    let denied = event("denied");
    assert_eq!((&denied["domain"], &denied["rule"]), (&"default".into(), &"all".into()));
    assert!(denied["retry_after_ms"].as_u64().is_some(), "{denied}");
    let ended = event("connection ended");
    assert_eq!(ended["ended"], "closed by the peer");
    for line in &log {
        let event: Value = serde_json::from_str(line).unwrap();
        for (name, value) in event.as_object().unwrap() {
            let text = value.as_str().unwrap_or_default();
            assert!(!text.contains("Some(") && !text.contains("\\\""), "{name}: {line}");
        }
    }
}

/// A store whose last entry was written at this time.
fn store_written_at(at: Timestamp, folder: &Folder) -> String {
    let policy = "[[rule]]\nname = 'calls'\nquota = { max = 9, per = 'day' }\n";
    let path = folder.path("store");
    let store = FileOptions::default().open(path.as_ref()).unwrap();
    let policy = Policy::from_toml(policy).unwrap();
    let engine =
        StoreEngine::builder(policy).store(store).clock(ManualClock::new(at)).build().unwrap();
    assert!(engine.check(&Request::new("default", &[])).block().unwrap().is_allowed());
    format!("file:{path}")
}

#[test]
fn a_clock_that_does_not_fit_the_ledger_is_logged_at_the_start() {
    let now = SystemClock::new().now();
    let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
    let ago =
        |time: Duration| Timestamp::from_nanos(now.as_nanos() - time.as_secs() * 1_000_000_000);
    let cases = [
        (now.saturating_add(days(400)), Some(("ledger_is_ahead_s=", "ledger is in the future"))),
        (now.saturating_add(Duration::from_secs(120)), Some(("ledger_is_ahead_s=", "future"))),
        (ago(days(400)), Some(("clock_is_ahead_s=", "clock is far ahead"))),
        (ago(days(61)), Some(("clock_is_ahead_s=", "clock is far ahead"))),
        // A daemon may be stopped for weeks.
        (ago(days(59)), None),
        (now, None),
    ];
    for (number, (written, expected)) in cases.into_iter().enumerate() {
        let folder = Folder::new(&format!("log-clock-{number}"));
        let store = store_written_at(written, &folder);
        let policy = folder.file("policy.toml", POLICY);
        let mut daemon = Daemon::start(&args(&policy, "off", &["--store", &store]), &[]);
        let mut log = Vec::new();
        while log.last().is_none_or(|line: &String| !line.contains("listening")) {
            let mut line = String::new();
            let read = std::io::BufRead::read_line(&mut daemon.stderr, &mut line).unwrap();
            assert!(read > 0, "{log:?}");
            log.push(line);
        }
        let about: Vec<_> = log.iter().filter(|line| line.contains("_is_ahead_s=")).collect();
        let Some((field, text)) = expected else {
            assert!(about.is_empty(), "{about:?}");
            continue;
        };
        let [line] = about[..] else { panic!("one line about the clock in {log:?}") };
        assert!(line.contains("WARN") && line.contains(field) && line.contains(text), "{line}");
        // What to do.
        assert!(line.contains("the clock") && line.to_lowercase().contains("set"), "{line}");
        let ahead: u64 =
            line.split(field).nth(1).unwrap().split(' ').next().unwrap().trim().parse().unwrap();
        let difference = written.as_nanos().abs_diff(now.as_nanos()) / 1_000_000_000;
        assert!(ahead.abs_diff(difference) < 3_600, "{line}");
    }
}

#[test]
fn warnings_of_a_reload_are_one_line_each_and_bounded() {
    // A rule that no request reaches is a warning.
    let rules = |count: u32| -> String {
        let rule = |number| {
            let cost = "window = { max = 5, per = '1h' }";
            format!("[[rule]]\nname = 'r{number}'\ngroup = 'g'\n{cost}\n")
        };
        (0..count).map(rule).collect()
    };
    let folder = Folder::new("log-warnings");
    let policy = folder.file("policy.toml", &rules(1));
    let mut daemon = Daemon::start(&args(&policy, "off", &[]), &[]);
    daemon.wait_for("listening");
    folder.file("policy.toml", &rules(41));
    daemon.send("-HUP");
    let mut log = Vec::new();
    while log.last().is_none_or(|line: &String| !line.contains("policy reloaded")) {
        let mut line = String::new();
        let read = std::io::BufRead::read_line(&mut daemon.stderr, &mut line).unwrap();
        assert!(read > 0, "{log:#?}");
        log.push(line);
    }
    let is_event = |line: &String| line.starts_with("20") && line.contains('Z');
    assert!(log.iter().all(is_event), "every line is an event: {log:#?}");
    let (warnings, more): (Vec<_>, Vec<_>) = log
        .iter()
        .filter(|line| line.contains("policy warning"))
        .partition(|line| line.contains("warning="));
    assert_eq!(warnings.len(), 20, "{log:#?}");
    let first = &warnings[0];
    assert!(first.contains("line=6") && first.contains("policy.toml"), "{first}");
    assert!(first.contains("hint="), "{first}");
    let [more] = more[..] else { panic!("one line about the rest: {log:#?}") };
    assert!(more.contains("warnings=20"), "{more}");
}

#[test]
fn options_for_yaml_are_flags_variables_and_settings() {
    let one = |key: &str| {
        format!(
            "domain: edge\ndescriptors: [{{key: {key}, rate_limit: {{unit: day, \
                 requests_per_unit: 1}}}}]\n"
        )
    };
    let folder = Folder::new("yaml-options");
    std::fs::create_dir_all(folder.path("p")).unwrap();
    folder.file("p/a.yaml", &one("a"));
    folder.file("p/b.yaml", &one("b"));
    let path = folder.path("p");
    let run = |more: &[&str], variable: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["validate", &path]).args(more);
        command.envs(variable.map(|value| ("TIDEGATE_MERGE_DOMAINS", value)));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = run(&[], None);
    assert_eq!(code, Some(1));
    assert!(error.contains("b.yaml:1:9: error: domain `edge` appears twice"), "{error}");
    assert!(error.contains("the first is at") && error.contains("a.yaml:1:9"), "{error}");
    assert_eq!(run(&["--merge-domains"], None).0, Some(0));
    assert_eq!(run(&[], Some("true")).0, Some(0));
    assert_eq!(run(&["--merge-domains=false"], Some("true")).0, Some(1), "flags come first");
    folder.file("p/server.toml", "[server]\nmerge_domains = true\n");
    assert_eq!(run(&[], None).0, Some(0));
    assert_eq!(run(&[], Some("false")).0, Some(1), "variables come before the file");
    // The daemon reads them in the same way, also at a reload.
    std::fs::remove_file(folder.path("p/server.toml")).unwrap();
    let serve = args(&path, "off", &["--merge-domains", "--quota-mode", "--response-metadata"]);
    let mut daemon = Daemon::start(&serve, &[]);
    daemon.wait_for("listening");
    folder.file("p/b.yaml", &one("c"));
    daemon.send("-HUP");
    daemon.wait_for("policy reloaded");
}
