//! Tokens: what each of them may do, on every listener, and how they end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use serde_json::{Value, json};
use tidegate::policy::Policy;
use tidegate_redis_servers::{Authority, Certificate};
use tidegate_server::{Listener, Server, Settings, StartError};

use crate::grpc_client;
use crate::running::{Folder, HttpReply, PATIENCE, Running, ask, until};

const POLICY: &str = r#"
[[rule]]
name   = "api"
domain = "api"
key    = ["customer"]
window = { max = 100, per = "1h" }

[[rule]]
name   = "other"
domain = "other"
window = { max = 100, per = "1h" }

[[rule]]
name   = "jobs"
domain = "jobs"
slots  = { max = 2 }
"#;

/// One token for each scope, and two clients that may do everything with data.
const TOKENS: &[(&str, &str)] = &[
    ("s-check", "name = 'check'\nscopes = ['check']"),
    ("s-settle", "name = 'settle'\nscopes = ['settle']"),
    ("s-lease", "name = 'lease'\nscopes = ['lease']"),
    ("s-read", "name = 'read'\nscopes = ['read']"),
    ("s-inspect", "name = 'inspect'\nscopes = ['inspect']"),
    ("s-admin", "name = 'admin'\nscopes = ['admin']"),
    ("s-ada", "name = 'ada'\nscopes = ['check', 'settle', 'lease', 'read']"),
    ("s-ada-2", "name = 'ada'\nscopes = ['check', 'settle', 'lease', 'read']"),
    ("s-bob", "name = 'bob'\nscopes = ['check', 'settle', 'lease', 'read']"),
    (
        "s-acme",
        "name = 'acme'\nscopes = ['check', 'settle', 'read']\ndomains = ['api']\n\
         attributes = { customer = ['acme', 'acme-test'] }",
    ),
];

fn start() -> Running {
    Running::start_with_tokens(POLICY, TOKENS)
}

fn http(running: &Running) -> SocketAddr {
    running.server().address(Listener::Http).unwrap()
}

/// Sends a request to the HTTP listener with a token.
fn send(running: &Running, token: &str, (method, path): (&str, &str), body: &str) -> HttpReply {
    let token = format!("Bearer {token}");
    ask(http(running), method, path, &[("Authorization", &token)], body)
}

fn post(running: &Running, token: &str, path: &str, body: &Value) -> HttpReply {
    send(running, token, ("POST", path), &body.to_string())
}

fn customer(name: &str) -> Value {
    json!({ "domain": "api", "attributes": { "customer": name } })
}

#[test]
fn every_operation_needs_its_scope() {
    let running = start();
    let api = customer("x").to_string();
    let peek =
        json!({ "domain": "api", "attributes": { "customer": "x" }, "peek": true }).to_string();
    let batch = format!(r#"{{"requests":[{api}]}}"#);
    let refund =
        json!({ "domain": "api", "attributes": { "customer": "x" }, "amount": 1 }).to_string();
    let rls = r#"{"domain":"api","descriptors":[{"entries":[{"key":"customer","value":"x"}]}]}"#;
    let hold = "/v1/reservations/80000000000000000000000000000000";
    let (commit, cancel) = (format!("{hold}/commit"), format!("{hold}/cancel"));
    let lease = "/v1/leases/80000000000000000000000000000000";
    let renew = format!("{lease}/renew");
    let cases: [(&str, &str, &str, &str); 15] = [
        ("check", "POST", "/v1/check", &api),
        ("read", "POST", "/v1/check", &peek),
        ("check", "POST", "/json", rls),
        ("settle", "POST", "/v1/reserve", &api),
        ("settle", "POST", &commit, ""),
        ("settle", "POST", &cancel, ""),
        ("settle", "POST", "/v1/refund", &refund),
        ("lease", "POST", "/v1/acquire", r#"{"domain":"jobs"}"#),
        ("lease", "POST", &renew, ""),
        ("lease", "DELETE", lease, ""),
        ("read", "POST", "/v1/explain", &api),
        ("read", "POST", "/v1/usage", &api),
        ("read", "GET", "/metrics", ""),
        ("check", "GET", "/check/forward?domain=other", ""),
        ("check", "GET", "/check/nginx?domain=other", ""),
    ];
    for (needed, method, path, body) in cases {
        let is_for_proxies = path.starts_with("/check/");
        for scope in ["check", "settle", "lease", "read", "inspect", "admin"] {
            let token = format!("s-{scope}");
            let headers = [("Tidegate-Token", &*token)];
            let status = ask(http(&running), method, path, &headers, body).status;
            let may = !matches!(status, 401 | 403 | 503);
            assert_eq!(may, scope == needed, "{method} {path} with {scope}: {status}");
            if !may {
                assert_eq!(status, if is_for_proxies { 503 } else { 403 }, "{path} {scope}");
            }
        }
        let none = ask(http(&running), method, path, &[], body);
        assert_eq!(none.status, if is_for_proxies { 503 } else { 401 }, "{path}");
        assert_eq!(none.head.contains("www-authenticate: bearer"), !is_for_proxies, "{none:?}");
    }
    // Each of a batch by itself.
    let mixed = format!(r#"{{"requests":[{api},{peek},{api}]}}"#);
    let results = send(&running, "s-check", ("POST", "/v1/check/batch"), &mixed).with(200).json();
    let statuses: Vec<_> = (0..3).map(|at| results["results"][at]["status"].clone()).collect();
    assert_eq!(statuses, [Value::Null, json!(403), Value::Null], "{results}");
    let _ = send(&running, "s-settle", ("POST", "/v1/check/batch"), &batch).with(200);
    for open in ["/healthz", "/readyz", "/healthcheck"] {
        assert_eq!(ask(http(&running), "GET", open, &[], "").status, 200, "{open}");
    }
    assert_eq!(ask(http(&running), "GET", "/openapi.json", &[], "").status, 401);
    let _ = send(&running, "s-lease", ("GET", "/openapi.json"), "").with(200);
}

#[test]
fn a_secret_is_sent_once_and_authorization_of_a_proxied_client_is_not_one() {
    let running = start();
    let status = |headers: &[(&str, &str)], path: &str| {
        ask(http(&running), "POST", path, headers, &customer("x").to_string()).status
    };
    let bearer = ("Authorization", "Bearer s-check");
    assert_eq!(status(&[bearer], "/v1/check"), 200);
    assert_eq!(status(&[("Tidegate-Token", "s-check")], "/v1/check"), 200);
    assert_eq!(status(&[bearer, ("Tidegate-Token", "s-check")], "/v1/check"), 400);
    assert_eq!(status(&[bearer, bearer], "/v1/check"), 400);
    assert_eq!(status(&[("Authorization", "Basic czpzLWNoZWNr")], "/v1/check"), 401);
    assert_eq!(status(&[("Authorization", "Bearer s-chec")], "/v1/check"), 401);
    let long = "x".repeat(12_000);
    assert_eq!(status(&[("Tidegate-Token", &long)], "/v1/check"), 401);
    let forward = "/check/forward?domain=other";
    assert_eq!(status(&[bearer], forward), 503, "it belongs to the client of the proxy");
    assert_eq!(status(&[("Tidegate-Token", "s-check"), bearer], forward), 200);
    let own = [("Tidegate-Token", "s-check"), ("Authorization", "Basic eDp5")];
    assert_eq!(status(&own, forward), 200);
}

#[test]
fn a_token_is_for_its_domains_and_attributes() {
    let running = start();
    let check = |body: &Value| post(&running, "s-acme", "/v1/check", body).status;
    assert_eq!(check(&customer("acme")), 200);
    assert_eq!(check(&customer("acme-test")), 200);
    assert_eq!(check(&customer("umbrella")), 403);
    assert_eq!(check(&json!({ "domain": "api" })), 403);
    assert_eq!(check(&json!({ "domain": "other", "attributes": { "customer": "acme" } })), 403);
    assert_eq!(check(&json!({ "attributes": { "customer": "acme" } })), 403, "the default domain");
    let refund =
        |name: &str| json!({ "domain": "api", "attributes": { "customer": name }, "amount": 1 });
    let _ = post(&running, "s-ada", "/v1/check", &customer("umbrella")).with(200);
    assert_eq!(post(&running, "s-acme", "/v1/refund", &refund("umbrella")).status, 403);
    assert_eq!(post(&running, "s-acme", "/v1/refund", &refund("acme")).json()["refunded"], 1);
    assert_eq!(post(&running, "s-acme", "/v1/explain", &customer("umbrella")).status, 403);
    assert_eq!(send(&running, "s-acme", ("GET", "/metrics"), "").status, 403, "it has all domains");
    let rls = |entries: &str| {
        let body = format!(r#"{{"domain":"api","descriptors":[{{"entries":[{entries}]}}]}}"#);
        send(&running, "s-acme", ("POST", "/json"), &body).status
    };
    let entry = |value: &str| format!(r#"{{"key":"customer","value":"{value}"}}"#);
    assert_eq!(rls(&entry("acme")), 200);
    assert_eq!(rls(&entry("umbrella")), 403);
    assert_eq!(rls(&format!("{},{}", entry("acme"), entry("umbrella"))), 403, "both of them");
}

#[test]
fn units_given_back_over_envoys_api_need_settle() {
    let running = start();
    let back = r#"{"domain":"api","descriptors":[{"entries":[{"key":"customer","value":"x"}],
                   "isNegativeHits":true}]}"#;
    assert_eq!(send(&running, "s-check", ("POST", "/json"), back).status, 403);
    assert_eq!(send(&running, "s-ada", ("POST", "/json"), back).status, 200);
}

#[test]
fn holds_and_idempotency_keys_belong_to_the_name_of_a_token() {
    let running = start();
    let reserve = |token: &str, key: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", &*bearer), ("Idempotency-Key", key)];
        let body = customer("x").to_string();
        ask(http(&running), "POST", "/v1/reserve", &headers, &body).with(200).json()["reservation"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let of_ada = reserve("s-ada", "one");
    assert_eq!(reserve("s-ada-2", "one"), of_ada, "the same name, after a rotation");
    let of_bob = reserve("s-bob", "one");
    assert_ne!(of_bob, of_ada, "the same key of another client");
    let act = |token: &str, id: &str, verb: &str| {
        send(&running, token, ("POST", &format!("/v1/reservations/{id}/{verb}")), "")
    };
    for verb in ["commit", "cancel"] {
        let other = act("s-bob", &of_ada, verb);
        let never = act("s-bob", "80000000000000000000000000000000", verb);
        assert_eq!((other.status, never.status), (410, 410));
    }
    let _ = act("s-ada-2", &of_ada, "commit").with(200);
    let refund =
        |token: &str| post(&running, token, "/v1/refund", &json!({ "reservation": of_ada })).status;
    assert_eq!((refund("s-bob"), refund("s-ada")), (410, 200));
    let lease = |token: &str| {
        let body = json!({ "domain": "jobs" });
        post(&running, token, "/v1/acquire", &body).with(200).json()["lease"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let lease = lease("s-ada");
    let renew = |token: &str| {
        send(&running, token, ("POST", &format!("/v1/leases/{lease}/renew")), "").status
    };
    let release =
        |token: &str| send(&running, token, ("DELETE", &format!("/v1/leases/{lease}")), "").status;
    assert_eq!((renew("s-bob"), renew("s-ada-2")), (410, 200));
    assert_eq!((release("s-bob"), release("s-ada")), (410, 204));
    // Those of the local socket's owner, too.
    let mut caller = running.caller();
    let commit = json!({ "type": "commit", "reservation": of_bob, "protocolVersion": 1 });
    assert_eq!(caller.ask(&commit)["ok"], true, "who runs the daemon may settle everything");
}

#[test]
fn a_token_has_its_own_limit_over_all_listeners() {
    let limited = "name = 'slow'\nscopes = ['check', 'read']\nlimit = { rate = '1/h', burst = 4 }";
    let tokens = [("one", limited), ("two", limited)];
    let running = Running::start_with_tokens(POLICY, &tokens);
    let _ = post(&running, "one", "/v1/check", &customer("x")).with(200);
    let mut resp = Resp::connect(&running, "two");
    assert!(resp.ask(&["TG.CHECK", "api", "ATTR", "customer", "x"]).starts_with('*'));
    let two = json!({ "requests": [customer("x"), customer("x")] });
    let _ = post(&running, "one", "/v1/check/batch", &two).with(200);
    let denied = post(&running, "two", "/v1/check", &customer("x")).with(429);
    assert!(denied.head.contains("retry-after: 3"), "{denied:?}");
    let denied = resp.ask(&["TG.CHECK", "api", "ATTR", "customer", "x"]);
    assert!(denied.starts_with("-LIMIT "), "{denied}");
    let throttle = resp.ask(&["CL.THROTTLE", "k", "1", "1", "1"]);
    assert!(throttle.starts_with("-LIMIT "), "{throttle}");
}

/// A connection to the RESP listener.
struct Resp(TcpStream);

impl Resp {
    fn open(running: &Running) -> Self {
        let stream = TcpStream::connect(running.server().address(Listener::Resp).unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn connect(running: &Running, secret: &str) -> Self {
        let mut resp = Self::open(running);
        assert_eq!(resp.ask(&["AUTH", secret]), "+OK\r\n");
        resp
    }

    /// The first bytes of a reply.
    fn ask(&mut self, words: &[&str]) -> String {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.write_all(command.as_bytes()).unwrap();
        let mut reply = [0; 4_096];
        let count = self.0.read(&mut reply).unwrap();
        String::from_utf8(reply[..count].to_vec()).unwrap()
    }

    fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0; 16]) {
            Ok(count) => count == 0,
            // A time-out is no end.
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn resp_clients_have_the_scopes_of_their_token() {
    let running = start();
    let check = ["TG.CHECK", "api", "ATTR", "customer", "x"];
    let mut resp = Resp::open(&running);
    assert_eq!(resp.ask(&check), "-NOAUTH Authentication required.\r\n");
    assert!(resp.ask(&["AUTH", "bob", "s-ada"]).starts_with("-WRONGPASS"), "another name");
    assert_eq!(resp.ask(&["AUTH", "ada", "s-ada"]), "+OK\r\n");
    assert!(resp.ask(&check).starts_with('*'));
    let reserved = resp.ask(&["TG.RESERVE", "api", "ATTR", "customer", "x"]);
    let at = reserved.find("reservation\r\n$32\r\n").unwrap() + "reservation\r\n$32\r\n".len();
    let id = &reserved[at..at + 32];
    let mut bob = Resp::connect(&running, "s-bob");
    assert!(bob.ask(&["TG.COMMIT", id]).starts_with("-GONE "), "of another client");
    assert!(resp.ask(&["TG.COMMIT", id]).starts_with('*'));
    let may = |secret: &str, words: &[&str]| {
        let reply = Resp::connect(&running, secret).ask(words);
        let is_denied = reply.starts_with("-NOPERM ");
        assert!(is_denied || !reply.starts_with('-'), "{secret} {words:?}: {reply}");
        !is_denied
    };
    assert!(may("s-check", &check) && !may("s-read", &check) && !may("s-settle", &check));
    let peek = ["TG.PEEK", "api", "ATTR", "customer", "x"];
    assert!(may("s-read", &peek) && !may("s-check", &peek));
    assert!(may("s-read", &["TG.EXPLAIN", "api", "ATTR", "customer", "x"]));
    assert!(!may("s-check", &["TG.RESERVE", "api", "ATTR", "customer", "x"]));
    let throttle = ["CL.THROTTLE", "k", "15", "30", "60"];
    assert!(may("s-check", &throttle) && !may("s-read", &throttle));
    assert!(!may("s-acme", &throttle), "it is for one domain");
    assert!(may("s-acme", &["TG.CHECK", "api", "ATTR", "customer", "acme"]));
    assert!(!may("s-acme", &["TG.CHECK", "other"]));
    assert!(may("s-check", &["HELLO", "3", "AUTH", "check", "s-check"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_calls_have_the_scopes_of_their_token() {
    let folder = Folder::new();
    let file = Policy::parse("policy.toml", POLICY.as_bytes()).unwrap();
    let tokens = folder.tokens(TOKENS);
    let server = Server::start(Settings::on_free_ports(file).tokens(tokens)).await.unwrap();
    let mut client = grpc_client::Client::new(&server).await;
    let acme = grpc_client::call("api", &[&[("customer", "acme")]]);
    let both = grpc_client::call("api", &[&[("customer", "acme")], &[("customer", "x")]]);
    let mut status = async |token, call: &_| {
        client.token = token;
        client.ask(call).await.map_or_else(|(status, _)| status, |_| 0)
    };
    assert_eq!(status(None, &acme).await, 16);
    assert_eq!(status(Some("wrong"), &acme).await, 16);
    assert_eq!(status(Some("s-read"), &acme).await, 7);
    assert_eq!(status(Some("s-check"), &acme).await, 0);
    assert_eq!(status(Some("s-acme"), &acme).await, 0);
    assert_eq!(status(Some("s-acme"), &both).await, 7, "one of the descriptors");
    let mut back = acme.clone();
    back.descriptors[0].is_negative_hits = true;
    assert_eq!(status(Some("s-check"), &back).await, 7);
    assert_eq!(status(Some("s-ada"), &back).await, 0);
    client.token = None;
    assert!(
        client.call("/grpc.health.v1.Health/Check", b"").await.is_ok(),
        "health is for everyone"
    );
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    assert_eq!(client.call(reflection, b"").await.unwrap_err().0, 16);
    server.stop().await;
}

#[test]
fn a_user_of_the_local_socket_may_do_what_its_token_says() {
    let folder = Folder::new();
    let path = folder.path().join("tokens.toml");
    let token = "[[token]]\nname = 'app'\nuser = 'uid:4242'\nscopes = ['check']\ndomains = ['other']\n\
                 [[token]]\nname = 'ops'\ngroup = 'gid:4343'\nscopes = ['admin']\n\
                 [[token]]\nname = 'old'\nuser = 'uid:4245'\nscopes = ['read']\n\
                 until = 2020-01-01T00:00:00Z\n";
    std::fs::write(&path, token).unwrap();
    let listed = format!("[server]\nunix_users = ['uid:4245', 'uid:4246']\n{POLICY}");
    let running = Running::start_in(folder, &listed, |settings| settings.tokens(path)).unwrap();
    let ask = |uid: &str, gid: &str, frame: &Value| -> Value {
        let script = r"use IO::Socket::UNIX; my ($path, $frame) = @ARGV;
            my $s = IO::Socket::UNIX->new(Peer => $path) or die $!; binmode $s;
            print $s pack('V', length $frame), $frame; $s->flush;
            read($s, my $head, 4); read($s, my $text, unpack('V', $head)); print $text";
        let output = std::process::Command::new("setpriv")
            .args([&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups"])
            .args(["/usr/bin/perl", "-e", script, running.folder.socket().to_str().unwrap()])
            .arg(frame.to_string())
            .output()
            .expect("setpriv and perl are part of Debian");
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("{text} {}", String::from_utf8_lossy(&output.stderr)))
    };
    let check = |domain: &str| json!({ "type": "check", "domain": domain, "protocolVersion": 1 });
    let status = json!({ "type": "admin", "method": "GET", "path": "/admin/v1/status" });
    assert_eq!(ask("4242", "1", &check("other"))["ok"], true);
    assert_eq!(ask("4242", "1", &check("api"))["ok"], false);
    let denied = ask("4242", "1", &status);
    assert_eq!((&denied["ok"], &denied["status"]), (&json!(false), &json!(403)), "{denied}");
    assert_eq!(ask("4243", "4343", &status)["ok"], true);
    assert_eq!(ask("4243", "4343", &check("other"))["ok"], false);
    assert_eq!(ask("4246", "1", &check("other"))["ok"], true, "it is in the access list");
    let ended = ask("4245", "1", &check("other"));
    assert!(ended["error"].as_str().unwrap().contains("has ended"), "not by the list: {ended}");
    let stranger = ask("4244", "1", &check("other"));
    assert!(stranger["error"].as_str().unwrap().starts_with("Access denied"), "{stranger}");
}

#[test]
pub(crate) fn a_revoked_token_loses_its_connections() {
    let running = start();
    let mut kept = Resp::connect(&running, "s-check");
    let mut revoked = Resp::connect(&running, "s-ada");
    let mut changed = Resp::connect(&running, "s-bob");
    // A secret that was not accepted does not tie the connection to another token.
    assert!(revoked.ask(&["AUTH", "someone", "s-check"]).starts_with("-WRONGPASS"));
    let mut idle = crate::http_support::Client::new(http(&running));
    let token = [("tidegate-token", "s-ada")];
    let check = customer("x").to_string();
    assert_eq!(idle.ask("POST", "/v1/check", &token, check.as_bytes()).status, 200);
    let mut tokens: Vec<_> =
        TOKENS.iter().copied().filter(|(secret, _)| *secret != "s-ada").collect();
    for (secret, fields) in &mut tokens {
        if *secret == "s-bob" {
            *fields = "name = 'bob'\nscopes = ['read']";
        }
    }
    running.folder.tokens(&tokens);
    assert!(revoked.is_closed() && changed.is_closed() && idle.rest().is_empty());
    assert_eq!(post(&running, "s-ada", "/v1/check", &customer("x")).status, 401);
    assert_eq!(post(&running, "s-bob", "/v1/check", &customer("x")).status, 403);
    assert_eq!(kept.ask(&["PING"]), "+PONG\r\n", "others stay");
    assert_eq!(post(&running, "s-ada-2", "/v1/check", &customer("x")).status, 200);
    // A file with errors, or none, changes nothing, and that is shown.
    let path = running.folder.path().join("tokens.toml");
    std::fs::write(&path, "[[token]]\nname = 'x'\n").unwrap();
    let ready = || running.ask("GET", "/readyz", "").json();
    until("the error is shown", || {
        ready()["tokens"].as_str().is_some_and(|it| it.contains(":1:1: "))
    });
    assert_eq!(post(&running, "s-check", "/v1/check", &customer("x")).status, 200);
    std::fs::remove_file(&path).unwrap();
    until("the error is shown", || {
        ready()["tokens"].as_str().is_some_and(|it| it.contains("cannot read"))
    });
    assert_eq!(post(&running, "s-check", "/v1/check", &customer("x")).status, 200);
    assert_eq!(post(&running, "s-ada", "/v1/check", &customer("x")).status, 401);
    running.folder.tokens(TOKENS);
    until("the tokens are back", || {
        post(&running, "s-ada", "/v1/check", &customer("x")).status == 200
    });
    assert_eq!(ready()["tokens"], Value::Null);
}

#[test]
fn a_token_ends_at_its_time() {
    let ended = "name = 'a'\nscopes = ['check']\nuntil = 2020-01-01T00:00:00Z";
    let running = Running::start_with_tokens(POLICY, &[("old", ended)]);
    let reply = post(&running, "old", "/v1/check", &customer("x")).with(401);
    assert!(reply.body.contains("has ended"), "{reply:?}");
    // One that ends while a connection is open.
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(6);
    let soon = format!("name = 'a'\nscopes = ['check']\nuntil = {soon}");
    let running = Running::start_with_tokens(POLICY, &[("soon", &soon)]);
    assert!(Resp::connect(&running, "soon").is_closed());
    assert_eq!(post(&running, "soon", "/v1/check", &customer("x")).status, 401);
}

#[test]
fn denials_are_counted_by_reason() {
    let running = start();
    let _ = post(&running, "wrong", "/v1/check", &customer("x"));
    let _ = post(&running, "s-read", "/v1/check", &customer("x"));
    let _ = post(&running, "s-acme", "/v1/check", &customer("x"));
    let _ = post(&running, "s-acme", "/v1/check", &json!({ "domain": "other" }));
    let _ = ask(http(&running), "POST", "/v1/check", &[], "{}");
    let metrics = running.ask_as("s-read", "GET", "/metrics", "").with(200).body;
    for reason in ["unknown", "scope", "attribute", "domain", "missing"] {
        let line =
            format!("\ntidegate_access_denied_total{{listener=\"http\",reason=\"{reason}\"}} 1\n");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    assert!(metrics.contains("\ntidegate_tokens 10\n"));
}

#[test]
fn a_host_is_an_address_localhost_or_listed_unless_there_is_a_token() {
    let policy = format!("[server]\nhosts = ['Limits.Example']\n{POLICY}");
    let running = Running::start(&policy);
    let check = |host: &str| {
        let body = customer("x").to_string();
        ask(http(&running), "POST", "/v1/check", &[("Host", host)], &body).status
    };
    for known in ["127.0.0.1:8080", "[::1]:8080", "localhost", "limits.example:80", "192.0.2.1"] {
        assert_eq!(check(known), 200, "{known}");
    }
    assert_eq!(check("rebound.example"), 403);
    let status =
        |path: &str| ask(http(&running), "GET", path, &[("Host", "rebound.example")], "").status;
    assert_eq!((status("/check/forward?domain=other"), status("/healthz")), (503, 200));
    let admin = ask(running.admin(), "GET", "/admin/v1/status", &[("Host", "limits.example")], "");
    assert_eq!(admin.status, 200);
    let running = start();
    let headers = [("Host", "rebound.example"), ("Tidegate-Token", "s-check")];
    let reply = ask(http(&running), "POST", "/v1/check", &headers, &customer("x").to_string());
    assert_eq!(reply.status, 200, "a page has no token");
}

#[test]
fn a_listener_that_other_machines_reach_is_closed_by_default() {
    let start = |settings: Settings| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let started = runtime.block_on(Server::start(settings));
        started.map(|server| runtime.block_on(server.stop()))
    };
    let file = || Policy::parse("policy.toml", POLICY.as_bytes()).unwrap();
    let folder = Folder::new();
    let tokens = folder.tokens(TOKENS);
    for listener in [Listener::Http, Listener::Grpc, Listener::Resp, Listener::Admin] {
        let everywhere =
            |address: &str| Settings::on_free_ports(file()).listen(listener, Some(address));
        for address in ["0.0.0.0:0", "[::]:0"] {
            match start(everywhere(address)) {
                Err(StartError::Unprotected { listener: which, address: at }) => {
                    assert_eq!((which, &*at), (listener, address));
                }
                other => panic!("{listener}: {other:?}"),
            }
        }
        let error = start(everywhere("0.0.0.0:0").tokens(&tokens)).unwrap_err().to_string();
        assert!(error.contains("--tls-cert") && error.contains("--tokens"), "{error}");
        let open = start(everywhere("0.0.0.0:0").open_access(true));
        assert_eq!(open.is_ok(), listener != Listener::Admin, "{listener}: {open:?}");
        assert!(start(everywhere("127.0.0.1:0")).is_ok());
    }
}

#[test]
fn a_certificate_identifies_its_client() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let own = servers.server("tidegate");
    let folder = Folder::new();
    let tokens = folder.path().join("tokens.toml");
    let entry = |name: &str, subject: &str, scopes: &str| {
        format!("[[token]]\nname = '{name}'\nsubject = '{subject}'\nscopes = {scopes}\n")
    };
    let data = "['check', 'settle', 'read']";
    let entries = [
        entry("envoy", "spiffe://example/envoy", data),
        entry("other", "other.example", data),
        entry("plain", "plain name", "['check']"),
    ];
    std::fs::write(&tokens, entries.concat()).unwrap();
    let with_tls = |settings: Settings| {
        settings
            .tls_certificate(Some(&own.path), Some(&own.key))
            .tls_client_ca(Some(clients.path()))
            .listen(Listener::Http, Some("0.0.0.0:0"))
            .listen(Listener::Admin, Some("0.0.0.0:0"))
    };
    let running = Running::start_in(folder, POLICY, |it| with_tls(it).tokens(tokens))
        .expect("it is protected");
    let certificates = [
        clients.issue("x").names(&["URI:spiffe://example/envoy", "DNS:envoy.example"]).write(),
        clients.issue("x").names(&["DNS:other.example"]).write(),
        clients.issue("plain name").write(),
        clients.issue("plain name").names(&["DNS:evil.example"]).write(),
    ];
    let curl =
        |running: &Running, listener, certificate: &Certificate, path: &str, body: Option<&str>| {
            let port = running.server().address(listener).unwrap().port();
            let mut curl = std::process::Command::new("curl");
            curl.args(["-s", "-w", "\n%{http_code}", "--cacert"]).arg(servers.path());
            curl.arg("--cert").arg(&certificate.path).arg("--key").arg(&certificate.key);
            if let Some(body) = body {
                curl.args(["-d", body]);
            }
            let output = curl.arg(format!("https://localhost:{port}{path}")).output();
            let text =
                String::from_utf8(output.expect("curl: run scripts/install").stdout).unwrap();
            let (body, status) = text.rsplit_once('\n').unwrap();
            (status.parse::<u16>().unwrap(), body.to_owned())
        };
    let check = customer("x").to_string();
    let post = |certificate: usize, path: &str| {
        curl(&running, Listener::Http, &certificates[certificate], path, Some(&check))
    };
    let statuses = |path: &str| [0, 1, 2, 3].map(|certificate| post(certificate, path).0);
    assert_eq!(statuses("/v1/check"), [200, 200, 200, 401], "by name, and by no other");
    assert_eq!(statuses("/v1/reserve"), [200, 200, 403, 401]);
    let reserved: Value = serde_json::from_str(&post(0, "/v1/reserve").1).unwrap();
    let cancel = format!("/v1/reservations/{}/cancel", reserved["reservation"].as_str().unwrap());
    let cancel = |certificate: usize| {
        curl(&running, Listener::Http, &certificates[certificate], &cancel, Some("")).0
    };
    assert_eq!((cancel(1), cancel(0)), (410, 204), "each has its own reservations");
    // Without tokens a certificate of the authority is enough, also for admins.
    let alone = Running::start_with(POLICY, with_tls).expect("it is protected");
    let status = |listener, path| curl(&alone, listener, &certificates[3], path, None).0;
    assert_eq!(status(Listener::Admin, "/admin/v1/status"), 200);
    assert_eq!(status(Listener::Http, "/metrics"), 200);
    assert_eq!(post_of_a_page(&alone, servers.path(), &certificates[3]), "403");
}

/// The status of a change that a page wants, with the certificate that a browser sends along.
fn post_of_a_page(running: &Running, authority: &Path, certificate: &Certificate) -> String {
    let port = running.server().address(Listener::Admin).unwrap().port();
    let mut curl = std::process::Command::new("curl");
    curl.args([
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "-H",
        "Origin: https://evil.example",
    ]);
    curl.arg("--cacert").arg(authority).arg("--cert").arg(&certificate.path);
    curl.arg("--key").arg(&certificate.key).args(["-d", r#"{"match":{"user":"x"}}"#]);
    let output = curl.arg(format!("https://localhost:{port}/admin/v1/bans")).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
