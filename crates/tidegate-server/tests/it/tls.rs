//! TLS on every listener, with the programs that people use.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidegate_redis_servers::{Authority, Certificate};
use tidegate_server::{Listener, Server, Settings, StartError};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::grpc_client::{Client, call};
use crate::running::{Ending, POLICY, Running, ask, ask_undocumented, exchange};

pub(crate) mod reloads;

/// A daemon with TLS on all listeners, and the authorities of both sides.
struct Daemon {
    running: Running,
    servers: Authority,
    clients: Authority,
    observer: Certificate,
}

impl Daemon {
    /// A daemon that needs certificates of its clients.
    fn mutual() -> Self {
        Self::start("", true)
    }

    fn start(server_table: &str, is_mutual: bool) -> Self {
        let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
        let own = servers.server("tidegate");
        let policy = format!("{server_table}{POLICY}");
        let running = Running::start_with(&policy, |settings| {
            settings
                .tls_certificate(Some(&own.path), Some(&own.key))
                .tls_client_ca(is_mutual.then(|| clients.path()))
        });
        let observer = clients.issue("observer").write();
        Self { running: running.unwrap(), servers, clients, observer }
    }

    fn port(&self, listener: Listener) -> u16 {
        self.running.server().address(listener).unwrap().port()
    }

    fn curl(&self, certificate: Option<&Certificate>, url: &str) -> String {
        self.curl_with(certificate, &[], url)
    }

    fn curl_with(&self, certificate: Option<&Certificate>, more: &[&str], url: &str) -> String {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--cacert"]).arg(self.servers.path());
        if let Some(certificate) = certificate {
            curl.arg("--cert").arg(&certificate.path).arg("--key").arg(&certificate.key);
        }
        printed(curl.args(more).arg(url))
    }

    fn redis_cli(&self, certificate: Option<&Certificate>, command: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "localhost", "-p", &self.port(Listener::Resp).to_string()]);
        cli.arg("--tls").arg("--cacert").arg(self.servers.path());
        if let Some(certificate) = certificate {
            cli.arg("--cert").arg(&certificate.path).arg("--key").arg(&certificate.key);
        }
        printed(cli.args(command))
    }

    /// What `openssl s_client` prints.
    fn s_client(&self, listener: Listener, arguments: &[&str]) -> String {
        let address = format!("127.0.0.1:{}", self.port(listener));
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &address, "-CAfile"]).arg(self.servers.path());
        printed(openssl.args(arguments))
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> u64 {
        let url = format!("https://localhost:{}/metrics", self.port(Listener::Http));
        metric_in(&self.curl(Some(&self.observer), &url), name)
    }

    /// Waits until a metric has a value.
    #[track_caller]
    fn until(&self, name: &str, value: u64) {
        // Each round is a process and a handshake.
        let mut values = (0..200).map(|_| self.metric(name));
        assert!(values.any(|it| it == value), "{name} is {}", self.metric(name));
    }
}

fn metric_in(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

fn printed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: run scripts/install"));
    let [out, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    out + &errors
}

/// A connection of a client that trusts an authority.
async fn connect(
    port: u16,
    authority: &Path,
    certificate: Option<&Certificate>,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let chain = vec![CertificateDer::from_pem_file(&certificate.path).unwrap()];
            let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

#[test]
fn every_listener_serves_clients_with_a_certificate_and_no_others() {
    let daemon = Daemon::mutual();
    let app = daemon.clients.issue("app").write();
    for listener in [Listener::Http, Listener::Admin] {
        let url = format!("https://localhost:{}/healthz", daemon.port(listener));
        assert_eq!(daemon.curl(Some(&app), &url), "ok\n");
        let denied = daemon.curl(None, &url);
        assert!(denied.starts_with("curl: (56)"), "{denied}");
        let outcomes = format!(
            "tidegate_tls_handshakes_total{{listener=\"{listener}\",outcome=\"no_certificate\"}}"
        );
        daemon.until(&outcomes, 1);
    }
    // A browser adds its certificate to requests of any page.
    let check = format!("https://localhost:{}/check/forward", daemon.port(Listener::Http));
    let page = ["-H", "Sec-Fetch-Site: cross-site"];
    let denied = daemon.curl_with(Some(&app), &page, &check);
    assert!(denied.contains("requests from pages in a browser are rejected"), "{denied}");
    assert_eq!(daemon.redis_cli(Some(&app), &["PING"]), "PONG\n");
    let denied = daemon.redis_cli(None, &["PING"]);
    assert!(!denied.contains("PONG"), "{denied}");
    let decided = daemon.redis_cli(Some(&app), &["CL.THROTTLE", "k", "15", "30", "60"]);
    assert_eq!(decided, "0\n16\n15\n-1\n2\n");
    // The local socket is as it was.
    assert_eq!(daemon.running.caller().ask(&crate::running::ping())["ok"], true);
}

#[test]
fn expired_early_and_foreign_certificates_are_counted_by_reason() {
    let daemon = Daemon::mutual();
    let url = format!("https://localhost:{}/healthz", daemon.port(Listener::Http));
    let clients = &daemon.clients;
    let foreign = daemon.servers.issue("app").write();
    let expired = clients.issue("app").valid("20200101000000Z", "20210101000000Z").write();
    let early = clients.issue("app").valid("20900101000000Z", "20910101000000Z").write();
    for (certificate, outcome) in [
        (&expired, "certificate_expired"),
        (&early, "certificate_not_yet_valid"),
        (&foreign, "certificate_unknown_issuer"),
    ] {
        let denied = daemon.curl(Some(certificate), &url);
        assert!(denied.starts_with("curl: (56)"), "{denied}");
        let name =
            format!("tidegate_tls_handshakes_total{{listener=\"http\",outcome=\"{outcome}\"}}");
        daemon.until(&name, 1);
    }
    // A client that expects another name rejects the daemon.
    let other = ["-verify_hostname", "other.example", "-verify_return_error"];
    let rejected = daemon.s_client(Listener::Http, &other);
    assert!(rejected.contains("hostname mismatch"), "{rejected}");
    let name = "tidegate_tls_handshakes_total{listener=\"http\",outcome=\"rejected_by_client\"}";
    daemon.until(name, 1);
    assert_eq!(daemon.metric("tidegate_tls_handshakes_in_progress"), 0);
}

#[test]
fn versions_1_2_and_1_3_are_spoken_and_older_ones_are_not() {
    let daemon = Daemon::start("", false);
    for listener in [Listener::Http, Listener::Grpc, Listener::Resp, Listener::Admin] {
        let new = daemon.s_client(listener, &["-tls1_3", "-brief"]);
        assert!(new.contains("Protocol version: TLSv1.3"), "{listener}: {new}");
        let old = daemon.s_client(listener, &["-tls1_2", "-brief"]);
        assert!(old.contains("Protocol version: TLSv1.2"), "{listener}: {old}");
        let older = daemon.s_client(listener, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]);
        assert!(older.contains("SSL alert number 40"), "{listener}: {older}");
    }
    for (listener, offered, expected) in [
        (Listener::Http, "h2,http/1.1", "ALPN protocol: http/1.1"),
        (Listener::Admin, "http/1.1", "ALPN protocol: http/1.1"),
        (Listener::Grpc, "http/1.1,h2", "ALPN protocol: h2"),
        (Listener::Grpc, "http/1.1", "no application protocol"),
        (Listener::Http, "h2", "no application protocol"),
    ] {
        let printed = daemon.s_client(listener, &["-alpn", offered]);
        assert!(printed.contains(expected), "{listener} {offered}: {printed}");
    }
    assert!(daemon.s_client(Listener::Http, &[]).contains("Early data was not sent"));
    let name = "tidegate_tls_handshakes_total{listener=\"http\",outcome=\"incompatible\"}";
    assert_eq!(daemon.metric(name), 1);
}

#[test]
fn grpc_and_the_redis_library_work_with_certificates() {
    let daemon = Daemon::mutual();
    tokio::runtime::Runtime::new().unwrap().block_on(use_libraries(&daemon));
}

async fn use_libraries(daemon: &Daemon) {
    let app = daemon.clients.issue("app").write();
    for protocols in [&["h2"][..], &[]] {
        let port = daemon.port(Listener::Grpc);
        let stream = connect(port, daemon.servers.path(), Some(&app), protocols).await.unwrap();
        let (mut client, _) = Client::over(stream, |_| {}).await;
        let decided = client.ask(&call("default", &[&[("user", "ada")]])).await.unwrap();
        assert_eq!(decided.overall_code, 1);
    }
    let denied = connect(daemon.port(Listener::Grpc), daemon.servers.path(), None, &[]).await;
    if let Ok(stream) = denied {
        // With TLS 1.3 a client learns it with its first read.
        use tokio::io::AsyncReadExt;
        let mut stream = stream;
        let error = stream.read_u8().await.unwrap_err();
        assert!(error.to_string().contains("CertificateRequired"), "{error}");
    }
    let read = |path: &Path| fs::read(path).unwrap();
    let certificates = redis::TlsCertificates {
        client_tls: Some(redis::ClientTlsConfig {
            client_cert: read(&app.path),
            client_key: read(&app.key),
        }),
        root_cert: Some(read(daemon.servers.path())),
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("rediss://localhost:{}/", daemon.port(Listener::Resp));
    let client = redis::Client::build_with_tls(url, certificates).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let pong: String = redis::cmd("PING").query_async(&mut connection).await.unwrap();
    assert_eq!(pong, "PONG");
    // More than one record each way.
    let mut pipe = redis::pipe();
    for _ in 0..100 {
        pipe.cmd("ECHO").arg("x".repeat(1_000)).ignore();
    }
    pipe.cmd("PING");
    let pong: (String,) = pipe.query_async(&mut connection).await.unwrap();
    assert_eq!(pong.0, "PONG");
}

#[test]
fn plain_text_on_a_port_with_tls_gets_an_error_that_says_so() {
    let daemon = Daemon::start("", false);
    for listener in [Listener::Http, Listener::Admin, Listener::Grpc] {
        let address = daemon.running.server().address(listener).unwrap();
        let reply = ask_undocumented(address, "GET", "/healthz", &[], "");
        assert_eq!(reply.status, 400);
        assert!(reply.head.contains("content-type: application/problem+json"), "{reply:?}");
        assert_eq!(reply.json()["detail"], "this port speaks TLS: use https");
    }
    let port = daemon.port(Listener::Resp).to_string();
    let refused = printed(Command::new("redis-cli").args(["-p", &port, "PING"]));
    assert!(refused.contains("ERR this port speaks TLS"), "{refused}");
    let grpc = daemon.running.server().address(Listener::Grpc).unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let response = exchange(grpc, preface, Ending::Wait);
    assert!(String::from_utf8_lossy(&response).ends_with("this port speaks TLS: use TLS"));
    let error = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let (_client, connection) = Client::with(grpc, |_| {}).await;
        connection.await.unwrap().unwrap_err()
    });
    let error = format!("{error:?}");
    assert!(error.contains("INADEQUATE_SECURITY") && error.contains("speaks TLS"), "{error}");
    let name = "tidegate_tls_handshakes_total{listener=\"grpc\",outcome=\"plain_text\"}";
    assert_eq!(daemon.metric(name), 3);
}

#[test]
fn tls_on_a_port_without_it_is_closed_at_once() {
    let running = Running::start(POLICY);
    for listener in [Listener::Http, Listener::Grpc, Listener::Resp, Listener::Admin] {
        let address = running.server().address(listener).unwrap();
        let hello = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03";
        assert_eq!(exchange(address, hello, Ending::Wait), b"", "{listener}");
    }
    assert_eq!(ask(running.admin(), "GET", "/healthz", &[], "").status, 200);
}

#[test]
fn one_listener_may_differ() {
    let table = "[server.tls.admin]\noff = true\n[server.tls.resp]\nclient_ca = 'off'\n";
    let daemon = Daemon::start(table, true);
    let server = daemon.running.server();
    assert_eq!(daemon.running.ask("GET", "/healthz", "").status, 200);
    assert_eq!(daemon.redis_cli(None, &["PING"]), "PONG\n");
    assert!(server.tls(Listener::Http).unwrap().client_ca.is_some());
    assert!(server.tls(Listener::Resp).unwrap().client_ca.is_none());
    assert!(server.tls(Listener::Admin).is_none() && server.tls(Listener::Unix).is_none());
}

#[test]
fn a_daemon_without_usable_files_does_not_start() {
    let authority = Authority::new("ca");
    let (own, other) = (authority.server("a"), authority.server("b"));
    let start = |change: &dyn Fn(Settings) -> Settings| {
        let error = Running::start_with(POLICY, change).err().expect("no start");
        assert!(matches!(error, StartError::Tls { listener: Listener::Http, .. }));
        error.to_string()
    };
    let missing = Path::new("/nowhere/tls.crt");
    let error = start(&|it| it.tls_certificate(Some(missing), Some(&own.key)));
    assert!(error.starts_with("cannot serve TLS on http: cannot read /nowhere/tls.crt: No such"));
    assert!(error.contains("= hint: "), "{error}");
    let error = start(&|it| it.tls_certificate(Some(&own.path), None));
    assert!(error.contains("the certificate has no key\n  = hint: set --tls-key"), "{error}");
    let error = start(&|it| it.tls_certificate(Some(&own.path), Some(&other.key)));
    assert!(error.contains(".key: the private key is not that of the certificate"), "{error}");
    let error = start(&|it| it.tls_client_ca(Some(authority.path())));
    assert!(error.contains("no certificate of the daemon"), "{error}");
}

#[test]
fn a_listener_that_is_off_needs_no_files() {
    let table = "[server.tls.grpc]\ncert = '/nowhere'\nkey = '/nowhere'\n";
    let running = Running::start_with(&format!("{table}{POLICY}"), |settings| {
        settings.listen(Listener::Grpc, None)
    });
    let server: &Server = running.as_ref().unwrap().server();
    assert!(server.tls(Listener::Grpc).is_none());
}
