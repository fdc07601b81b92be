//! A real Envoy with an upstream, which uses the daemon as its rate limit service.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate_redis_servers::{Authority, Certificate};
use tidegate_server::{Listener, Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::grpc_client::daemon;
use crate::readiness::store_away;

/// As in a file of envoyproxy/ratelimit. Days, so that no window ends in a test.
const LIMITS: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: plan
    value: free
    descriptors:
      - key: action
        rate_limit: {unit: day, requests_per_unit: 1}
  - key: plan
    descriptors:
      - key: action
        rate_limit: {unit: day, requests_per_unit: 3}
  - key: item
    value: book-*
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: dear
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: address
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: tokens
    rate_limit: {unit: day, requests_per_unit: 100}
";

const CONFIGURATION: &str = r#"
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: front
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              response_headers_to_add:
              - header: {key: x-metadata, value: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit)%"}
              routes:
              - match: {prefix: /dear}
                route: {cluster: upstream}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
                    - actions: [{request_headers: {header_name: x-dear, descriptor_key: dear}}]
                      hits_addend: {number: 4}
              - match: {prefix: /tokens}
                route: {cluster: upstream}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
                    - actions: [{request_headers: {header_name: x-tokens, descriptor_key: tokens}}]
                      hits_addend: {number: 0}
                    - actions: [{request_headers: {header_name: x-tokens, descriptor_key: tokens}}]
                      hits_addend: {number: 70}
                      apply_on_stream_done: true
              - match: {prefix: /evil}
                route:
                  cluster: upstream
                  rate_limits:
                  - actions: [{request_headers: {header_name: x-address, descriptor_key: address}}]
                  - actions: [{request_headers: {header_name: x-evil, descriptor_key: a}}]
                  - actions: [{request_headers: {header_name: x-evil, descriptor_key: b}}]
                  - actions: [{request_headers: {header_name: x-evil, descriptor_key: c}}]
                  - actions: [{request_headers: {header_name: x-evil, descriptor_key: d}}]
                  - actions: [{request_headers: {header_name: x-evil, descriptor_key: e}}]
              - match: {prefix: /}
                route:
                  cluster: upstream
                  rate_limits:
                  - actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
                  - actions: [{request_headers: {header_name: x-watched, descriptor_key: watched}}]
                  - actions: [{request_headers: {header_name: x-item, descriptor_key: item}}]
                  - actions:
                    - request_headers: {header_name: x-plan, descriptor_key: plan}
                    - request_headers: {header_name: x-action, descriptor_key: action}
                  - actions: [{request_headers: {header_name: x-own, descriptor_key: own}}]
                    limit: {dynamic_metadata: {metadata_key: {key: limits, path: [{key: own}]}}}
          http_filters:
          - name: envoy.filters.http.set_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata:
              - {metadata_namespace: limits, value: {own: {requests_per_unit: 1, unit: YEAR}}}
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: edge
              timeout: 10s
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {envoy_grpc: {cluster_name: tidegate}}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: upstream
    load_assignment:
      cluster_name: upstream
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: UPSTREAM}}}}]}]
  - name: tidegate
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: tidegate
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: TIDEGATE}}}}]}]
"#;

struct Envoy {
    child: Child,
    folder: PathBuf,
    front: String,
}

impl Envoy {
    async fn start(name: &str, upstream: u16, server: &Server) -> Self {
        Self::start_with(name, upstream, server, "").await
    }

    /// Starts with more settings for the cluster of the daemon.
    async fn start_with(name: &str, upstream: u16, server: &Server, cluster: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let binary = root.join("target/tools/envoy-1.40.0/envoy");
        assert!(binary.exists(), "{} is missing: run scripts/install", binary.display());
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let tidegate = server.address(Listener::Grpc).unwrap().port();
        let configuration = [CONFIGURATION, cluster]
            .concat()
            .replace("UPSTREAM", &upstream.to_string())
            .replace("TIDEGATE", &tidegate.to_string());
        fs::write(folder.join("envoy.yaml"), configuration).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let child = Command::new(binary)
            .args(["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"])
            .args(["--admin-address-path", "admin", "-l", "warning"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Self { child, folder, front: String::new() };
        envoy.front = envoy.wait_until_ready().await;
        envoy
    }

    /// Waits until it listens, and returns its address.
    async fn wait_until_ready(&mut self) -> String {
        loop {
            let admin = fs::read_to_string(self.folder.join("admin")).unwrap_or_default();
            if let Ok(stream) = TcpStream::connect(admin.trim()).await
                && exchange(stream, "/ready", &[]).await.status == 200
            {
                let stream = TcpStream::connect(admin.trim()).await.unwrap();
                let listeners = exchange(stream, "/listeners", &[]).await.body;
                return listeners.trim().strip_prefix("front::").unwrap().to_owned();
            }
            let ended = self.child.try_wait().unwrap();
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(ended.is_none(), "Envoy has ended: {}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn get(&self, headers: &[(&str, &str)]) -> HttpReply {
        // Some headers have a route of their own.
        let path = match headers.first() {
            Some(("x-dear", _)) => "/dear",
            Some(("x-tokens", _)) => "/tokens",
            _ => "/",
        };
        exchange(TcpStream::connect(&self.front).await.unwrap(), path, headers).await
    }

    /// The status of a request with a header that may be any bytes, in five descriptors, besides
    /// one by address.
    async fn evil(&self, address: &str, value: &[u8]) -> u16 {
        let mut request = format!("GET /evil HTTP/1.1\r\nhost: test\r\nx-address: {address}\r\n");
        request += "connection: close\r\nx-evil: ";
        let request = [request.as_bytes(), value, b"\r\n\r\n"].concat();
        send(TcpStream::connect(&self.front).await.unwrap(), &request).await.status
    }

    /// The statuses of requests in a row.
    async fn statuses<const N: usize>(&self, headers: &[(&str, &str)]) -> [u16; N] {
        let mut statuses = [0; N];
        for status in &mut statuses {
            *status = self.get(headers).await.status;
        }
        statuses
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct HttpReply {
    status: u16,
    head: String,
    body: String,
}

impl HttpReply {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// One request of HTTP/1.1.
async fn exchange(stream: TcpStream, path: &str, headers: &[(&str, &str)]) -> HttpReply {
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "\r\n";
    send(stream, request.as_bytes()).await
}

async fn send(mut stream: TcpStream, request: &[u8]) -> HttpReply {
    stream.write_all(request).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    let body = match head.contains("transfer-encoding: chunked") {
        // One chunk: its length, itself, and an end.
        true => body.split("\r\n").nth(1).unwrap_or_default(),
        false => body,
    };
    HttpReply { status, head: head.into(), body: body.into() }
}

/// An upstream that accepts every request, until the test ends.
async fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while stream.read(&mut request).await.is_ok_and(|len| len > 0) {
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nupstream";
                    if stream.write_all(response).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_enforces_the_decisions_of_the_daemon() {
    let server = daemon("edge.yaml", LIMITS).await;
    let envoy = Envoy::start("envoy-limits", upstream().await, &server).await;

    let first = envoy.get(&[("x-user", "ada")]).await;
    assert_eq!((first.status, first.body.as_str()), (200, "upstream"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("1"), "{}", first.head);
    assert_eq!(envoy.statuses(&[("x-user", "ada")]).await, [200, 429]);
    let denied = envoy.get(&[("x-user", "ada")]).await;
    assert_eq!(denied.status, 429);
    for (name, wanted) in [
        ("x-envoy-ratelimited", "true"),
        ("x-ratelimit-limit", "2, 2;w=86400;name=\"user\""),
        ("x-ratelimit-remaining", "0"),
        ("ratelimit-policy", "\"user\";q=2;w=86400"),
    ] {
        assert_eq!(denied.header(name), Some(wanted), "{name} in {}", denied.head);
    }
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&retry_after));
    assert_eq!(envoy.statuses(&[("x-user", "bob")]).await, [200, 200, 429]);
    assert_eq!(envoy.statuses(&[]).await, [200; 5], "no descriptors");

    assert_eq!(envoy.statuses(&[("x-watched", "x")]).await, [200; 3], "shadow");
    let free = [("x-plan", "free"), ("x-action", "search")];
    assert_eq!(envoy.statuses(&free).await, [200, 429], "nested");
    let paid = [("x-plan", "paid"), ("x-action", "search")];
    assert_eq!(envoy.statuses(&paid).await, [200, 200, 200, 429]);
    assert_eq!(envoy.statuses(&[("x-plan", "free")]).await, [200; 3], "half a path");
    assert_eq!(envoy.statuses(&[("x-item", "book-1")]).await, [200, 429], "wildcard");
    assert_eq!(envoy.statuses(&[("x-item", "book-2")]).await, [200, 429]);
    assert_eq!(envoy.statuses(&[("x-item", "pen")]).await, [200; 3]);
    assert_eq!(envoy.statuses(&[("x-dear", "x")]).await, [200, 200, 429], "4 of 10 each");
    assert_eq!(envoy.statuses(&[("x-own", "x")]).await, [200, 429], "its own limit");

    for (address, value) in [
        ("192.0.2.1", b"text".to_vec()),
        ("192.0.2.2", b"\xff\xfe".to_vec()),
        ("192.0.2.3", vec![b'x'; 55_000]),
    ] {
        for wanted in [200, 200, 429, 429] {
            let status = envoy.evil(address, &value).await;
            assert_eq!(status, wanted, "no header switches limits off: {} bytes", value.len());
        }
    }
    // Tokens are charged when a response has ended, and checked before the next request.
    let mut allowed = 0;
    while envoy.get(&[("x-tokens", "ada")]).await.status == 200 {
        allowed += 1;
        assert!(allowed < 100, "140 of 100 are charged, and that is denied");
    }
    assert!(allowed >= 2, "{allowed}");

    // Envoy allows requests when the daemon is down.
    server.stop().await;
    assert_eq!(envoy.statuses(&[("x-user", "ada")]).await, [200, 200]);
}

/// Envoy lets requests pass for which no daemon is healthy, so in an outage all of them have to be.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_with_health_checks_asks_a_daemon_without_its_store() {
    let policy = "[[rule]]\nname = 'user'\ndomain = 'edge'\nkey = ['user']\nmissing = 'skip'\n\
                  window = { max = 9, per = '1h' }\non_error = 'deny'\n";
    let (_store, redis) = store_away();
    let file = Policy::load("policy.toml", policy.as_bytes()).unwrap();
    let server = Server::start(Settings::on_free_ports(file).redis(redis)).await.unwrap();
    let http = server.address(Listener::Http).unwrap();
    let known = async {
        let is_known = async || {
            let stream = TcpStream::connect(http).await.unwrap();
            exchange(stream, "/readyz?strict", &[]).await.status == 503
        };
        while !is_known().await {}
    };
    tokio::time::timeout(Duration::from_secs(60), known).await.expect("the store is away");
    // As the guide has it. A machine under load needs more time for a response.
    let guide = include_str!("../../../../docs/guides/operating.md");
    let (_, health) = guide.split_once("```yaml\n  - name: tidegate\n").unwrap();
    let (health, _) = health.split_once("```").unwrap();
    assert!(health.contains("grpc_health_check"), "{health}");
    let health = &health.replace("timeout: 1s", "timeout: 60s");
    let envoy = Envoy::start_with("envoy-health", upstream().await, &server, health).await;
    assert_eq!(envoy.statuses(&[("x-user", "ada")]).await, [429, 429, 429]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_gets_the_metadata_of_descriptors_that_passed() {
    let limits = "
domain: edge
descriptors:
  - key: user
    metadata: {pool: {name: blue, size: 3}, kind: user}
    rate_limit: {unit: day, requests_per_unit: 1}
  - {key: item, metadata: {kind: item}, rate_limit: {unit: day, requests_per_unit: 9}}
";
    let file = Policy::load("edge.yaml", limits.as_bytes()).unwrap();
    let settings = Settings::on_free_ports(file).response_metadata(true);
    let server = Server::start(settings).await.unwrap();
    let envoy = Envoy::start("envoy-metadata", upstream().await, &server).await;
    let reply = envoy.get(&[("x-user", "ada"), ("x-item", "pen")]).await;
    assert_eq!(reply.status, 200, "{}", reply.head);
    let metadata = reply.header("x-metadata").unwrap_or_else(|| panic!("{}", reply.head));
    let metadata: serde_json::Value = serde_json::from_str(metadata).unwrap();
    let expected = serde_json::json!({
        "domain": "edge",
        "descriptors": [{"entries": ["user=ada"]}, {"entries": ["item=pen"]}],
        "metadata": {"pool": {"name": "blue", "size": 3}, "kind": "user"},
    });
    assert_eq!(metadata, expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_and_the_daemon_verify_each_other() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let own = servers.server("tidegate");
    let file = Policy::load("edge.yaml", LIMITS.as_bytes()).unwrap();
    let settings = Settings::on_free_ports(file)
        .tls_certificate(Some(&own.path), Some(&own.key))
        .tls_client_ca(Some(clients.path()));
    let server = Server::start(settings).await.unwrap();
    let cluster = |certificate: &Certificate| {
        format!(
            r#"    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: localhost
        common_tls_context:
          tls_certificates:
          - certificate_chain: {{filename: {}}}
            private_key: {{filename: {}}}
          validation_context:
            trusted_ca: {{filename: {}}}
            match_typed_subject_alt_names: [{{san_type: DNS, matcher: {{exact: localhost}}}}]
"#,
            certificate.path.display(),
            certificate.key.display(),
            servers.path().display()
        )
    };
    let envoy = clients.issue("envoy").names(&["URI:spiffe://example/envoy"]).write();
    let front = Envoy::start_with("envoy-mtls", upstream().await, &server, &cluster(&envoy)).await;
    assert_eq!(front.statuses(&[("x-user", "ada")]).await, [200, 200, 429]);
    // The daemon does not accept it, and Envoy lets requests pass without it.
    let stranger = servers.issue("envoy").write();
    let front =
        Envoy::start_with("envoy-denied", upstream().await, &server, &cluster(&stranger)).await;
    assert_eq!(front.statuses(&[("x-user", "ada")]).await, [200, 200]);
    server.stop().await;
}
