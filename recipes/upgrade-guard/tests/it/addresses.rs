//! The client address of an attempt.

use tidegate_tower::{ClientIp, ForwardedHeader};

use crate::support::{Server, attempt, server_of, status};

async fn server(client: ClientIp) -> Server {
    server_of(1, client, "127.0.0.1:0").await
}

async fn is_allowed(server: &Server, headers: &[&str]) -> bool {
    match status(&attempt(server.address, "/ws", headers).await) {
        "101" => true,
        "429" => false,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn forged_headers_do_not_change_the_address() {
    let server = server(ClientIp::peer()).await;
    assert!(is_allowed(&server, &[]).await);
    for forged in [
        "X-Forwarded-For: 192.0.2.1",
        "Forwarded: for=192.0.2.2",
        "X-Real-IP: 192.0.2.3",
        "True-Client-IP: 192.0.2.4",
    ] {
        assert!(!is_allowed(&server, &[forged]).await, "{forged}");
    }
}

#[tokio::test]
async fn header_of_a_trusted_proxy_is_read_from_the_right() {
    let server = server(ClientIp::behind(["127.0.0.0/8", "10.0.0.0/8"]).unwrap()).await;
    assert!(is_allowed(&server, &["X-Forwarded-For: 192.0.2.1"]).await);
    assert!(!is_allowed(&server, &["X-Forwarded-For: 203.0.113.9, 192.0.2.1, 10.0.0.7"]).await);
    assert!(
        !is_allowed(&server, &["X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 192.0.2.1"]).await
    );
    assert!(is_allowed(&server, &["X-Forwarded-For: 192.0.2.2"]).await);
    // An unreadable entry ends the walk at the last good hop: the proxy itself.
    assert!(is_allowed(&server, &["X-Forwarded-For: 192.0.2.3, nonsense"]).await);
    assert!(!is_allowed(&server, &["X-Forwarded-For: 192.0.2.4, more nonsense"]).await);
}

#[tokio::test]
async fn only_the_chosen_header_counts() {
    let client = ClientIp::behind(["127.0.0.1"]).unwrap().header(ForwardedHeader::Forwarded);
    let server = server(client).await;
    assert!(is_allowed(&server, &["Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.8"]).await);
    assert!(
        !is_allowed(&server, &["Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.9"]).await
    );
}

#[tokio::test]
async fn a_header_with_one_address_is_refused_if_it_is_not_one() {
    for header in [ForwardedHeader::XRealIp, ForwardedHeader::CfConnectingIp] {
        let server = server(ClientIp::behind(["127.0.0.1"]).unwrap().header(header)).await;
        let line = |value: &str| format!("{}: {value}", header.name());
        let (one, same, other) = (line("192.0.2.1"), line("::ffff:192.0.2.1"), line("192.0.2.2"));
        assert!(is_allowed(&server, &[&one, "X-Forwarded-For: 192.0.2.8"]).await);
        assert!(!is_allowed(&server, &[&same, "X-Forwarded-For: 192.0.2.9"]).await);
        assert!(is_allowed(&server, &[&other]).await);
        let known = server.guard.len();
        for wrong in
            [vec![line("192.0.2.3"); 2], vec![line("nonsense")], vec![line("1.1.1.1, 2.2.2.2")]]
        {
            let lines: Vec<_> = wrong.iter().map(String::as_str).collect();
            assert!(!is_allowed(&server, &lines).await, "{lines:?}");
        }
        assert_eq!(server.guard.len(), known, "the table is not touched");
    }
}

#[tokio::test]
async fn v6_is_counted_by_64_bits_and_mapped_v4_as_v4() {
    let server = server(ClientIp::behind(["127.0.0.1"]).unwrap()).await;
    assert!(is_allowed(&server, &["X-Forwarded-For: 2001:db8:1:2::1"]).await);
    assert!(!is_allowed(&server, &["X-Forwarded-For: 2001:db8:1:2:ffff::9"]).await);
    assert!(is_allowed(&server, &["X-Forwarded-For: 2001:db8:1:3::1"]).await);
    assert!(is_allowed(&server, &["X-Forwarded-For: 192.0.2.1"]).await);
    assert!(!is_allowed(&server, &["X-Forwarded-For: ::ffff:192.0.2.1"]).await);
}

#[tokio::test]
async fn v4_peer_of_a_dual_stack_socket_is_v4() {
    let server = server_of(1, ClientIp::peer(), "[::]:0").await;
    let port = server.address.port();
    let v4 = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(status(&attempt(v4, "/ws", &[]).await), "101");
    assert!(!server.guard.allow("127.0.0.1".parse::<std::net::IpAddr>().unwrap()));
}
