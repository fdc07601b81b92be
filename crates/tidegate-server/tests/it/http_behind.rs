//! Real proxies, with the configuration files of the guides.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::http_support::{Client, Running};

const NGINX: &str = include_str!("../../../../docs/guides/behind-nginx.md");
const CADDY: &str = include_str!("../../../../docs/guides/behind-caddy.md");

const POLICY: &str = r#"
    [[rule]]
    name   = "sign-ups"
    domain = "web"
    match  = { method = "POST", path = "/sign-up", host = "127.0.0.1" }
    key    = ["ip"]
    window = { max = 1, per = "1h" }

    [[rule]]
    name   = "this-machine"
    domain = "web"
    match  = { path = "/from-here", ip = "127.0.0.0/8" }
    window = { max = 1, per = "1h" }
"#;

/// A proxy in front of a daemon and a small application.
struct Proxy {
    process: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Proxy {
    /// Starts a command in a folder with these files of a guide.
    fn new(command: &[&str], daemon: &Running, files: &[(&str, String)]) -> Self {
        let name = format!("tidegate-behind-{}-{}", command[0], daemon.address().port());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (listens, application) = (free(), free());
        let address = listens.local_addr().unwrap();
        for (name, text) in files {
            let text = text
                .replace("127.0.0.1:8080", &daemon.address().to_string())
                .replace("127.0.0.1:3000", &address.to_string())
                .replace("127.0.0.1:3001", &application.local_addr().unwrap().to_string());
            std::fs::write(folder.join(name), text).unwrap();
        }
        drop((listens, application));
        let mut process = Command::new(command[0])
            .args(&command[1..])
            .current_dir(&folder)
            .env("HOME", &folder)
            .env("XDG_DATA_HOME", &folder)
            .env("XDG_CONFIG_HOME", &folder)
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|_| panic!("{} is missing; scripts/install installs it", command[0]));
        while TcpStream::connect(address).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "{} has ended", command[0]);
            std::thread::yield_now();
        }
        Self { process, folder, address }
    }

    fn nginx(daemon: &Running, change: impl Fn(String) -> String) -> Self {
        let limited = change(written(NGINX, "limited.conf"));
        let files = [("limited.conf", limited), ("nginx.conf", written(NGINX, "nginx.conf"))];
        Self::new(&["nginx", "-e", "stderr", "-p", ".", "-c", "nginx.conf"], daemon, &files)
    }

    fn caddy(daemon: &Running) -> Self {
        let files = [("Caddyfile", written(CADDY, "Caddyfile"))];
        let command = ["caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile"];
        Self::new(&command, daemon, &files)
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> u16 {
        let host = self.address.to_string();
        let headers = [("x-forwarded-method", "GET"), ("x-original-method", "GET")];
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("content-length: {}\r\n\r\n", body.len());
        let mut client = Client::new(self.address);
        client.send(text.as_bytes());
        client.send(body);
        client.receive().expect("a response").status
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // SIGTERM, so that nginx's master stops its workers.
        let id = self.process.id().to_string();
        let _ = Command::new("kill").arg(id).status();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The file that a guide writes.
fn written(guide: &str, name: &str) -> String {
    let (_, rest) = guide.split_once(&format!("cat > {name} <<'END'\n")).unwrap();
    let (text, _) = rest.split_once("\nEND\n").unwrap();
    format!("{text}\n")
}

/// The request reaches the policy as the client sent it, whatever headers it has forged.
#[track_caller]
fn assert_limited(proxy: &Proxy) {
    let body = "x".repeat(100_000);
    let sign_up = |path: &str| proxy.ask("POST", path, body.as_bytes());
    assert_eq!(sign_up("/sign-up?from=here"), 200);
    assert_eq!(sign_up("/sign-up"), 429);
    assert_eq!(sign_up("/sign-in"), 200);
    assert_eq!(proxy.ask("GET", "/sign-up", b""), 200);
    assert_eq!(proxy.ask("GET", "/from-here", b""), 200);
    assert_eq!(proxy.ask("GET", "/from-here", b""), 429);
    for path in ["/%73ign-up", "/x/../sign-up", "//sign-up", "/x/%2e%2E//sign-%75p?y=/.."] {
        assert_eq!(sign_up(path), 429, "{path}");
    }
    for path in ["/sign-up%00", "/sign-up%zz"] {
        assert!((400..500).contains(&sign_up(path)), "{path}");
    }
}

#[test]
fn nginx_limits_requests() {
    let daemon = Running::new(POLICY);
    assert_limited(&Proxy::nginx(&daemon, |text| text));
}

#[test]
fn caddy_limits_requests() {
    let daemon = Running::new(POLICY);
    assert_limited(&Proxy::caddy(&daemon));
}

#[test]
fn nginx_can_allow_requests_while_the_daemon_is_down() {
    let (_, rest) = NGINX.split_once("```nginx\n").unwrap();
    let (open, _) = rest.split_once("```").unwrap();
    let mut daemon = Running::new(POLICY);
    let proxy = Proxy::nginx(&daemon, |text| {
        let anchor = "internal;";
        let text = text.replace(anchor, &format!("{anchor}\n{open}"));
        text.replace("location @limited", "location @open { return 204; }\nlocation @limited")
    });
    assert_limited(&proxy);
    let stopped = daemon.stop();
    daemon.wait(stopped).unwrap();
    assert_eq!(proxy.ask("POST", "/sign-up", b""), 200);
}
