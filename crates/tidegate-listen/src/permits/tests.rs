use std::net::SocketAddr;

use super::*;

fn permits(limits: PermitLimits) -> Permits {
    Connections::default().listener("http", limits)
}

fn at(address: &str) -> PeerId {
    PeerId::Address(SocketAddr::new(address.parse().unwrap(), 1))
}

fn host(number: u32) -> PeerId {
    PeerId::Address(SocketAddr::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into(), 1))
}

fn is_closing(permit: &Permit) -> bool {
    permit.state.is_closing()
}

#[test]
fn an_ipv6_network_is_one_peer() {
    let permits = permits(PermitLimits::new(10).per_peer(Some(1)));
    let take = |address| permits.take(at(address));
    let _first = take("2001:db8:0:1::1").expect("the first");
    assert_eq!(take("2001:db8:0:1:ffff::2").unwrap_err(), Refusal::AddressShare);
    assert!(take("2001:db8:0:2::1").is_ok());
    let _first = take("::ffff:192.0.2.1").expect("the first");
    assert!(take("192.0.2.1").is_err());
    assert!(take("192.0.2.2").is_ok());
}

#[tokio::test]
async fn a_refusal_names_what_counts_as_one_peer() {
    let (stream, _other) = tokio::net::UnixStream::pair().unwrap();
    let user = PeerId::Process(stream.peer_cred().unwrap());
    for (peer, text) in [
        (at("192.0.2.1"), "too many connections from this address"),
        (user, "too many connections of this user"),
    ] {
        let permits = permits(PermitLimits::new(10).per_peer(Some(1)));
        let _first = permits.take(peer).expect("the first");
        assert_eq!(permits.take(peer).unwrap_err().to_string(), text);
    }
}

#[test]
fn a_peer_gets_a_quarter_of_each_listener() {
    let connections = Connections::default();
    for (max, quarter) in [(16, 4), (13, 4), (4, 1), (1, 1)] {
        let permits = connections.listener("http", PermitLimits::new(max));
        let take = || permits.take(at("192.0.2.1")).ok();
        let held: Vec<_> = std::iter::from_fn(take).take(100).collect();
        assert_eq!(held.len(), quarter, "of {max}");
        assert!(!held.iter().any(is_closing), "its own connections stay");
        assert_eq!(permits.counts().refused, 1);
        drop(held);
        assert!(take().is_some(), "permits come back");
        assert!(!permits.lock(PermitKind::Regular).has_peers(), "nothing is left behind");
    }
}

#[test]
fn a_proxy_is_not_bounded_by_the_share_of_one_peer() {
    let proxy = "192.0.2.7/32".parse().unwrap();
    let permits = permits(PermitLimits::new(16).shared_by([proxy]));
    let held: Vec<_> = (0..14).map(|_| permits.take(at("192.0.2.7")).expect("a permit")).collect();
    assert!(!held.iter().any(is_closing));
    let _more = permits.take(at("192.0.2.7")).expect("its own longest idle one makes room");
    assert_eq!(held.iter().filter(|it| is_closing(it)).count(), 1);
    let _other = permits.take(at("192.0.2.8")).expect("the last eighth is not for the proxy");
    assert_eq!(held.iter().filter(|it| is_closing(it)).count(), 1);
}

#[test]
fn the_last_eighth_is_for_new_peers_and_the_longest_idle_connection_makes_room() {
    let permits = permits(PermitLimits::new(16));
    let take = |number: u32| permits.take(host(number));
    let mut known: Vec<_> = (0..14).map(|number| take(number / 4).expect("a permit")).collect();
    // The first has just finished a request.
    known[0].begin_request();
    known[0].end_request();
    let of_known = take(3).expect("room is made");
    assert!(is_closing(&known[1]), "it was idle longest");
    assert_eq!(known.iter().filter(|it| is_closing(it)).count(), 1);
    let new = [take(10).expect("the last eighth"), take(11).expect("the last eighth")];
    assert_eq!(known.iter().filter(|it| is_closing(it)).count(), 1);
    assert_eq!(permits.open_connections(), 16);
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
    assert_eq!(permits.open_connections(), 16 - 12);
}

#[test]
fn a_connection_that_was_busy_when_room_was_needed_makes_room_once_it_is_idle() {
    let permits = permits(PermitLimits::new(8));
    let held: Vec<_> = (0..8).map(|number| permits.take(host(number)).unwrap()).collect();
    held.iter().for_each(Permit::begin_request);
    assert_eq!(permits.take(host(100)).unwrap_err(), Refusal::Full);
    held[5].end_request();
    held[2].end_request();
    let _new = permits.take(host(100)).expect("two are idle");
    assert!(is_closing(&held[5]) && !is_closing(&held[2]), "the fifth has been idle longer");
    let _new = permits.take(host(101)).expect("one more is idle");
    assert!(is_closing(&held[2]));
    assert_eq!(held.iter().filter(|it| is_closing(it)).count(), 2);
}

/// Every connection of a flood needs room, and the listener may have 100 000 connections.
#[test]
fn making_room_does_not_scan_all_connections() {
    const MANY: u32 = 4_000;
    let permits = permits(PermitLimits::new(MANY.into()).per_peer(Some(MANY.into())));
    let examined = || permits.lock(PermitKind::Regular).examined;
    let idle: Vec<_> = (0..MANY).map(|number| permits.take(host(number)).unwrap()).collect();
    let flood: Vec<_> =
        (0..MANY).map(|number| permits.take(host(MANY + number)).unwrap()).collect();
    assert!(idle.iter().all(is_closing) && !flood.iter().any(is_closing));
    assert_eq!(examined(), u64::from(MANY), "one each");
    // All are busy: each is looked at once, and then no more.
    flood.iter().for_each(Permit::begin_request);
    for number in 0..MANY {
        assert!(permits.take(host(2 * MANY + number)).is_err());
    }
    assert_eq!(examined(), 2 * u64::from(MANY));
    // All have been active: those are looked at twice.
    flood.iter().for_each(Permit::end_request);
    drop(idle);
    let more: Vec<_> =
        (0..MANY).map(|number| permits.take(host(2 * MANY + number)).unwrap()).collect();
    assert!(flood.iter().all(is_closing) && !more.iter().any(is_closing));
    assert!(examined() <= 4 * u64::from(MANY), "{}", examined());
}

#[test]
fn the_reserve_is_beyond_the_maximum_and_bounded_for_itself() {
    let permits = permits(PermitLimits::new(1).reserve(4));
    let only = permits.take(host(1)).unwrap();
    only.begin_request();
    assert!(permits.take(host(2)).is_err());
    let reserved: Vec<_> =
        (2..6).map(|number| permits.take_reserve(host(number)).unwrap()).collect();
    assert!(permits.take_reserve(host(5)).is_err(), "a quarter for one peer");
    let _newest = permits.take_reserve(host(6)).expect("the longest idle one makes room");
    assert!(is_closing(&reserved[0]) && !is_closing(&reserved[1]) && !is_closing(&only));
    assert_eq!((permits.open_connections(), permits.counts().accepted), (1, 1));
}
