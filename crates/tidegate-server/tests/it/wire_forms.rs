//! Every form of a response, byte for byte: over HTTP, RESP, the local socket and the admin listener.
//!
//! `wire_forms.txt` has the requests and responses; `TIDEGATE_BLESS=1` writes it anew. Ids, times and
//! waits differ from run to run and are shown as `_`; everything else is compared as it was sent.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use tidegate_proto::ipc::encode_text;
use tidegate_server::Listener;

use crate::running::{Caller, Ending, Running, ask, exchange};

const POLICY: &str = r#"
    [server]
    unix_user_rate = "10/day"

    [[rule]]
    name   = "tokens"
    key    = ["user"]
    quota  = { max = 100, per = "day" }
    deny   = "\"100\" a day"

    [[rule]]
    name   = "watched"
    key    = ["user"]
    mode   = "shadow"
    window = { max = 1, per = "1h" }

    [[rule]]
    name   = "admins"
    match  = { role = "admin" }
    window = { max = 5, per = "1h" }

    [[rule]]
    name   = "calls"
    domain = "calls"
    slots  = { max = 1, expires = "5m" }
"#;

/// Fields whose values differ from run to run.
const MASKED: [&str; 12] = [
    "decision_id",
    "reservation",
    "lease",
    "expires_in_ms",
    "reset_after_ms",
    "retry_after_ms",
    "retryAfterMs",
    "time",
    "next_allowed",
    "fence",
    "until",
    "at",
];

const ADA: &str = r#""attributes":{"user":"ada"}"#;

#[test]
fn every_form_of_a_response_is_unchanged() {
    let running = Running::start(POLICY);
    let mut transcript = String::new();
    over_http(&running, &mut transcript);
    over_resp(&running, &mut transcript);
    over_the_local_socket(&mut running.caller(), &mut transcript);
    over_admin(&running, &mut transcript);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/wire_forms.txt");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, &transcript).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    for (got, expected) in transcript.lines().zip(expected.lines()) {
        assert_eq!(got, expected);
    }
    assert_eq!(transcript.lines().count(), expected.lines().count());
}

/// A text with the values of [`MASKED`] fields in its JSON replaced, where they are not 0 or null.
fn masked(json: &str) -> String {
    let mut text = json.to_owned();
    for field in MASKED {
        let start = format!("\"{field}\":");
        let mut from = 0;
        while let Some(found) = text[from..].find(&start) {
            from += found + start.len();
            let value = &text[from..];
            let length = match value.strip_prefix('"') {
                Some(rest) => rest.find('"').unwrap() + 2,
                None => value.find([',', '}']).unwrap(),
            };
            if !matches!(&value[..length], "0" | "null") {
                text.replace_range(from..from + length, "_");
            }
        }
    }
    text
}

/// The value of a text field in JSON.
fn field(json: &str, name: &str) -> String {
    let (_, value) = json.split_once(&format!("\"{name}\":\"")).expect(json);
    value.split('"').next().unwrap().to_owned()
}

fn over_http(running: &Running, transcript: &mut String) {
    let address = running.server().address(Listener::Http).unwrap();
    let mut post = |path: &str, shown: &str, body: &str| {
        let reply = ask(address, "POST", path, &[], body);
        let body = body.replace(path, shown);
        writeln!(transcript, "POST {shown} {body}\n{} {}", reply.status, masked(&reply.body))
            .unwrap();
        reply.body
    };
    let mut same = |path: &str, body: &str| post(path, path, body);
    same("/v1/check", &format!("{{{ADA}}}"));
    same("/v1/check", &format!("{{{ADA},\"cost\":101}}"));
    same("/v1/check/batch", &format!("{{\"requests\":[{{{ADA}}},{{{ADA},\"cost\":200}}]}}"));
    same("/v1/explain", &format!("{{{ADA},\"cost\":2}}"));
    same("/v1/explain", &format!("{{{ADA},\"cost\":200}}"));
    let reserved = same("/v1/reserve", &format!("{{{ADA},\"cost\":40}}"));
    same("/v1/reserve", &format!("{{{ADA},\"cost\":90}}"));
    let leased = same("/v1/acquire", r#"{"domain":"calls"}"#);
    same("/v1/acquire", r#"{"domain":"calls","wait_ms":0}"#);
    same("/v1/explain", r#"{"domain":"calls"}"#);
    same("/v1/usage", &format!("{{{ADA}}}"));
    same("/v1/usage", r#"{"domain":"calls"}"#);
    same("/v1/refund", "{}");
    same("/v1/check", "{\n\"cost\": x}");
    same("/v1/nothing", "{}");
    let id = field(&reserved, "reservation");
    let commit = format!("/v1/reservations/{id}/commit");
    post(&commit, "/v1/reservations/_/commit", r#"{"actual":4}"#);
    post(&commit, "/v1/reservations/_/commit", r#"{"actual":5}"#);
    let id = field(&leased, "lease");
    post(&format!("/v1/leases/{id}/renew"), "/v1/leases/_/renew", "");
}

fn over_resp(running: &Running, transcript: &mut String) {
    let address = running.server().address(Listener::Resp).unwrap();
    let mut command = |line: &str| {
        let reply = exchange(address, format!("{line}\r\n").as_bytes(), Ending::Close);
        let reply = String::from_utf8(reply).unwrap();
        let mut shown = Vec::new();
        let mut lines = reply.lines();
        let mut id = None;
        while let Some(line) = lines.next() {
            shown.push(line.to_owned());
            if !MASKED.contains(&line) {
                continue;
            }
            match lines.next().unwrap() {
                length if length.starts_with('$') && length != "$-1" => {
                    let value = lines.next().unwrap();
                    if line == "reservation" {
                        id = Some(value.to_owned());
                    }
                    shown.push("_".into());
                }
                value if matches!(value, ":0" | "$-1" | "_") => shown.push(value.into()),
                _ => shown.push(":_".into()),
            }
        }
        let line: Vec<_> = line.split(' ').map(|it| if it.len() > 20 { "_" } else { it }).collect();
        writeln!(transcript, "RESP {}\n{}", line.join(" "), shown.join(" ")).unwrap();
        id
    };
    command("TG.CHECK default ATTR user bob");
    command("TG.PEEK default ATTR user bob COST 101");
    command("TG.EXPLAIN default ATTR user bob COST 2");
    let first = command("TG.RESERVE default ATTR user bob COST 40").unwrap();
    let second = command("TG.RESERVE default ATTR user bob COST 40").unwrap();
    command("TG.RESERVE default ATTR user bob COST 40");
    command("TG.USAGE default ATTR user bob");
    command(&format!("TG.COMMIT {first} 4"));
    command(&format!("TG.COMMIT {first} 5"));
    command(&format!("TG.CANCEL {second}"));
}

fn over_the_local_socket(caller: &mut Caller, transcript: &mut String) {
    let mut send = |request: &str| {
        caller.send_bytes(&encode_text(request).unwrap());
        let reply = caller.next().unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let shown = masked(&reply).replace(&format!("\"{version}\""), "\"VERSION\"");
        writeln!(transcript, "UNIX {}\n{shown}", masked(request)).unwrap();
        reply
    };
    let eve = r#""attributes":{"user":"eve"}"#;
    send(r#"{"type":"ping"}"#);
    send(&format!("{{\"type\":\"check\",{eve}}}"));
    send(&format!("{{\"type\":\"explain\",{eve},\"cost\":2}}"));
    let reserved = send(&format!("{{\"type\":\"reserve\",{eve},\"cost\":40}}"));
    send(&format!("{{\"type\":\"reserve\",{eve},\"cost\":90}}"));
    send(&format!("{{\"type\":\"usage\",{eve}}}"));
    let id = field(&reserved, "reservation");
    send(&format!("{{\"type\":\"commit\",\"reservation\":\"{id}\",\"actual\":4}}"));
    send(r#"{"type":"admin","method":"GET","path":"/admin/v1/nothing"}"#);
    send(r#"{"type":"admin","method":"GET","path":"/admin/v1/bans"}"#);
    send(r#"{"type":"sing"}"#);
    send(r#"{"type":"ping"}"#);
}

fn over_admin(running: &Running, transcript: &mut String) {
    for (method, path, body) in [
        ("GET", "rules", ""),
        ("GET", "nothing", ""),
        ("PATCH", "status", ""),
        ("POST", "bans", r#"{"match":{"user":"mallory"},"until":"2100-01-01T00:00:00Z"}"#),
        ("GET", "bans", ""),
        ("GET", "audit", ""),
        ("PUT", "policy", "[[rule]]\nname = 'x'"),
    ] {
        let reply = running.ask(method, &format!("/admin/v1/{path}"), body);
        let kind = reply.head.lines().find(|it| it.starts_with("content-type")).unwrap();
        let (status, shown) = (reply.status, masked(reply.body.trim_end()));
        writeln!(transcript, "{method} /admin/v1/{path}\n{status} {kind} {shown}").unwrap();
    }
}
