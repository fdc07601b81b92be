//! Talking to a running daemon: `tidegate ping` and `tidegate admin`.

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

/// The real daemon, in a short folder that everybody may enter.
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
        assert!((0..10_000).any(|_| daemon.tidegate(&["ping"]).code == 0), "it does not answer");
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

    /// The command as another user, who has a group and no others.
    fn tidegate_as(&self, uid: u32, args: &[&str]) -> Ended {
        let copy = self.folder.join("tidegate");
        if !copy.exists() {
            // Another process makes it: a file that this one has open for writing could not be run
            // while a child that another test starts has it open too.
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
            assert!(count > 0, "it has hung up");
            if let Some(text) = decoder.next(&mut &buffer[..count]).unwrap() {
                let answer: Value = serde_json::from_str(&text).unwrap();
                return answer["allowed"].as_bool().unwrap_or_else(|| panic!("{answer}"));
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

/// Without the variables of the one who runs the tests.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command
}

#[test]
fn a_ping_tells_whether_a_daemon_is_there() {
    let daemon = Daemon::start(POLICY);
    let version = format!("tidegate {} is there: 2", env!("CARGO_PKG_VERSION"));
    daemon.tidegate(&["ping"]).with(0).silent_err().out(&[&version]);
    let told = daemon.tidegate(&["ping", "--format", "json"]).with(0).json();
    assert_eq!(
        (&told["ok"], &told["serviceVersion"]),
        (&json!(true), &json!(env!("CARGO_PKG_VERSION")))
    );
    let nowhere = ["ping", "--socket", "/nowhere/s.sock"];
    daemon.tidegate(&nowhere).with(1).silent_out().err(&["/nowhere/s.sock", "tidegate serve"]);
    let admin = ["admin", "status", "--socket", "policy.toml"];
    daemon.tidegate(&admin).with(2).silent_out().err(&["cannot connect to policy.toml"]);
}

#[test]
fn a_rule_is_changed_and_changed_back() {
    let daemon = Daemon::start(POLICY);
    assert!(
        daemon.check("api", "ada") && daemon.check("api", "ada") && !daemon.check("api", "ada")
    );
    let change = ["change", "search", "--domain", "api", "window.max = 3"];
    daemon.admin(&change).with(0).out(&["in force: 1 change", "At most 3 in each window"]);
    assert!(daemon.check("api", "ada") && !daemon.check("api", "ada"));
    daemon.admin(&["rules"]).with(0).out(&["api/search (edited): 3 allowed, 2 refused"]);
    daemon.admin(&["policy"]).with(0).out(&["max = 2"]).err(&["--edits"]);
    daemon.admin(&["policy", "--edits"]).with(0).out(&["max = 3"]);
    daemon.admin(&change).with(0).out(&["nothing has changed"]);
    daemon.admin(&["policy", "--drop-edits"]).with(0).out(&["in force: 1 change"]);
    daemon.admin(&["policy", "--edits"]).with(0).silent_out();
    let fresh = ["change", "search", "--domain", "api", "cooldown = '1h'"];
    daemon.admin(&fresh).with(0).err(&["starts fresh"]);
    daemon.admin(&["change", "nobody", "mode = 'shadow'"]).with(1).err(&["there is no rule"]);
    daemon.admin(&["change", "search", "--domain", "api", "x = "]).with(1).err(&["not TOML"]);
}

#[test]
fn policies_are_put_from_files_and_stdin() {
    let daemon = Daemon::start(POLICY);
    let other = POLICY.replace("max = 2", "max = 9");
    let put = daemon.tidegate_with(&["admin", "policy", "--put", "-"], other.as_bytes()).with(0);
    put.out(&["in force: 1 change"]).err(&["until the policy file changes"]);
    daemon.admin(&["policy"]).with(0).out(&["max = 9"]);
    fs::write(daemon.folder.join("bad.toml"), "[[rule]]\nname = 'x'\nburst = 1\n").unwrap();
    let bad = daemon.admin(&["policy", "--put", "bad.toml"]).with(1);
    bad.err(&["policy.toml:3:1: error: unknown key `burst`"]);
    daemon.admin(&["policy", "--put", "gone.toml"]).with(2).err(&["cannot read `gone.toml`"]);
    let large = format!("#{}\n{POLICY}", "x".repeat(70_000));
    fs::write(daemon.folder.join("large.toml"), large).unwrap();
    daemon.admin(&["policy", "--put", "large.toml"]).with(2).err(&["too long", "over HTTP"]);
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
    daemon.admin(&["reset", "--domain", "api", "--attr", "user=ada"]).with(0).out(&["forgotten"]);
    assert!(daemon.check("api", "ada"));
    let who = ["--domain", "api", "--who", "user=ada", "--who", "user=eve"];
    daemon.admin(&[&["ban"], &who[..], &["--for", "1h", "--reason", "no"]].concat()).with(0);
    assert!(
        !daemon.check("api", "ada") && !daemon.check("api", "eve") && daemon.check("api", "bob")
    );
    daemon.admin(&["ban"]).with(0).out(&[r#"who = { user = ["ada", "eve"] }"#, "no"]);
    daemon.admin(&[&["unban"], &who[..]].concat()).with(0);
    daemon.admin(&[&["unban"], &who[..]].concat()).with(1).err(&["no such ban"]);
    assert!(daemon.check("api", "ada"));
    daemon.admin(&["ban"]).with(0).silent_out().err(&["there are none"]);
    assert!(daemon.check("game", "ada") && !daemon.check("game", "ada"));
    daemon.admin(&["round", "game"]).with(0).out(&["round 1 of game is closed"]);
    assert!(daemon.check("game", "ada"));
    daemon.admin(&["round", "elsewhere"]).with(1).err(&["no rule is in domain"]);
    let audit = daemon.admin(&["audit", "--format", "json"]).with(0).json();
    let changes = audit["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 7, "{audit}");
    assert!(changes.iter().all(|it| it["who"].as_str().unwrap().starts_with("user ")));
    let told = daemon.admin(&["audit", "--since", "6"]).with(0);
    assert!(told.out.starts_with("7 2") && told.out.lines().count() == 1, "{told:?}");
    daemon.admin(&["top", "--count", "1"]).with(0).out(&["busiest:", "refused most:", "ada"]);
    let status = daemon.admin(&["status"]).with(0);
    status.out(&[
        "rules     2, 0 of them in shadow mode; no edits",
        "store     memory",
        "admin     off",
    ]);
    let status = daemon.admin(&["status", "--format", "json"]).with(0).json();
    assert_eq!(status["changes"], 7);
}

#[test]
fn wrong_usage_is_told_before_anybody_is_asked() {
    let daemon = Daemon::start(POLICY);
    for args in [
        &["override", "search"][..],
        &["override", "--unlimited"],
        &["ban", "--for", "1h"],
        &["change", "search"],
        &["policy", "--put", "x", "--edits"],
        &["top", "--count", "0"],
        &[],
    ] {
        let _ = daemon.admin(args).with(2).silent_out();
    }
    daemon.admin(&["override", "search", "--key", "user=a", "max ="]).with(2).err(&["not TOML"]);
    assert_eq!(daemon.admin(&["audit", "--format", "json"]).with(0).json()["version"], 0);
}

#[test]
fn other_users_look_if_they_are_listed_and_are_kept_out_if_not() {
    if !can_be_others() {
        return;
    }
    let listed = format!("[server]\nunix_users = ['uid:20001']\n{POLICY}");
    let daemon = Daemon::start(&listed);
    let _ = daemon.tidegate_as(20_001, &["ping"]).with(0);
    daemon.tidegate_as(20_001, &["admin", "rules"]).with(0).out(&["api/search"]);
    let ban = ["admin", "ban", "--who", "user=x"];
    daemon.tidegate_as(20_001, &ban).with(1).err(&["you may look, but not change anything"]);
    daemon.tidegate_as(20_002, &["ping"]).with(1).err(&["Access denied"]);
    daemon.tidegate_as(20_002, &["admin", "rules"]).with(1).silent_out().err(&["Access denied"]);
    let _ = daemon.admin(&ban[1..]).with(0);
    let alone = Daemon::start(POLICY);
    alone.tidegate_as(20_001, &["ping"]).with(1).err(&["ermission denied", "unix_users"]);
}

/// Whether this can be other users. In continuous integration it has to.
#[expect(clippy::print_stdout, reason = "a test that tests nothing says so")]
fn can_be_others() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    if id.stdout == b"0\n" && has_setpriv && Path::new("/usr/bin/install").exists() {
        return true;
    }
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ci, "these tests need root and setpriv");
    println!("not tested: this needs root and setpriv");
    false
}
