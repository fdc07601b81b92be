use std::net::SocketAddr;

use super::*;

#[test]
fn a_peer_gets_a_quarter_of_each_listener() {
    let bounds = Bounds { connections: 16, admin_connections: 4, ..Bounds::default() };
    let connections = ListenerConnections::new(&bounds);
    let peer: SocketAddr = "192.0.2.1:1".parse().unwrap();
    for (listener, quarter) in [(Listener::Http, 4), (Listener::Resp, 4), (Listener::Admin, 1)] {
        let permits = connections.of(listener);
        let held: Vec<_> = std::iter::from_fn(|| permits.take(peer).ok()).take(100).collect();
        assert_eq!(held.len(), quarter, "{listener}");
        assert_eq!(permits.counts().refused, 1);
    }
    assert_eq!(connections.of(Listener::Grpc).counts().accepted, 0);
}
