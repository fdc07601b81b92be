//! The records of a namespace in one slot of a cluster.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::Request;
use tidegate_redis_servers::{Cluster, Program, Server, until};

use crate::faults::{RIGHTS, check_books};
use crate::nodes::WINDOW;
use crate::support::{ADA, Node, Tally, builder, eventually};

const LIMITS: &str = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 500, per = \"1h\" }\n\
    [[rule]]\nname = \"all\"\nwindow = { max = 100000, per = \"1h\" }\n";

/// Three limits with common keys.
const THREE: &str = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 90, per = \"1h\" }\n\
    [[rule]]\nname = \"team\"\nkey = [\"team\"]\nwindow = { max = 150, per = \"1h\" }\n\
    [[rule]]\nname = \"all\"\nwindow = { max = 250, per = \"1h\" }\n";

/// The address of a cluster, by all of its nodes.
pub(crate) fn url(cluster: &Cluster) -> String {
    url_of(&cluster.nodes().iter().collect::<Vec<_>>())
}

fn url_of(nodes: &[&Server]) -> String {
    let hosts: Vec<_> = nodes.iter().map(|it| it.address().to_string()).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

pub(crate) fn primaries(cluster: &Cluster) -> impl Iterator<Item = &Server> {
    let is_primary = |node: &&Server| node.info("role").as_deref() == Some("master");
    cluster.nodes().iter().filter(|node| node.is_running()).filter(is_primary)
}

/// What is left of each limit, once the store answers.
fn left(node: &Node, request: &Request<'_>) -> Vec<u64> {
    let left = || {
        let report = node.engine.peek(request).block().unwrap();
        let left = report.rules().map(|rule| rule.decision.remaining()).collect::<Vec<_>>();
        (!report.is_outage()).then_some(left)
    };
    eventually("the store answers", left).unwrap()
}

#[test]
fn failover_and_migration_are_followed() {
    let cluster = Cluster::start(Program::Redis7);
    let slot = cluster.slot_of("{tidegate}:control");
    let owner = cluster.primary_of(slot);
    // A seed that is away, and one that does not have the slot.
    let away = Server::start(Program::Redis7);
    let other = &cluster.nodes()[(owner + 1) % 3];
    let url = url_of(&[&away, other]);
    away.kill();
    let node = Node::with(builder(&url), LIMITS);
    let tally = Tally::default();
    (0..10).for_each(|_| node.count(&tally));
    assert_eq!(tally.get(), (10, 0, 0), "{:?}", node.redis.failure());
    let names = cluster.nodes()[owner].command(&["KEYS", "*"]);
    assert!(names.array().len() >= 3);
    assert!(names.array().iter().all(|name| name.text().starts_with("{tidegate}:")));

    // In the middle of a migration, with keys here and there, decisions wait until it is over.
    let to = (owner + 2) % 3;
    let migration = cluster.migrate_slot(slot, to);
    migration.move_keys(1);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| node.count(&tally));
        until("it is redirected", || node.redis.failure().is_some());
        migration.finish();
        waiting.join().unwrap();
    });
    assert_eq!(tally.get(), (11, 0, 0), "{:?}", node.redis.failure());
    assert_eq!(node.left(), 489);

    // A wanted failover: no decision fails, and none is lost.
    let new = cluster.failover(slot);
    assert_ne!(new, to);
    (0..10).for_each(|_| node.count(&tally));
    assert_eq!(tally.get(), (21, 0, 0), "{:?}", node.redis.failure());
    assert_eq!(node.left(), 479);

    let short = Node::with(builder(&url).deadline(Duration::from_millis(200)), LIMITS);
    assert_eq!(short.left(), 479);
    kill_under_load((&cluster, slot), &short, &tally);
}

/// Kills the primary; what it had acknowledged is on the replica, which was waited for.
fn kill_under_load((cluster, slot): (&Cluster, u16), node: &Node, tally: &Tally) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                node.count(tally);
                thread::park_timeout(Duration::from_millis(20));
            }
        });
        let before = tally.get().0;
        until("it is under load", || tally.get().0 >= before + 5);
        let old = cluster.kill_primary(slot);
        until("it is an outage", || !node.redis.is_available());
        cluster.until_replaced(slot, old);
        let before = tally.get().0;
        until("it decides again", || tally.get().0 >= before + 5);
        is_over.store(true, Ordering::Relaxed);
    });
    let (allowed, _, outages) = tally.get();
    let charged = 500 - node.left();
    // One write may have been acknowledged and not replicated.
    assert!(allowed <= charged + 1, "{allowed} allowed, {charged} charged");
    assert!(charged <= allowed + outages, "{charged} charged, {tally:?}");
}

#[test]
fn nodes_that_share_three_limits_in_different_orders_admit_exactly_the_limits() {
    for program in [Program::Valkey9, Program::Redis7] {
        let cluster = Cluster::start(program);
        let nodes: Vec<Node> = (0..3).map(|_| Node::new(&url(&cluster), THREE)).collect();
        let users = ["ada", "bob", "cy", "dee"];
        let allowed: [AtomicU64; 4] = Default::default();
        let (denied, outages) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for (number, node) in nodes.iter().enumerate() {
                let (allowed, denied, outages) = (&allowed, &denied, &outages);
                for offset in 0..2 {
                    scope.spawn(move || {
                        for call in 0..60 {
                            let user = (call + number * 2 + offset) % 4;
                            let team = if user < 2 { "red" } else { "blue" };
                            let attributes = [("user", users[user]), ("team", team)];
                            match node.allows(&Request::new("default", &attributes)) {
                                Some(true) => &allowed[user],
                                Some(false) => denied,
                                None => outages,
                            }
                            .fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            }
        });
        let allowed = allowed.map(AtomicU64::into_inner);
        assert_eq!(outages.into_inner(), 0, "{program}");
        assert_eq!(allowed.iter().sum::<u64>(), 250, "{program}: {allowed:?}, the limit of all");
        assert_eq!(denied.into_inner(), 360 - 250);
        for (user, team, members) in [(0, "red", [0, 1]), (2, "blue", [2, 3])] {
            let attributes = [("user", users[user]), ("team", team)];
            let request = Request::new("default", &attributes);
            let of_team: u64 = members.iter().map(|user| allowed[*user]).sum();
            assert_eq!(left(&nodes[0], &request), [90 - allowed[user], 150 - of_team, 0]);
        }
    }
}

#[test]
fn connections_that_are_cut_never_charge_twice_or_in_part() {
    let cluster = Cluster::start(Program::Valkey9);
    let many = THREE.replace("90", "5000").replace("150", "5000").replace("250", "5000");
    let nodes: Vec<Node> = (0..2).map(|_| Node::new(&url(&cluster), &many)).collect();
    let (tally, requests, is_over) = (Tally::default(), AtomicU64::new(0), AtomicBool::new(false));
    let red = Request::new("default", &[("user", "ada"), ("team", "red")]);
    thread::scope(|scope| {
        let cutting = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for node in cluster.nodes() {
                    // Clients alone: replicas stay connected.
                    let _ = node.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                }
                // Slowly enough that connections are made in between.
                thread::park_timeout(Duration::from_millis(40));
            }
        });
        // Until a cut has met a commit on its way, which is a matter of luck.
        let is_resent = || nodes.iter().any(|node| node.redis.stats().resends > 0);
        thread::scope(|scope| {
            for node in nodes.iter().chain(&nodes) {
                scope.spawn(|| {
                    for _ in (0..1_200).take_while(|it| *it < 100 || !is_resent()) {
                        requests.fetch_add(1, Ordering::Relaxed);
                        node.count_of(&red, &tally);
                    }
                });
            }
        });
        is_over.store(true, Ordering::Relaxed);
        cutting.join().unwrap();
    });
    let (allowed, denied, outages) = tally.get();
    assert_eq!((allowed + outages, denied), (requests.into_inner(), 0));
    let left = left(&nodes[0], &red);
    assert!(left.iter().all(|it| *it == left[0]), "all or nothing: {left:?}");
    let charged = 5_000 - left[0];
    assert!(allowed <= charged && charged <= allowed + outages, "{charged} charged, {tally:?}");
}

#[test]
fn in_a_cluster_it_needs_no_more_rights_than_documented() {
    let cluster = Cluster::start(Program::Valkey9);
    let rights = RIGHTS.replace("~tidegate:*", "~{tidegate}:*");
    for node in cluster.nodes() {
        let _ = node.command(&rights.split_whitespace().collect::<Vec<_>>()).success();
    }
    let url = url(&cluster).replace("://", "://app:pw@");
    let nodes: Vec<Node> = (0..2).map(|_| Node::new(&url, LIMITS)).collect();
    for node in &nodes {
        assert_eq!(eventually("it decides", || node.allows(&ADA)), Some(true));
    }
    let id = nodes[0].engine.hold(&ADA).block().unwrap().hold().unwrap();
    nodes[1].engine.cancel(id, None).block().unwrap();
    // Both at once, so that they take turns.
    thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(node.allows(&ADA), Some(true))));
        }
    });
    assert_eq!(nodes[0].left(), 500 - 42);
    until("the nodes are listed", || nodes[0].redis.nodes().is_some_and(|it| it.len() == 2));
}

/// Before, a cluster had the records of a namespace in all slots, and other servers had values of another
/// form. What is left of them would count for nothing.
#[test]
fn records_of_an_earlier_version_are_an_error_and_are_left_alone() {
    let cluster = Cluster::start(Program::Valkey9);
    let server = Server::start(Program::Redis7);
    let earlier = "tgr1 stamp and expiry and record";
    let spread = &cluster.nodes()[cluster.primary_of(cluster.slot_of("tidegate:control"))];
    let one = &cluster.nodes()[cluster.primary_of(cluster.slot_of("{tidegate}:control"))];
    let table = [
        (url(&cluster), spread, "tidegate:control", one),
        (url(&cluster), one, "{tidegate}:control", one),
        (server.url(), &server, "tidegate:control", &server),
    ];
    for (url, has, name, written) in table {
        let _ = has.command(&["SET", name, earlier]).success();
        let node = Node::with(builder(&url).deadline(Duration::from_millis(200)), WINDOW);
        assert_eq!(node.allows(&ADA), None, "{name}");
        let failure = eventually("it has failed", || node.redis.failure()).unwrap();
        assert!(failure.contains("earlier version") && failure.contains("delete"), "{failure}");
        assert_eq!(has.command(&["GET", name]).text(), earlier);
        let names = written.command(&["KEYS", "*tidegate*"]);
        assert!(names.array().iter().all(|it| it.text() == name), "nothing is written: {names:?}");
        let _ = has.command(&["DEL", name]).success();
        until("it begins once they are gone", || node.allows(&ADA) == Some(true));
        let _ = written.command(&["FLUSHALL"]).success();
    }
}

#[test]
fn addresses_that_do_not_fit_the_server_are_refused_with_the_reason() {
    for (namespace, is_good) in [("a{b}c", true), ("a{", false), ("a}", false), ("{}", false)] {
        let built = builder("redis+cluster://127.0.0.1:1").namespace(namespace).build();
        assert_eq!(built.is_ok(), is_good, "{namespace}");
    }
    let server = Server::start(Program::Redis7);
    let node = Node::with(
        builder(&format!("redis+cluster://{}", server.address()))
            .deadline(Duration::from_millis(200)),
        WINDOW,
    );
    assert_eq!(node.allows(&ADA), None);
    let failure = eventually("it has failed", || node.redis.failure()).unwrap();
    assert!(failure.contains("no node of a cluster"), "{failure}");
}

#[test]
fn a_server_that_becomes_a_replica_is_waited_for() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let away = Server::start(program);
        let port = away.address().port().to_string();
        away.kill();
        let node = Node::new(&server.url(), WINDOW);
        assert_eq!(node.allows(&ADA), Some(true));
        let _ = server.command(&["REPLICAOF", "127.0.0.1", &port]).success();
        let tally = Tally::default();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| node.count(&tally));
            until("it is refused", || node.redis.failure().is_some());
            let _ = server.command(&["REPLICAOF", "NO", "ONE"]).success();
            waiting.join().unwrap();
        });
        assert_eq!(tally.get(), (1, 0, 0), "{program}: it was not done, so it is done later");
        check_books(&node, &tally, 499);
    }
}
