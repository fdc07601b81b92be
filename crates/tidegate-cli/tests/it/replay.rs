//! `tidegate replay` on generated logs.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::run::{Ended, Watchdog, command, finish, folder, tidegate_in};

const SIGINT: i32 = 2;

const POLICY: &str = "[[rule]]\nname = 'per-ip'\nkey = ['ip']\nwindow = { max = 2, per = '1m' }\n";

/// A line of the Combined Log Format, this many seconds after 2024-05-12T00:00:00Z.
fn line(second: u64, ip: &str) -> String {
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!(
        "{ip} - - [12/May/2024:{hour:02}:{minute:02}:{second:02} +0000] \"GET /a?b HTTP/1.1\" 200 5 \"-\" \"x\"\n"
    )
}

/// Four requests of one address, one of another: two are denied.
fn log() -> String {
    [(0, "192.0.2.1"), (1, "192.0.2.1"), (2, "192.0.2.2"), (3, "192.0.2.1"), (4, "192.0.2.1")]
        .map(|(second, ip)| line(second, ip))
        .concat()
}

fn json_of(folder: &Path, args: &[&str], stdin: &[u8]) -> Value {
    replay(folder, args, stdin).with(0).json()
}

fn replay(folder: &Path, args: &[&str], stdin: &[u8]) -> Ended {
    tidegate_in(folder, &[&["replay", "--format=json", "policy.toml"], args].concat(), stdin)
}

/// Some fields of an object.
fn some(json: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| json[*name].clone()).collect()
}

const SUMS: [&str; 7] =
    ["requests", "unreadable", "late", "denied", "shadow_denied", "keys", "keys_denied"];

#[test]
fn json_has_the_promised_fields() {
    let folder = folder("replay-json", &[("policy.toml", POLICY), ("a.log", &log())]);
    let json = json_of(&folder, &["a.log"], b"");
    assert_eq!(some(&json, &SUMS), json!([5, 0, 0, 2, 0, 2, 1]));
    let rule = &json["rules"][0];
    assert_eq!(some(rule, &["name", "denied", "keys_denied", "keys"]), json!(["per-ip", 2, 1, 2]));
    assert_eq!(json["top_denied"][0]["key"], json!({ "ip": "192.0.2.1" }));
    assert_eq!(json["top_denied"][0]["requests"], 4);
    assert_eq!(json["worst_minutes"][0]["minute"], "2024-05-12T00:00:00Z");
    let first = &json["first_denials"][0];
    assert_eq!(
        some(first, &["input", "line", "time"]),
        json!(["a.log", 4, "2024-05-12T00:00:03Z"])
    );
    // The same structure as `tidegate explain`.
    assert_eq!(
        some(first, &["allowed", "rule", "retry_after_ms"]),
        json!([false, "per-ip", 57_000])
    );
    assert_eq!(first["rules"][0]["key"], json!({ "ip": "192.0.2.1/32" }));
    assert_eq!(json["over_time"]["denied"], json!([0, 0, 0, 1, 1]));
}

#[test]
fn text_has_the_numbers_and_the_first_denials() {
    let folder = folder("replay-text", &[("policy.toml", POLICY), ("a.log", &log())]);
    let ended = tidegate_in(&folder, &["replay", "policy.toml", "a.log"], b"").with(0);
    let expected = "\
requests        5
denied          2 (40.0 %)
keys            2, 1 of them denied
from            2024-05-12T00:00:00Z
to              2024-05-12T00:00:04Z

rules
           2 denied, 1 of 2 keys  per-ip

most denied keys
           2 of 4          ip=192.0.2.1  (per-ip)

worst minutes
           2 of 5          2024-05-12T00:00:00Z

first denials

a.log:4 at 2024-05-12T00:00:03Z
denied by rule `per-ip`
next allowed: after 57s, at 2024-05-12T00:01:00Z

rules of domain `default`:
  per-ip: denies it; retry after 57s
    key: ip = \"192.0.2.1/32\"
    state: 0 of 2 remaining, full again after 57s; the request costs 1
";
    assert!(ended.out.starts_with(expected), "{}", ended.out);
    let _ = ended.err(&["note: `a.log` is read as Combined Log Format", "read 5 lines in "]);
}

#[test]
fn every_format_and_compression_gives_the_same_numbers() {
    let of = |make: fn(u64, &str) -> String| -> String {
        [(0, "192.0.2.1"), (1, "192.0.2.1"), (2, "192.0.2.2"), (3, "192.0.2.1"), (4, "192.0.2.1")]
            .map(|(second, ip)| make(second, ip))
            .concat()
    };
    let caddy = of(|second, ip| {
        format!("{{\"ts\":{}.5,\"request\":{{\"remote_ip\":\"{ip}\"}}}}\n", 1_715_472_000 + second)
    });
    let envoy = of(|second, ip| {
        format!(
            "{{\"start_time\":\"2024-05-12T00:00:0{second}.000Z\",\"response_code\":200,\"downstream_remote_address\":\"{ip}:99\"}}\n"
        )
    });
    let traefik = of(|second, ip| {
        format!(
            "{{\"StartUTC\":\"2024-05-12T00:00:0{second}Z\",\"RequestMethod\":\"GET\",\"ClientHost\":\"{ip}\"}}\n"
        )
    });
    let json = of(|second, ip| {
        format!(
            "{{\"timestamp\":{},\"remote_addr\":\"{ip}\"}}\n",
            1_715_472_000_000 + second * 1_000
        )
    });
    let csv = format!("time,ip\n{}", of(|second, ip| format!("2024-05-12 00:00:0{second},{ip}\n")));
    let common = log().replace(" \"-\" \"x\"", "");
    let folder = folder("replay-formats", &[("policy.toml", POLICY)]);
    for (name, text, format) in [
        ("common", &common, "Common Log Format"),
        ("combined", &log(), "Combined Log Format"),
        ("caddy", &caddy, "Caddy's JSON"),
        ("envoy", &envoy, "Envoy's JSON"),
        ("traefik", &traefik, "Traefik's JSON"),
        ("json", &json, "JSON lines"),
        ("csv", &csv, "CSV"),
    ] {
        std::fs::write(folder.join("a.log"), text).unwrap();
        let ended = replay(&folder, &["a.log"], b"").with(0);
        assert_eq!(some(&ended.json(), &SUMS), json!([5, 0, 0, 2, 0, 2, 1]), "{name}");
        let _ = ended.err(&[&format!("note: `a.log` is read as {format}\n")]);
        let given = replay(&folder, &["a.log", "--log-format", name], b"").with(0);
        assert_eq!(some(&given.json(), &SUMS), json!([5, 0, 0, 2, 0, 2, 1]), "{name}");
        assert!(!given.err.contains("is read as"), "{name}");
        for tool in ["gzip", "zstd"] {
            let packed = packed(tool, text.as_bytes());
            let two = [packed.clone(), packed].concat();
            let json = json_of(&folder, &["-", "--sort"], &two);
            // A second header is a row that cannot be read.
            assert_eq!(json["requests"], 10, "{name} {tool}");
            assert_eq!(json["unreadable"], u64::from(name == "csv"), "{name} {tool}");
            assert_eq!(json["inputs"][0]["name"], "<stdin>");
        }
    }
}

/// Compressed by the tool of that name.
fn packed(tool: &str, bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(tool)
        .args(["-c", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{tool}: {error}; run scripts/install"));
    let _watchdog = Watchdog::of(&child);
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[test]
fn unreadable_lines_are_counted_and_shown_and_never_a_stop() {
    let long = "x".repeat(3 << 20);
    let text = format!("{}\n \"curl\"\n{long}\n192.0.2.1 {}", log(), &line(5, "x")[2..]);
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(b"\x00\xff\xfe\x01 garbage\n");
    let folder = folder("replay-unreadable", &[("policy.toml", POLICY)]);
    std::fs::write(folder.join("a.log"), bytes).unwrap();
    let ended = replay(&folder, &["a.log"], b"").with(0);
    let json = ended.json();
    assert_eq!(some(&json, &["requests", "unreadable", "denied"]), json!([6, 4, 3]));
    assert_eq!(json["first_unreadable"][0]["line"], 6);
    let _ = ended.err(&[
        "a.log:6: unreadable, the line is empty\n",
        "a.log:7: unreadable, the line does not begin with an address:  \"curl\"\n",
        "a.log:8: unreadable, the line is longer than 1 MiB\n",
        "a.log:10: unreadable, there is no time in brackets: ",
    ]);
}

#[test]
fn empty_logs_and_garbage_are_no_errors() {
    let folder = folder("replay-empty", &[("policy.toml", POLICY), ("empty.log", "")]);
    let ended = replay(&folder, &["empty.log"], b"").with(0);
    assert_eq!(some(&ended.json(), &SUMS), json!([0, 0, 0, 0, 0, 0, 0]));
    let _ = ended.err(&["note: `empty.log` is empty"]);
    let garbage: Vec<u8> =
        (0..100_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let ended = replay(&folder, &["-"], &garbage).with(0);
    assert_eq!(ended.json()["requests"], 0);
    let _ = ended.err(&["none of its first lines can be; --log-format names another format"]);
    let text = tidegate_in(&folder, &["replay", "policy.toml", "empty.log"], b"").with(0);
    assert!(text.out.starts_with("requests        0\ndenied          0\n"), "{}", text.out);
}

#[test]
fn a_truncated_log_is_an_error_and_what_was_read_is_reported() {
    // Several times the window of zstd, which holds back what is in it.
    let text: String =
        (0..60_000).map(|it| line(it / 10, &format!("192.0.2.{}", it * 7 % 251))).collect();
    let folder = folder("replay-truncated", &[("policy.toml", POLICY)]);
    for tool in ["gzip", "zstd"] {
        let whole = packed(tool, text.as_bytes());
        std::fs::write(folder.join("a.log"), &whole[..whole.len() / 2]).unwrap();
        let ended = replay(&folder, &["a.log"], b"").with(2);
        let json = ended.json();
        assert_eq!(json["cut_short"], true, "{tool}");
        let requests = json["requests"].as_u64().unwrap();
        assert!((1..60_000).contains(&requests), "{tool}: {requests}");
        let _ = ended.err(&["error: `a.log` was cut short after "]);
    }
}

#[test]
fn lines_out_of_order_are_put_into_order_or_late() {
    // 192.0.2.1 fills its window at 61; the lines of 0 belong to the window before.
    let times = [61, 60, 62, 0, 59];
    let text: String = times.iter().map(|second| line(*second, "192.0.2.1")).collect();
    let folder = folder("replay-order", &[("policy.toml", POLICY), ("a.log", &text)]);
    // 59 opens a window until 119, with 60 in it; 61, 62 and the late line are denied.
    let json = json_of(&folder, &["a.log"], b"");
    assert_eq!(some(&json, &["late", "denied"]), json!([1, 3]));
    // Sorted: 0 and 59; 60 and 61; 62 is denied.
    let json = json_of(&folder, &["a.log", "--sort"], b"");
    assert_eq!(some(&json, &["late", "denied"]), json!([0, 1]));
    // Without a window 60, 0 and 59 are late: all of them from 61 on.
    let json = json_of(&folder, &["a.log", "--window", "0s"], b"");
    assert_eq!(some(&json, &["late", "denied"]), json!([3, 3]));
    let json = json_of(&folder, &["a.log", "--window", "2m"], b"");
    assert_eq!(some(&json, &["late", "denied"]), json!([0, 1]));
}

#[test]
fn sorting_spills_to_files_that_are_gone_afterwards() {
    let count = 40_000;
    let text: String = (0..count)
        .map(|it| line(it * 7_919 % count / 2, &format!("10.0.{}.{}", it % 7, it % 251)))
        .collect();
    let folder = folder("replay-spill", &[("policy.toml", POLICY), ("a.log", &text)]);
    let temporary = folder.join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let sorted = json_of(&folder, &["a.log", "--sort"], b"");
    let args = ["replay", "--format=json", "policy.toml", "a.log", "--sort", "--sort-memory", "1"];
    let ended = finish(command(&folder).args(args).env("TMPDIR", &temporary), b"").with(0);
    assert_eq!(some(&ended.json(), &SUMS), some(&sorted, &SUMS));
    assert_eq!(ended.json()["requests"], count);
    // While it reads, it has written files, and they have no name.
    let mut child = command(&folder)
        .args(["replay", "policy.toml", "-", "--sort", "--sort-memory", "1"])
        .env("TMPDIR", &temporary)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _watchdog = Watchdog::of(&child);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let is_temporary = |path: &Path| path.starts_with(temporary.canonicalize().unwrap());
    let files = open
        .filter_map(|it| std::fs::read_link(it.unwrap().path()).ok())
        .filter(|it| is_temporary(it))
        .count();
    assert!(files > 0, "no temporary file is open");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(SIGINT));
    drop(stdin);
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn attributes_time_and_cost_are_read_from_given_fields() {
    let policy = "[[rule]]\nname = 'tokens'\ndomain = 'llm'\nkey = ['team']\nwindow = { max = 100, per = '1h' }\n";
    let csv = "began,who,tokens,other\n2024-05-12 00:00:00,a,60,x\n2024-05-12 00:00:01,a,60,x\n2024-05-12 00:00:02,a,40,x\n2024-05-12 00:00:03,b,x,x\n";
    let folder = folder("replay-fields", &[("policy.toml", policy), ("a.csv", csv)]);
    let args = ["a.csv", "--attr", "team=who", "--time", "began", "--cost", "tokens"];
    let json = json_of(&folder, &args, b"");
    // The only domain of the policy is that of the requests.
    assert_eq!(
        some(&json, &["domain", "requests", "denied", "undecided"]),
        json!(["llm", 4, 1, 1])
    );
    let json = json_of(&folder, &[&args[..], &["--domain", "other"]].concat(), b"");
    assert_eq!(some(&json, &["domain", "denied", "unmatched"]), json!(["other", 0, 3]));
}

#[test]
fn errors_have_a_reason_and_exit_with_2() {
    let folder = folder("replay-errors", &[("policy.toml", POLICY), ("a.log", &log())]);
    for (args, message) in [
        (&["nothing.log"][..], "error: cannot read `nothing.log`: no such file"),
        (&["."], "error: cannot read `.`: it is a directory"),
        (
            &["a.log", "--attr", "ip=client"],
            "error: cannot read `a.log`: a log in the Combined Log Format has no field `client`",
        ),
        (&["a.log", "--window", "soon"], "invalid value 'soon'"),
        (&["a.log", "--html", "no/such/folder.html"], "error: cannot write `no/such/folder.html`"),
        (&["-", "-"], "stdin can be read only once"),
        (&[], "required arguments were not provided"),
    ] {
        let _ = replay(&folder, args, b"").with(2).err(&[message]);
    }
    std::fs::write(folder.join("policy.toml"), "[[rule]]\n").unwrap();
    let _ = replay(&folder, &["a.log"], b"").with(2).err(&["policy.toml:1:"]).silent_out();
}

#[test]
fn rules_with_slots_are_left_out_with_a_warning_and_descriptors_are_named() {
    let policy = "[[rule]]\nname = 'flight'\nslots = { max = 1 }\n\n[[rule]]\nname = 'r'\nkey = ['ip']\nquota = { max = 1, per = 'round' }\n";
    let yaml = "domain: edge\ndescriptors:\n  - key: remote_address\n    rate_limit: { unit: hour, requests_per_unit: 2 }\n";
    let folder =
        folder("replay-slots", &[("policy.toml", policy), ("a.log", &log()), ("rl.yaml", yaml)]);
    let ended = replay(&folder, &["a.log"], b"").with(0).err(&[
        "warning: rule `flight` is left out: it limits requests in flight",
        "warning: the round of rule `r` never ends here",
    ]);
    assert_eq!(ended.json()["denied"], 3);
    let args = ["replay", "--format=json", "rl.yaml", "a.log", "--attr", "remote_address=ip"];
    let json = tidegate_in(&folder, &args, b"").with(0).json();
    assert_eq!(some(&json, &["domain", "denied", "keys"]), json!(["edge", 2, 2]));
    let ended = tidegate_in(&folder, &args[..4], b"").with(0);
    let _ = ended.err(&["note: domain `edge` has limits for descriptors; name their entries"]);
}

#[test]
fn the_number_of_keys_is_bounded() {
    let text: String =
        (0..5_000).map(|it| line(it / 100, &format!("10.0.{}.{}", it / 250, it % 250))).collect();
    let folder = folder("replay-bound", &[("policy.toml", POLICY), ("a.log", &text)]);
    let ended = replay(&folder, &["a.log", "--max-keys", "100"], b"").with(0);
    let json = ended.json();
    assert_eq!(json["keys_are_estimates"], true);
    assert!(json["keys"].as_u64().unwrap().abs_diff(5_000) < 400, "{}", json["keys"]);
    let _ = ended.err(&["warning: there are more than 100 keys; numbers of keys are estimates"]);
    let json = json_of(&folder, &["a.log"], b"");
    assert_eq!(some(&json, &["keys", "keys_are_estimates"]), json!([5_000, false]));
}

#[test]
fn a_pipe_is_read_as_it_comes() {
    let folder = folder("replay-pipe", &[("policy.toml", POLICY)]);
    let mut child = command(&folder)
        .args(["replay", "policy.toml", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _watchdog = Watchdog::of(&child);
    let mut stdin = child.stdin.take().unwrap();
    for piece in log().as_bytes().chunks(7) {
        stdin.write_all(piece).unwrap();
    }
    drop(stdin);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(out.contains("denied          2 (40.0 %)"), "{out}");
}
