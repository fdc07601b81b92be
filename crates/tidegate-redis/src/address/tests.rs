//! Which addresses there are.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use redis::ConnectionAddr;

use super::{Address, Topology};

fn hosts(address: &Address) -> Vec<(String, u16)> {
    let host = |addr: &ConnectionAddr| match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            (host.clone(), *port)
        }
        other => panic!("{other:?}"),
    };
    address.hosts.iter().map(|info| host(info.addr())).collect()
}

#[test]
fn sentinels_have_a_name_a_database_and_the_login_of_the_servers() {
    let url = "redis+sentinel://u:p%40s@a:1,b,[::1]:3,[::2]/main/7";
    let address = Address::parse(url).unwrap();
    assert_eq!(address.topology, Topology::Sentinel("main".to_owned()));
    let expected = [("a", 1), ("b", 26_379), ("::1", 3), ("::2", 26_379)];
    assert_eq!(hosts(&address), expected.map(|(host, port)| (host.to_owned(), port)));
    assert_eq!(address.database, 7);
    for info in &address.hosts {
        assert_eq!(info.redis_settings().username(), Some("u"));
        assert_eq!(info.redis_settings().password(), Some("p@s"));
    }
}

#[test]
fn nodes_of_a_cluster_have_no_name() {
    let address = Address::parse("rediss+cluster://:pw@a:1,b/").unwrap();
    assert_eq!(address.topology, Topology::Cluster);
    assert_eq!(hosts(&address), [("a".to_owned(), 1), ("b".to_owned(), 6_379)]);
    let is_tls = |addr: &ConnectionAddr| matches!(addr, ConnectionAddr::TcpTls { .. });
    assert!(address.hosts.iter().all(|info| is_tls(info.addr())));
}

#[test]
fn what_cannot_be_followed_is_refused_with_a_reason_and_without_the_password() {
    for (url, reason) in [
        ("localhost:6379", "scheme"),
        ("http://host", "URL"),
        ("redis://:secret@a:1,b:2", "several hosts"),
        ("rediss://:secret@a/#insecure", "#insecure"),
        ("redis+sentinel://:secret@a:1,b:2", "name of the primary"),
        ("redis+sentinel://:secret@a:1/na me", "name of the primary"),
        ("redis+sentinel://:secret@a:1/name/x", "database"),
        ("redis+sentinel://:secret@a:1/name/1/2", "database"),
        ("redis+sentinel://:secret@a:1,,b/name", "host is missing"),
        ("redis+sentinel:///name", "host is missing"),
        ("redis+sentinel://:secret@a:x/name", "host a:x"),
        ("redis+sentinel://:secret?@a:1/name", "%3F"),
        ("redis+cluster://:secret@a:1/1", "one database"),
        ("http+cluster://:secret@a:1", "begin with redis"),
    ] {
        let error = Address::parse(url).unwrap_err().to_string();
        assert!(error.contains(reason), "{url}: {error}");
        assert!(!error.contains("secret"), "{url}: {error}");
    }
    let many = vec!["a"; 33].join(",");
    assert!(Address::parse(&format!("redis+cluster://{many}")).is_err());
}
