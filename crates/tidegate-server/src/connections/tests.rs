use tidegate::Engine;
use tidegate::policy::Policy;

use super::*;
use crate::daemon::Daemon;
use crate::settings::Settings;

fn daemon(bounds: Bounds) -> SharedDaemon {
    let policy = Policy::from_toml("[[rule]]\nname = 'n'\ncooldown = '1s'\n").unwrap();
    let engine = Engine::open_any(policy.clone(), None).unwrap();
    Arc::new(Daemon::new(engine, Settings::on_free_ports(policy).bounds(bounds)))
}

fn bounds(connections: u64) -> Bounds {
    Bounds { connections, admin_connections: 4, ..Bounds::default() }
}

fn peer(address: &str) -> Peer {
    Peer::Network(network_of(address.parse().unwrap()))
}

fn is_closing(permit: &Permit) -> bool {
    permit.state.is_closing()
}

#[test]
fn an_ipv6_network_is_one_peer() {
    let daemon = daemon(Bounds { connections_per_peer: Some(1), ..bounds(10) });
    let take = |address| Permit::take(&daemon, Listener::Http, peer(address));
    let _first = take("2001:db8:0:1::1").expect("the first");
    assert!(take("2001:db8:0:1:ffff::2").is_none());
    assert!(take("2001:db8:0:2::1").is_some());
    let _first = take("::ffff:192.0.2.1").expect("the first");
    assert!(take("192.0.2.1").is_none());
    assert!(take("192.0.2.2").is_some());
}

#[test]
fn a_peer_gets_a_quarter_of_each_listener() {
    let daemon = daemon(bounds(16));
    let take = |listener| Permit::take(&daemon, listener, peer("192.0.2.1"));
    for (listener, quarter) in [(Listener::Http, 4), (Listener::Resp, 4), (Listener::Admin, 1)] {
        let permits: Vec<_> = std::iter::from_fn(|| take(listener)).take(100).collect();
        assert_eq!(permits.len(), quarter, "{listener}");
        assert!(!permits.iter().any(is_closing), "its own connections stay");
        assert_eq!(daemon.metrics.listener(listener).refused.get(), 1);
    }
    assert!(take(Listener::Http).is_some(), "permits come back");
    assert!(daemon.connections.lock(Listener::Http).peers.is_empty(), "nothing is left behind");
}

#[test]
fn the_last_eighth_is_for_new_peers_and_the_longest_idle_connection_makes_room() {
    let daemon = daemon(bounds(16));
    let take = |host: u8| Permit::take(&daemon, Listener::Http, peer(&format!("192.0.2.{host}")));
    let mut known: Vec<_> = (0..14).map(|number| take(number / 4).expect("a permit")).collect();
    // The first has just finished a request.
    known[0].begin_request();
    known[0].end_request();
    let of_known = take(3).expect("room is made");
    assert!(is_closing(&known[1]), "it was idle longest");
    assert_eq!(known.iter().filter(|it| is_closing(it)).count(), 1);
    let new = [take(10).expect("the last eighth"), take(11).expect("the last eighth")];
    assert_eq!(known.iter().filter(|it| is_closing(it)).count(), 1);
    assert_eq!(daemon.connections.lock(Listener::Http).open.len(), 16);
    let _another = take(12).expect("room is made");
    assert!(is_closing(&known[2]));
    // Connections with a request stay.
    for permit in known.iter().chain(&new).chain([&of_known]) {
        permit.begin_request();
    }
    let _one_more = take(13).expect("one is idle still");
    assert!(known.iter().filter(|it| is_closing(it)).count() == 2);
    assert!(!is_closing(&of_known) && !new.iter().any(is_closing));
    known.clear();
    assert_eq!(daemon.connections.lock(Listener::Http).open.len(), 16 - 12);
}
