//! Certificates that are replaced while the daemon runs.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tidegate_redis_servers::{Authority, Certificate};
use tidegate_server::Listener;

use super::{metric_in, printed};
use crate::running::{POLICY, Running, until};

/// A daemon with TLS on HTTP, whose files are links as Kubernetes makes them.
struct Mounted {
    running: Running,
    authority: Authority,
    folder: PathBuf,
}

impl Mounted {
    fn start() -> Self {
        let authority = Authority::new("servers");
        let folder = authority.folder().join("mounted");
        fs::create_dir(&folder).unwrap();
        publish(&folder, "..1", &authority.server("first"));
        for file in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(file), folder.join(file)).unwrap();
        }
        let table = format!(
            "[server.tls.http]\ncert = '{0}/tls.crt'\nkey = '{0}/tls.key'\n",
            folder.display()
        );
        let running = Running::start(&format!("{table}{POLICY}"));
        Self { running, authority, folder }
    }

    /// The subject of the certificate that new connections get.
    fn subject(&self) -> String {
        let port = self.running.server().address(Listener::Http).unwrap().port();
        let connect = format!("127.0.0.1:{port}");
        let mut openssl = Command::new("openssl");
        let text = printed(openssl.args(["s_client", "-connect", &connect]));
        let line = text.lines().find_map(|line| line.strip_prefix("subject=CN = "));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    fn readyz(&self) -> Value {
        self.running.admin_ok("GET", "/readyz", "")
    }

    fn metric(&self, name: &str) -> u64 {
        metric_in(&self.running.ask("GET", "/metrics", "").body, name)
    }
}

/// Puts a certificate into a folder, and moves the link `..data` to it.
fn publish(folder: &Path, name: &str, certificate: &Certificate) {
    fs::create_dir(folder.join(name)).unwrap();
    fs::copy(&certificate.path, folder.join(name).join("tls.crt")).unwrap();
    fs::copy(&certificate.key, folder.join(name).join("tls.key")).unwrap();
    symlink(name, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
}

const RELOADS: &str = "tidegate_tls_reloads_total{listener=\"http\",outcome=";

#[test]
fn new_connections_get_the_new_certificate_and_open_ones_stay() {
    let mounted = Mounted::start();
    assert_eq!(mounted.subject(), "first");
    let port = mounted.running.server().address(Listener::Http).unwrap().port();
    let mut open = Command::new("openssl")
        .args(["s_client", "-quiet", "-no_ign_eof", "-connect", &format!("127.0.0.1:{port}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (open.stdin.take().unwrap(), open.stdout.take().unwrap());
    let mut request = || {
        input.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut response = [0; 15];
        output.read_exact(&mut response).unwrap();
        assert_eq!(&response, b"HTTP/1.1 200 OK");
        // The rest of the response.
        let mut byte = [0];
        let mut rest = Vec::new();
        while !rest.ends_with(b"ok\n") {
            output.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
    };
    request();
    publish(&mounted.folder, "..2", &mounted.authority.server("second"));
    until("it is reloaded", || mounted.metric(&format!("{RELOADS}\"ok\"}}")) == 1);
    assert_eq!(mounted.subject(), "second");
    request();
    drop(input);
    open.wait().unwrap();
}

#[test]
pub(crate) fn a_bad_certificate_keeps_the_old_one_and_is_reported() {
    let mounted = Mounted::start();
    assert_eq!(mounted.readyz().get("tls"), None);
    fs::remove_file(mounted.folder.join("tls.crt")).unwrap();
    fs::write(mounted.folder.join("tls.crt"), "nonsense").unwrap();
    until("it has failed", || mounted.metric(&format!("{RELOADS}\"failed\"}}")) == 1);
    assert_eq!(mounted.metric("tidegate_tls_is_current{listener=\"http\"}"), 0);
    let readiness = mounted.readyz();
    let problem = readiness["tls"].as_str().unwrap();
    assert!(problem.starts_with("the previous certificate of http is in force: "), "{problem}");
    assert_eq!(readiness["ready"], true);
    assert_eq!(mounted.subject(), "first");
    let remaining = mounted.metric("tidegate_tls_certificate_remaining_seconds{listener=\"http\"}");
    assert!((29 * 86_400..=30 * 86_400).contains(&remaining), "{remaining}");
    fs::write(
        mounted.folder.join("tls.crt"),
        fs::read(mounted.folder.join("..1/tls.crt")).unwrap(),
    )
    .unwrap();
    until("it is good again", || mounted.readyz().get("tls").is_none());
}
