//! Ready means: this process can decide, by its store or by `on_error`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::redis::Redis;
use tidegate_proto::rls::rate_limit_response::Code;
use tidegate_redis_servers::{Program, Server as Store};
use tidegate_server::Listener;

use crate::grpc_client::{Client, call};
use crate::running::{Ending, Running, ask, exchange, until};

/// Without its store one domain denies, one allows, and one decides by a share of its limit.
pub(crate) const POLICY: &str = r#"
[[rule]]
name     = "strict"
domain   = "strict"
key      = ["user"]
window   = { max = 100, per = "1h" }
on_error = "deny"

[[rule]]
name     = "lax"
domain   = "lax"
key      = ["user"]
window   = { max = 100, per = "1h" }
on_error = "allow"

[[rule]]
name     = "share"
domain   = "share"
key      = ["user"]
window   = { max = 4, per = "1h" }
on_error = { local = 0.5 }
"#;

/// A store that is away.
pub(crate) fn store_away() -> (Store, Redis) {
    let server = Store::start(Program::Valkey9);
    let redis = Redis::builder(&server.url()).secret("a secret").deadline(Duration::from_secs(5));
    let redis = redis.build().unwrap();
    server.kill();
    (server, redis)
}

fn http(running: &Running) -> std::net::SocketAddr {
    running.server().address(Listener::Http).unwrap()
}

#[test]
fn a_daemon_that_starts_without_its_store_is_ready_and_degraded_until_the_store_is_there() {
    let (server, redis) = store_away();
    let running = Running::start_with(POLICY, |settings| settings.redis(redis)).unwrap();
    until("the first attempt to connect has failed", || {
        ask(running.admin(), "GET", "/readyz?strict", &[], "").status == 503
    });
    for address in [http(&running), running.admin()] {
        let ready = ask(address, "GET", "/readyz", &[], "").with(200).json();
        assert_eq!((&ready["ready"], &ready["degraded"]), (&true.into(), &["store"].into()));
        assert!(ready["store"].as_str().unwrap().contains("on_error applies"), "{ready}");
        let strict = ask(address, "GET", "/readyz?strict", &[], "").with(503).json();
        assert_eq!(strict, ready);
    }
    assert_eq!(ask(http(&running), "GET", "/healthcheck", &[], "").with(200).body, "OK");
    let metrics = ask(http(&running), "GET", "/metrics", &[], "").with(200).body;
    assert!(metrics.contains("\ntidegate_store_available 0\n"), "{metrics}");
    let status = running.admin_ok("GET", "/admin/v1/status", "");
    assert_eq!(status["store"]["available"], false, "{status}");
    server.restart();
    until("the store is there", || {
        ask(running.admin(), "GET", "/readyz?strict", &[], "").status == 200
    });
    let ready = running.admin_ok("GET", "/readyz", "");
    assert_eq!(ready.get("degraded"), None, "{ready}");
}

#[test]
fn a_daemon_whose_store_refuses_to_write_is_degraded_and_says_why() {
    let server = Store::start(Program::Valkey9);
    let redis = Redis::builder(&server.url()).secret("a secret").deadline(Duration::from_secs(5));
    let redis = redis.build().unwrap();
    let running = Running::start_with(POLICY, |settings| settings.redis(redis)).unwrap();
    let body = r#"{"domain":"strict","attributes":{"user":"ada"}}"#;
    let check = || ask(http(&running), "POST", "/v1/check", &[], body).status;
    let strict = || ask(http(&running), "GET", "/readyz?strict", &[], "");
    until("it decides", || check() == 200);
    strict().with(200);
    let _ = server.command(&["CONFIG", "SET", "maxmemory", "1"]).success();
    until("it is refused", || check() == 503);
    let ready = strict().with(503).json();
    assert_eq!((&ready["ready"], &ready["degraded"]), (&true.into(), &["store"].into()));
    assert!(ready["store"].as_str().unwrap().contains("OOM"), "{ready}");
    let metrics = ask(http(&running), "GET", "/metrics", &[], "").with(200).body;
    assert!(metrics.contains("\ntidegate_store_available 0\n"), "{metrics}");
    let status = running.admin_ok("GET", "/admin/v1/status", "");
    assert_eq!(status["store"]["available"], false, "{status}");
    let _ = server.command(&["CONFIG", "SET", "maxmemory", "0"]).success();
    until("it writes again", || strict().status == 200);
}

#[test]
fn no_probe_finds_a_daemon_ready_that_is_stopping() {
    let mut running = Running::start_with(POLICY, |settings| settings).unwrap();
    let address = http(&running);
    // A request that has begun; new connections are refused.
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\n").unwrap();
    let asking = std::thread::spawn(move || {
        until("the daemon accepts no more connections", || TcpStream::connect(address).is_err());
        // It may be closed already.
        let _ = stream.write_all(b"host: localhost\r\n\r\n");
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response);
        response
    });
    running.stop();
    let response = asking.join().unwrap();
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 503"), "{response}");
}

#[test]
fn every_protocol_decides_by_on_error_from_a_start_without_the_store_on() {
    let (_server, redis) = store_away();
    let running = Running::start_with(POLICY, |settings| settings.redis(redis)).unwrap();
    let check = |domain: &str| {
        let body = format!(r#"{{"domain":"{domain}","attributes":{{"user":"ada"}}}}"#);
        ask(http(&running), "POST", "/v1/check", &[], &body).status
    };
    assert_eq!((check("strict"), check("lax")), (503, 200));
    assert_eq!([(); 3].map(|()| check("share")), [200, 200, 429]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::new(running.server()).await;
        let healthy = client.call("/grpc.health.v1.Health/Check", b"").await.unwrap();
        assert_eq!(&healthy[..], [0x08, 1], "serving");
        let mut code = async |domain: &str| {
            let response = client.ask(&call(domain, &[&[("user", "bob")]])).await.unwrap();
            response.overall_code()
        };
        assert_eq!(code("strict").await, Code::OverLimit);
        assert_eq!(code("lax").await, Code::Ok);
        let shared = [code("share").await, code("share").await, code("share").await];
        assert_eq!(shared, [Code::Ok, Code::Ok, Code::OverLimit]);
    });
    let resp = running.server().address(Listener::Resp).unwrap();
    let commands = b"TG.CHECK lax ATTR user eve\r\nTG.CHECK strict ATTR user eve\r\nQUIT\r\n";
    let replies = String::from_utf8(exchange(resp, commands, Ending::Wait)).unwrap();
    let allowed: Vec<_> = replies.split("allowed\r\n").skip(1).map(|it| &it[..2]).collect();
    assert_eq!(allowed, [":1", ":0"], "{replies}");
}
