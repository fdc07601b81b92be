//! The guard before an upgrade.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::routing::{any, get as route};
use tidegate::{Rate, clock::ManualClock};
use tidegate_tower::{ClientIp, GuardError, Header, UpgradeGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, Service};

use crate::support::{Hello, from, get, send};

fn every(seconds: u64) -> Rate {
    Rate::one_every(Duration::from_secs(seconds))
}

fn guard(burst: u64) -> (UpgradeGuard<IpAddr, ManualClock>, ManualClock) {
    // A callsite first hit while another thread installs a subscriber may stay disabled, so all of
    // them are hit once before any test subscribes.
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        tracing::subscriber::with_default(subscriber(&Log::default()), || {
            let (guard, _) = new_guard(1);
            let mut service = guard.layer(ClientIp::peer()).layer(Hello::default());
            for request in [from("192.0.2.1:1"), from("192.0.2.1:1"), get("/", &[])] {
                drop(service.call(request));
            }
        });
    });
    new_guard(burst)
}

fn new_guard(burst: u64) -> (UpgradeGuard<IpAddr, ManualClock>, ManualClock) {
    let clock = ManualClock::default();
    let guard = UpgradeGuard::with_clock(every(6), burst, Duration::from_secs(300), clock.clone());
    (guard.unwrap(), clock)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn invalid_numbers_are_errors() {
    let zero_burst = UpgradeGuard::new(every(6), 0, Duration::from_secs(300));
    assert!(matches!(zero_burst, Err(GuardError::Limit(_))));
    let zero_interval = UpgradeGuard::new(every(6), 20, Duration::ZERO).unwrap_err();
    assert!(matches!(zero_interval, GuardError::Table(_)), "{zero_interval}");
    assert!(Rate::try_new(1, Duration::ZERO).is_err());
}

#[test]
fn burst_is_allowed_and_then_one_per_interval() {
    let (guard, clock) = guard(20);
    assert!((0..20).all(|_| guard.allow(ip("192.0.2.1"))));
    assert!(!guard.allow(ip("192.0.2.1")));
    assert!(guard.allow(ip("192.0.2.2")), "other addresses have their own bucket");
    // Two half intervals make one token.
    clock.advance(Duration::from_secs(3));
    assert!(!guard.allow(ip("192.0.2.1")));
    clock.advance(Duration::from_secs(3));
    assert!(guard.allow(ip("192.0.2.1")));
    assert!(!guard.allow(ip("192.0.2.1")));
}

#[test]
fn idle_addresses_leave_and_drained_ones_stay() {
    let (guard, clock) = guard(20);
    for last in 0..100 {
        assert!(guard.allow(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))));
    }
    while guard.allow(ip("198.51.100.1")) {}
    assert_eq!(guard.len(), 101);
    // After 6 s all but the drained one are full again; that one after 120 s.
    clock.advance(Duration::from_secs(300));
    assert_eq!(guard.len(), 0);
    while guard.allow(ip("198.51.100.1")) {}
    for _ in 0..50 {
        clock.advance(Duration::from_secs(6));
        assert!(guard.allow(ip("198.51.100.1")));
        assert!(!guard.allow(ip("198.51.100.1")), "it is called while empty");
        let _ = guard.len();
    }
    assert_eq!(guard.len(), 1, "a bucket below capacity is never dropped");
}

#[test]
fn scan_of_a_million_addresses_drops_no_drained_bucket() {
    let (guard, _) = guard(20);
    while guard.allow(ip("198.51.100.1")) {}
    for address in 0..1_200_000_u32 {
        let _ = guard.allow(IpAddr::V4((0x0a00_0000 + address).into()));
    }
    assert!(!guard.allow(ip("198.51.100.1")));
    assert!(guard.len() <= 1 << 20, "{}", guard.len());
}

#[test]
fn threads_are_admitted_exactly() {
    let (guard, _) = guard(500);
    let admitted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..1_000_u32 {
                    if guard.allow(ip("192.0.2.1")) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                    let _ = guard.allow(IpAddr::V4(round.into()));
                    let _ = guard.len();
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 500);
}

#[test]
fn default_is_twenty_at_once_and_one_every_six_seconds() {
    let decision = UpgradeGuard::default().check(ip("192.0.2.1"));
    assert_eq!((decision.limit(), decision.remaining()), (20, 19));
    assert_eq!(decision.span(), Some(Duration::from_secs(20 * 6)));
}

#[tokio::test]
async fn v6_network_is_one_client_and_skipped_requests_are_no_attempts() {
    let (guard, _) = guard(1);
    let layer = guard.layer(ClientIp::peer()).skip(|parts| parts.method == "HEAD");
    let hello = Hello::default();
    for _ in 0..3 {
        let mut skipped = from("[2001:db8::7]:1");
        *skipped.method_mut() = http::Method::HEAD;
        assert_eq!(send(&layer, &hello, skipped).await.status, 200);
    }
    assert_eq!(send(&layer, &hello, from("[2001:db8::7]:1")).await.status, 200);
    let denied = send(&layer, &hello, from("[2001:db8::8]:1")).await;
    assert_eq!(denied.status, 429);
    assert!(denied.body.contains(r#""violated-policies":["upgrade-guard"]"#), "{denied:?}");
    assert_eq!(send(&layer, &hello, from("[2001:db8:0:1::7]:1")).await.status, 200);
}

#[test]
fn closing_twice_is_fine() {
    let guard = UpgradeGuard::default();
    guard.close();
    guard.close();
    assert!(guard.allow(ip("192.0.2.1")));
}

/// The log of this thread while a future runs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn subscriber(log: &Log) -> impl tracing::Subscriber + use<> {
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .finish()
}

#[tokio::test]
async fn denial_is_a_429_with_retry_after_and_one_log_line() {
    let (guard, _) = guard(2);
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(subscriber(&log));
    let (layer, hello) = (guard.layer(ClientIp::peer()), Hello::default());
    for status in [200, 200, 429, 429] {
        let response = send(&layer, &hello, from("[2001:db8::7]:1")).await;
        assert_eq!(response.status, status);
        assert_eq!(response.header("retry-after"), (status == 429).then_some("6"));
    }
    let unknown = send(&layer, &hello, get("/ws", &[])).await;
    assert_eq!((unknown.status, unknown.header("retry-after")), (429, None));
    assert_eq!(guard.len(), 1, "an unknown address does not touch the table");
    assert_eq!(hello.calls(), 2);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            r#"WARN rate_limited remote="2001:db8::7""#,
            r#"WARN rate_limited remote="2001:db8::7""#,
            r#"WARN rate_limited remote="unknown""#,
        ]
    );
}

#[tokio::test]
async fn over_sockets_the_upgrade_is_denied_and_the_health_check_is_not() {
    let (guard, clock) = guard(3);
    let upgrade = |upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(async |_| {}) };
    let app = Router::new()
        .route("/ws", any(upgrade))
        .route("/other", any(upgrade))
        .route_layer(guard.layer(ClientIp::peer()))
        .route("/healthz", route(|| async { "ok" }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    let head = async |path: &str| {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    };
    for path in ["/ws", "/other", "/ws"] {
        assert!(head(path).await.starts_with("HTTP/1.1 101 "), "one limiter for all endpoints");
    }
    let denied = head("/other").await.to_ascii_lowercase();
    assert!(denied.starts_with("http/1.1 429 ") && denied.contains("\r\nretry-after: 6\r\n"));
    assert!(head("/healthz").await.starts_with("HTTP/1.1 200 "));
    clock.advance(Duration::from_secs(6));
    assert!(head("/ws").await.starts_with("HTTP/1.1 101 "));
}

#[tokio::test]
async fn any_type_can_be_the_key() {
    let clock = ManualClock::default();
    let builder = UpgradeGuard::builder(every(6), 1).keys::<String>().clock(clock.clone());
    let guard = builder.build().unwrap();
    let (layer, hello) = (guard.layer_by(Header::new("x-account")), Hello::default());
    let send = async |account: &str| {
        let response = send(&layer, &hello, get("/ws", &[("x-account", account)])).await;
        (response.status, response.header("retry-after").map(ToOwned::to_owned))
    };
    assert_eq!(send("ann").await, (200, None));
    assert_eq!(send("ann").await, (429, Some("6".into())));
    assert_eq!(send("bob").await, (200, None));
    assert!(!guard.allow("ann".to_owned()) && guard.allow("eve".to_owned()));
    assert_eq!(crate::support::send(&layer, &hello, get("/ws", &[])).await.status, 429, "no key");
    assert_eq!(guard.len(), 3);
    clock.advance(Duration::from_secs(3));
    guard.evict_idle();
    assert_eq!(guard.len(), 3, "none is full again");
    clock.advance(Duration::from_secs(3));
    guard.evict_idle();
    assert!(guard.is_empty(), "long before the interval");
    let by_number = UpgradeGuard::builder(every(6), 1).keys::<u64>().build().unwrap();
    assert!(by_number.allow(7) && !by_number.allow(7) && by_number.allow(8));
    let by_text = UpgradeGuard::builder(every(6), 1).keys::<str>().build().unwrap();
    assert!(by_text.allow("a") && !by_text.allow("a") && by_text.allow("b"));
}

#[test]
fn the_ceiling_of_the_table_is_a_setting() {
    let builder = UpgradeGuard::builder(every(6), 1).clock(ManualClock::default());
    let guard = builder.max_keys(1_000).build().unwrap();
    let allowed =
        (0..50_000_u32).filter(|bits| guard.allow(IpAddr::V4(Ipv4Addr::from_bits(*bits))));
    assert!(allowed.count() < 10_000, "beyond the ceiling addresses share counters");
    assert!(guard.len() <= 2_000, "{}", guard.len());
    let error = UpgradeGuard::builder(every(6), 1).max_keys(0).build().unwrap_err();
    assert!(matches!(error, GuardError::Table(_)), "{error}");
}
