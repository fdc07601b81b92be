//! Client addresses.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get as route;
use http::Request;
use tidegate::{Limiter, Window};
use tidegate_tower::{Attribute, ClientIp, ForwardedHeader, KeySource, LimitLayer, Peer};
use tokio::net::TcpListener;

use crate::support::{Hello, TestResponse, address, from, get, send};

fn key(client: &ClientIp, mut request: Request<Body>, headers: &[(&str, &str)]) -> Option<String> {
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    client.key(&request.into_parts().0).map(|address| address.to_string())
}

#[test]
fn headers_are_ignored_without_trusted_proxies() {
    let forged = [("x-forwarded-for", "203.0.113.1"), ("forwarded", "for=203.0.113.1")];
    let client = ClientIp::peer();
    assert_eq!(key(&client, from("192.0.2.7:1"), &forged).as_deref(), Some("192.0.2.7"));
    let client = ClientIp::behind(["10.0.0.0/8"]).unwrap();
    assert_eq!(key(&client, from("192.0.2.7:1"), &forged).as_deref(), Some("192.0.2.7"));
}

#[test]
fn trusted_proxy_determines_the_client() {
    let client = ClientIp::behind(["10.0.0.0/8", "fd00::/8"]).unwrap();
    let cases: [(&str, &[(&str, &str)], &str); 6] = [
        ("10.0.0.1:1", &[("x-forwarded-for", "6.6.6.6, 192.0.2.7")], "192.0.2.7"),
        (
            "10.0.0.1:1",
            &[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "192.0.2.7, 10.0.0.2")],
            "192.0.2.7",
        ),
        ("[fd00::1]:1", &[("x-forwarded-for", "192.0.2.7")], "192.0.2.7"),
        ("[::ffff:10.0.0.1]:1", &[("x-forwarded-for", "192.0.2.7")], "192.0.2.7"),
        ("10.0.0.1:1", &[("forwarded", "for=192.0.2.7")], "10.0.0.1"),
        ("10.0.0.1:1", &[], "10.0.0.1"),
    ];
    for (peer, headers, expected) in cases {
        assert_eq!(key(&client, from(peer), headers).as_deref(), Some(expected), "{headers:?}");
    }
    let other = client.header(ForwardedHeader::Forwarded);
    let both = [("x-forwarded-for", "6.6.6.6"), ("forwarded", "for=\"[2001:db8::1]:9\"")];
    assert_eq!(key(&other, from("10.0.0.1:1"), &both).as_deref(), Some("2001:db8::"));
}

#[test]
fn a_header_with_one_address_counts_from_trusted_proxies_and_must_be_one_address() {
    let client = ClientIp::behind(["10.0.0.0/8"]).unwrap();
    for header in [ForwardedHeader::XRealIp, ForwardedHeader::CfConnectingIp] {
        let (client, name) = (client.clone().header(header), header.name());
        let key = |peer, headers: &[(&str, &str)]| key(&client, from(peer), headers);
        let others = ("x-forwarded-for", "6.6.6.6");
        let one = [others, (name, "192.0.2.7")];
        assert_eq!(key("10.0.0.1:1", &one).as_deref(), Some("192.0.2.7"));
        assert_eq!(key("192.0.2.1:1", &one).as_deref(), Some("192.0.2.1"), "not a proxy");
        assert_eq!(key("10.0.0.1:1", &[others]).as_deref(), Some("10.0.0.1"), "never a mix");
        assert_eq!(key("10.0.0.1:1", &[(name, "192.0.2.7"), (name, "192.0.2.7")]), None);
        assert_eq!(key("10.0.0.1:1", &[(name, "192.0.2.7, 192.0.2.8")]), None);
        let mut request = from("10.0.0.1:1");
        request.headers_mut().insert(name, "nonsense".parse().unwrap());
        let error = client.value(&request.into_parts().0).unwrap_err().to_string();
        assert_eq!(error, format!("the header `{name}` is not an address"));
    }
}

#[test]
fn v6_addresses_are_counted_by_their_network() {
    let client = ClientIp::peer();
    let cases = [
        ("[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::"),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7"),
        ("192.0.2.7:1", "192.0.2.7"),
    ];
    for (peer, expected) in cases {
        assert_eq!(key(&client, from(peer), &[]).as_deref(), Some(expected));
    }
    let wider = client.v6_bits(48);
    let counted = key(&wider, from("[2001:db8:1:2:3:4:5:6]:1"), &[]);
    assert_eq!(counted.as_deref(), Some("2001:db8:1::"));
}

#[test]
fn attribute_is_the_whole_address() {
    for (peer, expected) in [
        ("[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2:3:4:5:6"),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7"),
    ] {
        let parts = from(peer).into_parts().0;
        assert_eq!(ClientIp::peer().value(&parts).unwrap().as_deref(), Some(expected));
    }
}

#[test]
fn peer_set_by_hand_wins_over_the_servers() {
    let mut request = from("192.0.2.7:1");
    request.extensions_mut().insert(ConnectInfo(address("198.51.100.1:1")));
    assert_eq!(key(&ClientIp::peer(), request, &[]).as_deref(), Some("192.0.2.7"));
}

#[test]
fn invalid_networks_are_errors() {
    for wrong in ["10.0.0.1/8", "proxies", "10.0.0.0/33", ""] {
        assert!(ClientIp::behind([wrong]).is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn peer_is_found_for_axum_and_tonic() {
    let layer = || {
        let limiter = Limiter::new(Window::new(1, Duration::from_secs(10)));
        LimitLayer::new(limiter, ClientIp::peer())
    };
    let hello = Hello::default();
    let mut by_axum = get("/", &[]);
    by_axum.extensions_mut().insert(ConnectInfo(address("192.0.2.7:1")));
    let mut by_peer = get("/", &[]);
    by_peer.extensions_mut().insert(ConnectInfo(Peer(address("192.0.2.7:1"))));
    let mut by_tonic = get("/", &[]);
    by_tonic.extensions_mut().insert(tonic::transport::server::TcpConnectInfo {
        local_addr: None,
        remote_addr: Some(address("192.0.2.7:1")),
    });
    let is_tonic = cfg!(feature = "tonic");
    for (request, is_known) in
        [(by_axum, true), (by_peer, true), (by_tonic, is_tonic), (get("/", &[]), false)]
    {
        let expected = if is_known { 200 } else { 500 };
        assert_eq!(send(&layer(), &hello, request).await.status, expected);
    }
}

#[tokio::test]
async fn over_a_socket_the_peer_is_the_other_end() {
    let limiter = Limiter::new(Window::new(1, Duration::from_secs(1_000)));
    let client = ClientIp::behind(["127.0.0.1"]).unwrap();
    let app = Router::new()
        .route("/", route(|| async { "hello" }))
        .layer(LimitLayer::new(limiter, client));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    let send = async |forwarded: &str| {
        let stream = tokio::net::TcpStream::connect(server).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = get("/", &[("host", "x"), ("x-forwarded-for", forwarded)]);
        TestResponse::of(sender.send_request(request).await.unwrap()).await.status
    };
    assert_eq!(send("192.0.2.7").await, 200);
    assert_eq!(send("6.6.6.6, 192.0.2.7").await, 429);
    assert_eq!(send("192.0.2.8").await, 200);
}
