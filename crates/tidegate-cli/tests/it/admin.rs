//! `tidegate ping` and `tidegate admin`, against a running daemon.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tidegate_proto::ipc::{self, Decoder};

use crate::run::{Ended, command, finish};

const POLICY: &str = r#"
[[rule]]
name   = "search"
domain = "api"
key    = ["user"]
window = { max = 2, per = "1h" }

[[rule]]
name   = "turns"
domain = "game"
key    = ["user"]
quota  = { max = 1, per = "round" }
"#;

/// A daemon in a folder with a short path that all users may enter.
struct Daemon {
    folder: PathBuf,
    child: Child,
}

impl Daemon {
    fn start(policy: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tga-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("policy.toml"), policy).unwrap();
        let mut serve = clean(command(&folder));
        serve.args(["serve", "policy.toml", "--http", "off", "--grpc", "off", "--resp", "off"]);
        serve.args(["--admin", "off", "--unix"]).arg(folder.join("s.sock"));
        let child = serve.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let daemon = Self { folder, child };
        assert!((0..10_000).any(|_| daemon.tidegate(&["ping"]).code == 0), "no response");
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("s.sock")
    }

    fn tidegate(&self, args: &[&str]) -> Ended {
        self.tidegate_with(args, b"")
    }

    fn tidegate_with(&self, args: &[&str], stdin: &[u8]) -> Ended {
        let mut tidegate = clean(command(&self.folder));
        finish(tidegate.args(args).env("TIDEGATE_UNIX", self.socket()), stdin)
    }

    fn admin(&self, args: &[&str]) -> Ended {
        self.tidegate(&[&["admin"], args].concat())
    }

    /// Runs the command as another user with a single group.
    fn tidegate_as(&self, uid: u32, args: &[&str]) -> Ended {
        let copy = self.folder.join("tidegate");
        if !copy.exists() {
            // Copied by another process: a file that this one has open for writing cannot be run
            // while a child process of another test has inherited it.
            let mut install = Command::new("install");
            install.arg("--mode=0755").arg(env!("CARGO_BIN_EXE_tidegate")).arg(&copy);
            assert!(install.status().unwrap().success());
        }
        let mut setpriv = clean(Command::new("setpriv"));
        setpriv.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}")).arg("--clear-groups");
        setpriv.arg(copy).args(args).env("TIDEGATE_UNIX", self.socket()).current_dir(&self.folder);
        finish(&mut setpriv, b"")
    }

    /// Whether a request is allowed.
    fn check(&self, domain: &str, user: &str) -> bool {
        let request = json!({ "type": "check", "domain": domain, "attributes": { "user": user } });
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(&ipc::encode(&request).unwrap()).unwrap();
        let mut decoder = Decoder::new();
        let mut buffer = [0; 4096];
        loop {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "connection closed");
            if let Some(text) = decoder.next(&mut &buffer[..count]).unwrap() {
                let response: Value = serde_json::from_str(&text).unwrap();
                return response["allowed"].as_bool().unwrap_or_else(|| panic!("{response}"));
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes the `TIDEGATE_*` variables of the environment.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command
}

#[test]
fn ping_reports_whether_a_daemon_responds() {
    let daemon = Daemon::start(POLICY);
    let pong = format!("pong from tidegate {} at 2", env!("CARGO_PKG_VERSION"));
    daemon.tidegate(&["ping"]).with(0).silent_err().out(&[&pong]);
    let response = daemon.tidegate(&["ping", "--format", "json"]).with(0).json();
    assert_eq!(
        (&response["ok"], &response["serviceVersion"]),
        (&json!(true), &json!(env!("CARGO_PKG_VERSION")))
    );
    let nowhere = ["ping", "--socket", "/nowhere/s.sock"];
    daemon.tidegate(&nowhere).with(1).silent_out().err(&["/nowhere/s.sock", "tidegate serve"]);
    let admin = ["admin", "status", "--socket", "policy.toml"];
    daemon.tidegate(&admin).with(2).silent_out().err(&["cannot connect to policy.toml"]);
}

#[test]
fn rule_edit_applies_and_can_be_dropped() {
    let daemon = Daemon::start(POLICY);
    assert!(
        daemon.check("api", "ada") && daemon.check("api", "ada") && !daemon.check("api", "ada")
    );
    let change = ["change", "search", "--domain", "api", "window.max = 3"];
    daemon.admin(&change).with(0).out(&["in force: 1 change", "At most 3 in each window"]);
    assert!(daemon.check("api", "ada") && !daemon.check("api", "ada"));
    daemon.admin(&["rules"]).with(0).out(&["api/search (edited): 3 allowed, 2 denied"]);
    daemon.admin(&["policy"]).with(0).out(&["max = 2"]).err(&["--edits"]);
    daemon.admin(&["policy", "--edits"]).with(0).out(&["max = 3"]);
    daemon.admin(&change).with(0).out(&["no change: already in force"]);
    daemon.admin(&["policy", "--drop-edits"]).with(0).out(&["in force: 1 change"]);
    daemon.admin(&["policy", "--edits"]).with(0).silent_out();
    let fresh = ["change", "search", "--domain", "api", "cooldown = '1h'"];
    daemon.admin(&fresh).with(0).err(&["starts fresh"]);
    daemon
        .admin(&["change", "unknown", "mode = 'shadow'"])
        .with(1)
        .err(&["no rule \"unknown\" in domain"]);
    daemon.admin(&["change", "search", "--domain", "api", "x = "]).with(1).err(&["not TOML"]);
}

#[test]
fn policy_is_applied_from_file_and_stdin() {
    let daemon = Daemon::start(POLICY);
    let other = POLICY.replace("max = 2", "max = 9");
    let applied =
        daemon.tidegate_with(&["admin", "policy", "--apply", "-"], other.as_bytes()).with(0);
    applied.out(&["in force: 1 change"]).err(&["until the policy file changes"]);
    daemon.admin(&["policy"]).with(0).out(&["max = 9"]);
    fs::write(daemon.folder.join("bad.toml"), "[[rule]]\nname = 'x'\nburst = 1\n").unwrap();
    let bad = daemon.admin(&["policy", "--apply", "bad.toml"]).with(1);
    bad.err(&["policy.toml:3:1: error: unknown field `burst`"]);
    daemon.admin(&["policy", "--apply", "gone.toml"]).with(2).err(&["cannot read `gone.toml`"]);
    let large = format!("#{}\n{POLICY}", "x".repeat(70_000));
    fs::write(daemon.folder.join("large.toml"), large).unwrap();
    daemon.admin(&["policy", "--apply", "large.toml"]).with(2).err(&["too long", "over HTTP"]);
    daemon.admin(&["policy"]).with(0).out(&["max = 9"]);
}

#[test]
fn overrides_bans_resets_and_rounds() {
    let daemon = Daemon::start(POLICY);
    let of = ["override", "search", "--domain", "api", "--key", "user=ada"];
    daemon.admin(&[&of[..], &["max = 4"]].concat()).with(0).out(&["in force"]);
    assert_eq!((0..9).filter(|_| daemon.check("api", "ada")).count(), 4);
    daemon.admin(&["override"]).with(0).out(&[
        r#"domain = "api", rule = "search", key = { user = "ada" }, window = { max = 4, per = "1h" }"#,
    ]);
    daemon.admin(&[&of[..], &["--unlimited", "--until", "2200-01-01T00:00:00Z"]].concat()).with(0);
    assert!(daemon.check("api", "ada"));
    daemon.admin(&[&of[..], &["--drop"]].concat()).with(0);
    daemon.admin(&[&of[..], &["--drop"]].concat()).with(1).err(&["no such override"]);
    daemon.admin(&of).with(1).err(&["override"]);
    daemon.admin(&["reset", "--domain", "api", "--attr", "user=ada"]).with(0).out(&["state reset"]);
    daemon.admin(&["reset", "--all", "--domain", "api"]).with(0).out(&["reset"]);
    daemon.admin(&["reset", "--all"]).with(0).out(&["state of 0 keys reset"]);
    daemon.admin(&["reset", "--all", "--attr", "user=ada"]).with(2).err(&["cannot be used with"]);
    assert!(daemon.check("api", "ada"));
    let of = ["--domain", "api", "--match", "user=ada", "--match", "user=eve"];
    daemon.admin(&[&["ban"], &of[..], &["--for", "1h", "--reason", "no"]].concat()).with(0);
    assert!(
        !daemon.check("api", "ada") && !daemon.check("api", "eve") && daemon.check("api", "bob")
    );
    daemon.admin(&["ban"]).with(0).out(&[r#"match = { user = ["ada", "eve"] }"#, "no"]);
    daemon.admin(&[&["unban"], &of[..]].concat()).with(0);
    daemon.admin(&[&["unban"], &of[..]].concat()).with(1).err(&["no such ban"]);
    assert!(daemon.check("api", "ada"));
    daemon.admin(&["ban"]).with(0).silent_out().err(&["no bans"]);
    assert!(daemon.check("game", "ada") && !daemon.check("game", "ada"));
    daemon.admin(&["round", "game"]).with(0).out(&["round 1 of game is closed"]);
    assert!(daemon.check("game", "ada"));
    daemon.admin(&["round", "elsewhere"]).with(1).err(&["no rule is in domain"]);
    let audit = daemon.admin(&["audit", "--format", "json"]).with(0).json();
    let changes = audit["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 9, "{audit}");
    assert!(changes.iter().all(|it| it["actor"].as_str().unwrap().starts_with("user ")));
    let audit = daemon.admin(&["audit", "--since", "8"]).with(0);
    assert!(audit.out.starts_with("9 2") && audit.out.lines().count() == 1, "{audit:?}");
    daemon.admin(&["top", "--count", "1"]).with(0).out(&["busiest:", "denied most:", "ada"]);
    let status = daemon.admin(&["status"]).with(0);
    status.out(&[
        "rules     2, 0 of them in shadow mode; no edits",
        "store     memory",
        "admin     off",
    ]);
    let status = daemon.admin(&["status", "--format", "json"]).with(0).json();
    assert_eq!(status["changes"], 9);
}

#[test]
fn override_takes_effect_now_if_the_command_says_so() {
    let daemon = Daemon::start(&format!("{POLICY}effective = \"next\"\n"));
    let allowed = || (0..9).filter(|_| daemon.check("game", "ada")).count();
    let of = ["override", "turns", "--domain", "game", "--key", "user=ada"];
    daemon.admin(&[&of[..], &["max = 4"]].concat()).with(0).out(&["in force"]);
    assert_eq!(allowed(), 1);
    daemon.admin(&[&of[..], &["max = 5", "--now"]].concat()).with(0).out(&["in force"]);
    assert_eq!(allowed(), 4);
    daemon.admin(&[&of[..], &["max = 6", "--now"]].concat()).with(0).out(&["in force"]);
    daemon.admin(&[&of[..], &["--drop", "--now"]].concat()).with(0).out(&["in force"]);
    assert_eq!(allowed(), 0);
}

#[test]
fn invalid_usage_is_rejected_before_any_request() {
    let daemon = Daemon::start(POLICY);
    for args in [
        &["override", "search"][..],
        &["override", "--unlimited"],
        &["override", "--now"],
        &["ban", "--for", "1h"],
        &["change", "search"],
        &["policy", "--apply", "x", "--edits"],
        &["top", "--count", "0"],
        &[],
    ] {
        let _ = daemon.admin(args).with(2).silent_out();
    }
    daemon.admin(&["override", "search", "--key", "user=a", "max ="]).with(2).err(&["not TOML"]);
    assert_eq!(daemon.admin(&["audit", "--format", "json"]).with(0).json()["version"], 0);
}

#[test]
fn listed_users_have_read_access_and_others_none() {
    if !can_switch_users() {
        return;
    }
    let listed = format!("[server]\nunix_users = ['uid:20001']\n{POLICY}");
    let daemon = Daemon::start(&listed);
    let _ = daemon.tidegate_as(20_001, &["ping"]).with(0);
    daemon.tidegate_as(20_001, &["admin", "rules"]).with(0).out(&["api/search"]);
    let ban = ["admin", "ban", "--match", "user=x"];
    daemon.tidegate_as(20_001, &ban).with(1).err(&["lacks the scope `admin`"]);
    daemon.tidegate_as(20_002, &["ping"]).with(1).err(&["Access denied"]);
    daemon.tidegate_as(20_002, &["admin", "rules"]).with(1).silent_out().err(&["Access denied"]);
    let _ = daemon.admin(&ban[1..]).with(0);
    let alone = Daemon::start(POLICY);
    alone.tidegate_as(20_001, &["ping"]).with(1).err(&["ermission denied", "unix_users"]);
}

/// Whether this process can run commands as other users. Required in continuous integration.
#[expect(clippy::print_stdout, reason = "a skipped test reports it")]
fn can_switch_users() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    if id.stdout == b"0\n" && has_setpriv && Path::new("/usr/bin/install").exists() {
        return true;
    }
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ci, "these tests need root and setpriv");
    println!("skipped: needs root and setpriv");
    false
}

#[test]
fn usage_is_shown_for_a_key_and_as_a_list() {
    let daemon = Daemon::start(POLICY);
    assert!(daemon.check("api", "ada"));
    let of_ada = ["usage", "--domain", "api", "--attr", "user=ada"];
    let shown = daemon.tidegate(&of_ada);
    assert_eq!(shown.code, 0, "{shown:?}");
    let line = "search: 1 used and 0 held of 2, share 0.5; 1 remaining, resets in ";
    assert!(shown.out.starts_with(line), "{shown:?}");
    let json = daemon.tidegate(&[&of_ada[..], &["--format", "json"]].concat());
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["rules"][0]["used"], &json["rules"][0]["limit"]), (&json!(1), &json!(2)));
    let none = daemon.tidegate(&["usage", "--domain", "api"]);
    assert_eq!(none.out, "no rule has a key of these attributes\n");

    let given = ["admin", "override", "search", "--domain", "api", "--key", "user=ada", "max = 4"];
    assert_eq!(daemon.tidegate(&given).code, 0);
    let listed =
        daemon.tidegate(&["usage", "--over", "0.25", "--domain", "api", "--rule", "search"]);
    assert!(
        listed.out.starts_with("api/search user=ada: 1 used and 0 held of 4, share 0.25; 3 "),
        "{listed:?}"
    );
    assert!(listed.out.ends_with(" (override)\n"), "{listed:?}");
    assert!(listed.err.contains("note: names of keys are kept by"), "{listed:?}");
    let more = daemon.tidegate(&["usage", "--over", "0.26", "--format", "json"]);
    let more: Value = serde_json::from_str(&more.out).unwrap();
    assert_eq!((&more["keys"], &more["complete"]), (&json!([]), &json!(false)));

    let wrong = daemon.tidegate(&["usage", "--over", "80%"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.err.contains("is not a share such as 0.8"), "{wrong:?}");
    for args in [&["usage", "--over", "1", "--attr", "a=b"][..], &["usage", "--rule", "search"]] {
        assert_eq!(daemon.tidegate(args).code, 2, "{args:?}");
    }
}
