//! Forward auth, with the test as the proxy.

use crate::http_support::{Reply, Running};

const POLICY: &str = r#"
    [[rule]]
    name   = "per-client"
    key    = ["ip"]
    window = { max = 1, per = "1h" }
    deny   = "not so fast"

    [[rule]]
    name   = "searches"
    domain = "web"
    match  = { method = "POST", path = "/search*", host = "example.com" }
    key    = ["user"]
    window = { max = 1, per = "1h" }
"#;

/// A header that only a proxy adds.
const PROXIED: (&str, &str) = ("X-Forwarded-Method", "GET");

fn forward(daemon: &Running, headers: &[(&str, &str)]) -> Reply {
    daemon.client().ask("GET", "/check/forward", headers, b"")
}

#[test]
fn allowed_requests_get_headers_and_denied_ones_a_response() {
    let daemon = Running::new(POLICY);
    let from = [("X-Forwarded-For", "192.0.2.7")];
    let reply = forward(&daemon, &from);
    assert_eq!((reply.status, reply.body.len()), (200, 0));
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""per-client";q=1;w=3600"#));
    let reply = forward(&daemon, &from);
    assert_eq!(reply.problem().0, 429);
    assert_eq!(reply.json()["violated-policies"][0], "per-client");
    assert_eq!(reply.json()["detail"], "not so fast");
    assert!(reply.header("retry-after").is_some());
    // nginx gets a status alone.
    let nginx = |ip| {
        let headers = [("X-Forwarded-For", ip)];
        daemon.client().ask("POST", "/check/nginx", &headers, b"whatever the client sends")
    };
    let reply = nginx("192.0.2.7");
    assert_eq!((reply.status, reply.body.len()), (403, 0));
    assert!(reply.header("retry-after").is_some() && reply.header("ratelimit").is_some());
    assert_eq!(nginx("192.0.2.8").status, 204);
}

/// Any page can make a browser send requests here, and a proxy passes on the headers of its clients.
#[test]
fn a_page_reaches_the_checks_of_proxies_through_a_proxy_only() {
    let daemon = Running::new(POLICY);
    let ask = |path: &str, headers: &[(&str, &str)]| {
        daemon.client().ask("GET", path, headers, b"").status
    };
    let pages = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")];
    for (path, allowed, added) in [
        ("/check/forward", 200, ["X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host"]),
        ("/check/nginx", 204, ["X-Original-Method", "X-Original-URI", "X-Original-Host"]),
    ] {
        let other = format!("{path}?domain=web");
        for page in pages {
            assert_eq!(ask(path, &[page]), 503, "{page:?}");
            for name in added {
                assert_eq!(ask(&other, &[page, (name, "/x")]), allowed, "{page:?} {name}");
            }
            assert_eq!(ask(&other, &[page, ("X-Forwarded-For", "192.0.2.1")]), allowed);
        }
        assert_eq!(ask(&other, &[("Sec-Fetch-Site", "none")]), allowed, "typed by its user");
        assert_eq!(ask(&other, &[]), allowed, "a program");
    }
    // The page has charged nothing.
    assert_eq!(forward(&daemon, &[PROXIED]).status, 200);
}

#[test]
fn the_client_address_comes_from_trusted_proxies() {
    // Without `trusted_proxies` only proxies on loopback are trusted.
    let daemon = Running::new(POLICY);
    let from = |daemon: &Running, list: &str| forward(daemon, &[("X-Forwarded-For", list)]).status;
    assert_eq!(from(&daemon, "192.0.2.7"), 200);
    assert_eq!(from(&daemon, "6.6.6.6, 192.0.2.7"), 429, "entries of the client do not count");
    assert_eq!(from(&daemon, "192.0.2.7, 127.0.0.1"), 429);
    assert_eq!(from(&daemon, "192.0.2.9, 10.0.0.1"), 200, "10.0.0.1 is the client");
    assert_eq!(from(&daemon, "192.0.2.10, 10.0.0.1"), 429);
    assert_eq!(forward(&daemon, &[PROXIED]).status, 200, "without a header it is the proxy itself");
    assert_eq!(from(&daemon, "garbage"), 429);
    // With `trusted_proxies` only those are trusted.
    let named = format!("[server]\ntrusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n{POLICY}");
    let daemon = Running::new(&named);
    assert_eq!(from(&daemon, "192.0.2.9, 10.0.0.1"), 200);
    assert_eq!(from(&daemon, "192.0.2.9"), 429);
    let daemon = Running::new(&named.replace("127.0.0.0/8", "192.168.0.0/16"));
    assert_eq!(from(&daemon, "192.0.2.7"), 200);
    assert_eq!(from(&daemon, "192.0.2.8"), 429, "the peer is no proxy, so it is the client");
}

#[test]
fn attributes_come_from_the_headers_of_each_dialect() {
    let daemon = Running::new(&format!("[server]\nuser_header = \"X-User\"\n{POLICY}"));
    let ask = |path: &str, kind: &str, method: &str, host: &str, uri: &str| {
        let names = ["Method", "Host", "URI"].map(|name| format!("X-{kind}-{name}"));
        let headers =
            [(&*names[0], method), (&*names[1], host), (&*names[2], uri), ("X-User", "ada")];
        daemon.client().ask("GET", &format!("{path}?domain=web"), &headers, b"").status
    };
    let misconfigured = |path: &str, kind: &str| ask(path, kind, "POST", "example.com", "/search");
    let path = "/check/forward";
    assert_eq!(ask(path, "Forwarded", "POST", "Example.com:8443", "/search?q=1"), 200);
    assert_eq!(ask(path, "Forwarded", "POST", "example.com", "/search/x?q=/a"), 429);
    assert_eq!(ask(path, "Forwarded", "GET", "example.com", "/search"), 200);
    assert_eq!(ask(path, "Forwarded", "POST", "example.org", "/search"), 200);
    assert_eq!(ask(path, "Forwarded", "POST", "example.com", "/?q=/search"), 200);
    assert_eq!(misconfigured(path, "Original"), 200, "headers of the other dialect");
    let path = "/check/nginx";
    assert_eq!(ask(path, "Original", "POST", "example.com", "/search"), 403);
    assert_eq!(misconfigured(path, "Forwarded"), 204);
}

#[test]
fn the_domain_is_the_only_parameter_of_the_query() {
    let daemon = Running::new(POLICY);
    let ask = |query: &str| {
        daemon.client().ask("GET", &format!("/check/forward?{query}"), &[PROXIED], b"")
    };
    assert_eq!(ask("").status, 200);
    assert_eq!(ask("domain=%77eb").status, 200);
    assert_eq!(ask("domain=default").status, 429);
    assert!(ask("domian=web").problem().1.contains("unknown parameter `domian`"));
    assert_eq!(ask("domain=a&domain=b").problem().0, 422);
    assert_eq!(ask("domain=%ff").problem().0, 422);
}

#[test]
fn invalid_utf8_in_headers_does_not_bypass_rules() {
    let policy = "[[rule]]\nname = 'sign-ups'\nmatch = { path = '/sign-up*' }\n\
                  window = { max = 1, per = '1h' }\n";
    let daemon = Running::new(policy);
    let status = |uri: &[u8]| {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(daemon.address()).unwrap();
        stream.write_all(b"GET /check/forward HTTP/1.1\r\nhost: localhost\r\n").unwrap();
        stream.write_all(b"connection: close\r\nx-forwarded-uri: ").unwrap();
        stream.write_all(uri).unwrap();
        stream.write_all(b"\r\n\r\n").unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        String::from_utf8_lossy(&response[9..12]).into_owned()
    };
    assert_eq!(status(b"/sign-up"), "200");
    assert_eq!(status(b"/sign-up?x=\xff"), "429");
    assert_eq!(status(b"/sign-up\xff"), "429");
    assert_eq!(status(b"/sign-up\r\nx-forwarded-uri: /else"), "422");
    assert_eq!(status(b"/else\xff"), "200");
}

/// Ways to write `/sign-up` that servers treat alike.
const SIGN_UPS: [&str; 6] = [
    "/%73ign-up",
    "/x/../sign-up",
    "//sign-up",
    "/x%2f..%5Csign-up",
    "/%2e/sign-up?x=1",
    "http://example.com/sign-up",
];

#[test]
fn another_way_to_write_a_path_does_not_bypass_rules() {
    let policy = "[[rule]]\nname = 'sign-ups'\nmatch = { path = '/sign-up' }\nkey = ['path']\n\
                  window = { max = 1, per = '1h' }\n";
    for (at, header, denied, invalid) in [
        ("/check/forward", "x-forwarded-uri", 429, 400),
        ("/check/nginx", "x-original-uri", 403, 403),
    ] {
        let daemon = Running::new(policy);
        let ask = |uri: &str| daemon.client().ask("GET", at, &[(header, uri)], b"");
        assert!([200, 204].contains(&ask("/sign-up").status));
        for uri in SIGN_UPS {
            assert_eq!(ask(uri).status, denied, "{uri}");
        }
        for (uri, why) in [("/sign-up%00", "NUL"), ("/%zz", "hexadecimal"), ("/a%", "hexadecimal")]
        {
            let (status, detail, _) = ask(uri).problem();
            assert!(status == invalid && detail.contains(why), "{uri}: {status} {detail}");
        }
    }
}

#[test]
fn encoded_slashes_can_be_kept() {
    let policy = "[server]\nencoded_slash = 'keep'\n[[rule]]\nname = 'projects'\n\
                  match = { path = '/projects/a%2Fb' }\nwindow = { max = 1, per = '1h' }\n";
    let daemon = Running::new(policy);
    let ask = |uri: &str| forward(&daemon, &[("x-forwarded-uri", uri)]).status;
    assert_eq!([ask("/projects/a%2fb"), ask("//projects/%61%2Fb")], [200, 429]);
    assert_eq!(ask("/projects/a/b"), 200);
}
