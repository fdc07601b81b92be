//! The daemon with TLS as a process: flags, messages, and handshakes that are no handshakes.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tidegate_redis_servers::Authority;

use crate::run::tidegate;
use crate::serve::{Daemon, FREE, Folder, address};

const RULE: &str = "[[rule]]\nname = 'calls'\nkey = ['user']\nwindow = { max = 3, per = '1h' }\n";

fn curl(authority: &Authority, arguments: &[&str]) -> String {
    let mut curl = Command::new("curl");
    let output = curl.args(["-sS", "--cacert"]).arg(authority.path()).args(arguments).output();
    let output = output.unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn flags_and_environment_set_the_files_and_the_log_says_what_is_in_force() {
    let authority = Authority::new("ca");
    let (own, app) = (authority.server("tidegate"), authority.issue("app").write());
    let folder = Folder::new("tls");
    let policy = folder.file("policy.toml", RULE);
    let [cert, key, app_cert, app_key] =
        [&own.path, &own.key, &app.path, &app.key].map(|path| path.to_str().unwrap());
    let mut arguments = vec![&*policy, "--tls-cert", cert];
    arguments.extend(FREE);
    let environment =
        [("TIDEGATE_TLS_KEY", key), ("TIDEGATE_TLS_CLIENT_CA", authority.path().to_str().unwrap())];
    let mut daemon = Daemon::start(&arguments, &environment);
    let line = daemon.wait_for("TLS certificate loaded");
    assert!(line.contains("listener=http expires_in_days="), "{line}");
    assert!(line.contains("needs_certificate=true"), "{line}");
    let http = address(&daemon.wait_for("listener=\"http\"")).to_owned();
    let url = format!("https://{http}/healthz");
    assert_eq!(curl(&authority, &["--cert", app_cert, "--key", app_key, &url]), "ok\n");
    assert!(curl(&authority, &[&url]).starts_with("curl: (56)"));
    let line = daemon.wait_for("TLS handshake failed: the client has no certificate");
    assert!(line.contains("WARN") && line.contains("reason=\"no_certificate\""), "{line}");
    tidegate(&["serve", "--tls-cert", cert, "--unix", "off"])
        .with(2)
        .err(&["cannot serve TLS on http: the certificate has no key", "= hint: set --tls-key"]);
}

#[test]
fn a_wrong_tls_table_has_an_error_with_its_place() {
    for (table, expected) in [
        ("[server.tls]\ncert = 'a'\n", "policy.toml:2:8: error: `cert` has no `key`"),
        ("[server.tls]\nkey = 'a'\n", "policy.toml:2:7: error: `key` has no `cert`"),
        ("[server.tls]\ncrt = 'a'\n", "policy.toml:2:1: error: unknown field `crt` in the tls"),
        ("[server.tls.htp]\noff = true\n", "unknown field `htp` in the tls table"),
        ("[server.tls.http]\noff = true\nclient_ca = 'a'\n", "a listener without TLS has no files"),
    ] {
        let folder = Folder::new("tls-table");
        let path = folder.file("policy.toml", &format!("{table}{RULE}"));
        let output = tidegate(&["validate", &path]).with(1);
        assert!(output.err.contains(expected), "{}", output.err);
        assert!(output.err.contains("hint"), "{}", output.err);
    }
}

/// Mutated, truncated and slow handshakes. `TIDEGATE_TLS_HANDSHAKES` sets how many there are.
#[test]
fn broken_handshakes_take_no_memory_and_the_next_client_is_served() {
    let count = std::env::var("TIDEGATE_TLS_HANDSHAKES").map_or(600, |it| it.parse().unwrap());
    let authority = Authority::new("ca");
    let own = authority.server("tidegate");
    let folder = Folder::new("tls-broken");
    let policy = folder.file("policy.toml", RULE);
    let files = ["--tls-cert", own.path.to_str().unwrap(), "--tls-key", own.key.to_str().unwrap()];
    let arguments: Vec<_> = [&*policy].into_iter().chain(files).chain(FREE).collect();
    let mut daemon = Daemon::start(&arguments, &[("TIDEGATE_LOG_LEVEL", "info")]);
    let http: SocketAddr = address(&daemon.wait_for("listener=\"http\"")).parse().unwrap();
    let pid = daemon.child.id();
    // Its log is read all the time, so that it does not wait for that.
    std::thread::spawn(move || {
        let mut rest = String::new();
        daemon.stderr.read_to_string(&mut rest).unwrap();
    });
    let hello = client_hello();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut slow = VecDeque::new();
    let mut warm = 0;
    for number in 0..count {
        let mut stream = TcpStream::connect(http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut bytes = hello.clone();
        match number % 4 {
            0 => mutate(&mut bytes, &mut random),
            1 => bytes.truncate(1 + random.below(bytes.len() - 1)),
            2 => {
                bytes.truncate(1 + random.below(bytes.len() - 1));
                let _ = stream.write_all(&bytes);
                slow.push_back(stream);
                if slow.len() > 100 {
                    slow.pop_front();
                }
                continue;
            }
            _ => bytes[1..].iter_mut().for_each(|byte| *byte = random.next().to_le_bytes()[0]),
        }
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut response = Vec::new();
        // An alert, or a part of a handshake, and the end; a reset counts as one.
        match stream.read_to_end(&mut response) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("not closed"),
            _ => {}
        }
        if number % 250 == 0 {
            assert_eq!(curl(&authority, &[&format!("https://{http}/healthz")]), "ok\n");
        }
        if number < count / 3 {
            warm = warm.max(resident_kib(pid));
        }
    }
    let at_end = resident_kib(pid);
    println!("{count} handshakes: {warm} KiB after a third of them, {at_end} KiB at the end");
    assert!(at_end < warm + (8 << 10), "memory grows: {warm} KiB, {at_end} KiB");
    assert_eq!(curl(&authority, &[&format!("https://{http}/healthz")]), "ok\n");
    let _ = Command::new("kill").arg(pid.to_string()).status();
}

/// The first message of a real client.
fn client_hello() -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

/// Changes some bytes, but not the first, which makes it TLS.
fn mutate(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..=random.below(8) {
        let at = 1 + random.below(bytes.len() - 1);
        bytes[at] = random.next().to_le_bytes()[0];
    }
}

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

/// The memory of a process.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}
