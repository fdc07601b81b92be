//! The daemon on a shared server: certificates and passwords, and where they do not appear.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_redis_servers::{Certificate, Program, Sentinel, Server, TlsFiles, until};

use crate::serve::{Daemon, FREE, Folder, address, curl};

const RULE: &str = "[[rule]]\nname = 'calls'\nkey = ['user']\nwindow = { max = 3, per = '1h' }\n";

/// A password that must not appear anywhere.
const PASSWORD: &str = "correct-horse";

/// A certificate that is its own authority, and its key.
fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let Certificate { path, key } = Certificate::self_signed(folder, name);
    (path, key)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A daemon that serves HTTP, and its URL for checks.
fn start(args: &[&str], environment: &[(&str, &str)]) -> (Daemon, String) {
    let mut all = args.to_vec();
    all.extend(FREE);
    let mut daemon = Daemon::start(&all, environment);
    let url = format!("http://{}/v1/check", address(&daemon.wait_for("listener=\"http\"")));
    (daemon, url)
}

/// Checks until the store decides: the first connection may take longer than the deadline.
fn check(url: &str) -> u16 {
    let body = r#"{"attributes":{"user":"ada"}}"#;
    let output = || Command::new("curl").args(["-sS", "-d", body, url]).output().unwrap().stdout;
    for _ in 0..1_000 {
        let text = String::from_utf8(output()).unwrap();
        let decided: serde_json::Value = serde_json::from_str(&text).unwrap();
        if decided.get("outage").is_none() {
            return if decided["allowed"] == true { 200 } else { 429 };
        }
    }
    panic!("the store does not respond");
}

/// Its arguments as other users see them, and what is left of its log.
fn shown(mut daemon: Daemon) -> String {
    let arguments = fs::read(format!("/proc/{}/cmdline", daemon.child.id())).unwrap();
    let mut shown = String::from_utf8_lossy(&arguments).into_owned();
    daemon.send("-TERM");
    daemon.stderr.read_to_string(&mut shown).unwrap();
    shown
}

#[test]
fn a_server_with_tls_and_a_password_is_used_by_flags_and_by_settings() {
    // Its folder holds the files.
    let other = Server::start(Program::Redis7);
    let (certificate_path, key) = certificate(other.folder(), "server");
    let (client, client_key) = certificate(other.folder(), "client");
    let files = TlsFiles { certificate: certificate_path.clone(), key, authority: client.clone() };
    let server = Server::builder(Program::Redis7).password(PASSWORD).tls(files).start();
    let _ = server.command(&["CONFIG", "SET", "tls-auth-clients", "yes"]).success();
    let folder = Folder::new("serve-tls");
    let store = format!("rediss://{}", server.tls_address().unwrap());
    let password = folder.file("password", &format!("{PASSWORD}\n"));
    let secret = folder.file("secret", "0123456789abcdef\n");

    let policy = folder.file("policy.toml", RULE);
    let flags = [
        &*policy,
        "--store",
        &store,
        "--store-secret-file",
        &secret,
        "--store-password-file",
        &password,
        "--store-ca",
        text(&certificate_path),
        "--store-cert",
        text(&client),
        "--store-key",
        text(&client_key),
        "--log-level",
        "debug",
    ];
    let (by_flags, url) = start(&flags, &[]);
    assert_eq!(check(&url), 200);

    let settings = format!(
        "[server]\nstore = '{store}'\nstore_secret = '0123456789abcdef'\n\
         store_password = '{PASSWORD}'\nstore_ca = '{}'\nstore_cert = '{}'\nstore_key = '{}'\n{RULE}",
        certificate_path.display(),
        client.display(),
        client_key.display()
    );
    let settings = folder.file("settings.toml", &settings);
    let (by_settings, url) = start(&[&settings], &[]);
    assert_eq!([check(&url), check(&url), check(&url)], [200, 200, 429], "they share the limit");
    for daemon in [by_flags, by_settings] {
        let shown = shown(daemon);
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
}

#[test]
fn without_its_server_the_daemon_decides_by_the_local_share_and_says_so() {
    let server = Server::start(Program::Valkey9);
    let folder = Folder::new("serve-local");
    let rule = RULE.replace("max = 3", "max = 9") + "on_error = { local = 0.25 }\n";
    let policy = folder.file("policy.toml", &rule);
    let (daemon, url) = start(&[&policy, "--store", &server.url()], &[]);
    assert_eq!(check(&url), 200);
    server.kill();
    let body = r#"{"attributes":{"user":"ada"}}"#;
    let curl = |more: &[&str], url: &str| {
        let output = Command::new("curl").arg("-sS").args(more).arg(url).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let decided = |_| curl(&["-i", "-d", body], &url);
    let responses: Vec<String> = (0..3).map(decided).collect();
    for (response, status) in responses.iter().zip(["200 OK", "200 OK", "429 Too Many Requests"]) {
        assert!(response.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{response}");
        assert!(response.contains("\"outage\":\"local\""), "{response}");
        assert!(response.contains("\"limit\":2"), "{response}");
        assert!(response.contains("ratelimit: "), "{response}");
    }
    assert!(responses[2].contains("retry-after: "), "{}", responses[2]);
    assert!(responses[2].contains("as the store is unavailable: retry in "), "{}", responses[2]);
    let metrics = curl(&[], &url.replace("/v1/check", "/metrics"));
    for line in ["tidegate_outages_total 3", "tidegate_local_decisions_total 3"] {
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
    let explained = curl(&["-d", body], &url.replace("/v1/check", "/v1/explain"));
    assert!(explained.contains("\"outage\":\"local\""), "{explained}");
    drop(daemon);
}

#[test]
fn daemons_list_each_other_until_they_stop() {
    let server = Server::start(Program::Valkey9);
    let folder = Folder::new("serve-nodes");
    let policy = folder.file("policy.toml", RULE);
    let socket = folder.path("s");
    let store = server.url();
    let mut args = vec![&*policy, "--store", &store, "--unix", &socket, "--admin", "off"];
    args.extend(FREE.iter().copied().take(6));
    let mut first = Daemon::start(&args, &[]);
    let own = address(&first.wait_for("listener=\"http\"")).to_owned();
    let (mut second, url) = start(&[&policy, "--store", &store], &[]);
    let other = url.trim_start_matches("http://").trim_end_matches("/v1/check");
    let status = |more: &[&str]| {
        let mut admin = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = admin.args(["admin", "--socket", &socket, "status"]).args(more).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let nodes = || {
        let status: serde_json::Value =
            serde_json::from_str(&status(&["--format", "json"])).unwrap();
        status["store"]["nodes"].as_array().cloned().unwrap_or_default()
    };
    until("both are listed", || nodes().iter().filter(|it| it["address"].is_string()).count() == 2);
    let listed = nodes();
    assert_eq!((&listed[0]["self"], &listed[1]["self"]), (&true.into(), &false.into()));
    assert_eq!(
        (listed[0]["address"].as_str(), listed[1]["address"].as_str()),
        (Some(&*own), Some(other))
    );
    let pid = format!(":{}", second.child.id());
    assert!(listed[1]["name"].as_str().unwrap().ends_with(&pid), "{listed:?}");
    assert_eq!(listed[1]["version"], env!("CARGO_PKG_VERSION"));
    assert!(listed[1]["seen_ms_ago"].as_u64().unwrap() <= 10_000, "{listed:?}");
    let text = status(&[]);
    assert!(text.contains(&format!("{pid} at {other}, version ")), "{text}");
    second.send("-TERM");
    assert!(second.child.wait().unwrap().success());
    assert_eq!(server.command(&["HLEN", "tidegate:nodes"]).integer(), 1, "it has left");
    until("it is not listed", || nodes().len() == 1);
}

#[test]
fn sentinels_have_a_login_of_their_own() {
    let sentinels = Sentinel::start_with(&Server::builder(Program::Valkey9).password("pw"));
    for sentinel in sentinels.sentinels() {
        let rules = ["ACL", "SETUSER", "scout", "on", &format!(">{PASSWORD}"), "&*", "+@all"];
        let _ = sentinel.command(&rules).success();
        let _ = sentinel.command(&["ACL", "SETUSER", "default", "-@all", "+ping"]).success();
    }
    let hosts = sentinels.sentinels().iter().map(|it| it.address().to_string());
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let store = format!("redis+sentinel://{hosts}/{}", Sentinel::NAME);
    let folder = Folder::new("serve-sentinel");
    let policy = folder.file("policy.toml", RULE);
    let password = folder.file("password", "pw");
    let sentinel_password = folder.file("sentinel-password", PASSWORD);
    let environment = [
        ("TIDEGATE_STORE", &*store),
        ("TIDEGATE_STORE_PASSWORD_FILE", &password),
        ("TIDEGATE_STORE_SENTINEL_USER", "scout"),
        ("TIDEGATE_STORE_SENTINEL_PASSWORD_FILE", &sentinel_password),
    ];
    let (daemon, url) = start(&[&policy], &environment);
    assert_eq!(check(&url), 200);
    assert!(!shown(daemon).contains(PASSWORD));
}

/// A server that is gone, so that every interface has something to say about it.
#[test]
fn the_password_in_an_address_is_shown_by_no_interface() {
    let server = Server::start(Program::Redis7);
    let store = format!("redis://user:{PASSWORD}@{}/0", server.address());
    server.kill();
    let folder = Folder::new("serve-secrets");
    let socket = folder.path("s");
    let with = |more: &str| {
        format!(
            "[server]\nstore = '{store}'{more}\nstore_secret = '{PASSWORD}-secret'\n\
             {RULE}"
        )
    };
    let policy = folder.file("policy.toml", &with(""));
    let mut args = vec![&*policy, "--unix", &socket, "--log-level", "debug"];
    args.extend(["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc", "off"]);
    args.extend(["--resp", "127.0.0.1:0"]);
    let mut daemon = Daemon::start(&args, &[]);
    let http = address(&daemon.wait_for("listener=\"http\"")).to_owned();
    let admin = address(&daemon.wait_for("listener=\"admin\"")).to_owned();
    let mut shown = String::new();
    let body = r#"{"attributes":{"user":"ada"}}"#;
    assert_eq!(curl(&format!("http://{http}/v1/check"), body), 200, "on_error allows");
    for url in [
        format!("http://{http}/readyz"),
        format!("http://{http}/metrics"),
        format!("http://{admin}/readyz"),
        format!("http://{admin}/admin/v1/policy"),
        format!("http://{admin}/admin/v1/status"),
    ] {
        let output = Command::new("curl").args(["-sS", &url]).output().unwrap();
        shown += &String::from_utf8(output.stdout).unwrap();
    }
    for command in [&["policy"][..], &["status"], &["audit"]] {
        let mut tidegate = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = tidegate.arg("admin").args(command).env("TIDEGATE_UNIX", &socket).output();
        let output = output.unwrap();
        shown += &String::from_utf8(output.stdout).unwrap();
        shown += &String::from_utf8(output.stderr).unwrap();
    }
    assert!(shown.contains("redis://127.0.0.1"), "the address itself is shown: {shown}");
    // A file with an error in the line of the address.
    fs::write(&policy, with(" junk")).unwrap();
    daemon.send("-HUP");
    shown += &daemon.wait_for("policy.toml:2:");
    shown += &self::shown(daemon);
    assert!(!shown.contains(PASSWORD), "{shown}");
}

#[test]
fn settings_of_the_connection_that_do_not_fit_are_start_errors() {
    let folder = Folder::new("serve-store-wrong");
    let (empty, secret) = (folder.file("empty", "\n"), folder.file("secret", "p"));
    let absent = folder.path("absent");
    let redis = "redis://:correct-horse@localhost";
    for (args, expected) in [
        (vec!["--store", redis, "--store-password-file", &*secret], "another one is set"),
        (vec!["--store", "redis://localhost", "--store-password-file", &empty], "it is empty"),
        (vec!["--store", "redis://localhost", "--store-password-file", &absent], "cannot read"),
        (vec!["--store", "redis://localhost", "--store-ca", &absent], "rediss://"),
        (vec!["--store", "rediss://localhost", "--store-ca", &absent], "absent"),
        (vec!["--store", "rediss://localhost", "--store-cert", &absent], "has no key"),
        (vec!["--store", "rediss://localhost", "--store-key", &absent], "has no certificate"),
        (vec!["--store", "redis://localhost", "--store-sentinel-user", "u"], "has no password"),
        (
            vec!["--store", "redis://localhost", "--store-sentinel-password-file", &secret],
            "redis+sentinel://",
        ),
        (vec!["--store", "http://:correct-horse@localhost"], "unknown store \"http\""),
        (vec!["--store", "redis+tls://:correct-horse@localhost"], "unknown store"),
    ] {
        let mut all = FREE.to_vec();
        all.extend(&args);
        let mut daemon = Daemon::start(&all, &[]);
        let mut log = daemon.wait_for(expected);
        daemon.stderr.read_to_string(&mut log).unwrap();
        assert!(!log.contains(PASSWORD), "{log}");
        assert_eq!(daemon.child.wait().unwrap().code(), Some(2), "{args:?}");
    }
}
