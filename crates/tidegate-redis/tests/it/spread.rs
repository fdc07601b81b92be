//! Records on all nodes of a cluster.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::Request;
use tidegate::redis::RedisBuilder;
use tidegate_redis_servers::{Cluster, Program, Server, until};

use crate::faults::RIGHTS;
use crate::support::{Node, Tally, builder, eventually};

/// Three limits with common keys.
pub(crate) const LIMITS: &str = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 90, per = \"1h\" }\n\
    [[rule]]\nname = \"team\"\nkey = [\"team\"]\nwindow = { max = 150, per = \"1h\" }\n\
    [[rule]]\nname = \"all\"\nwindow = { max = 250, per = \"1h\" }\n";

/// The request with which tests look at all three limits.
pub(crate) const RED: Request<'static> =
    Request::new("default", &[("user", "ada"), ("team", "red")]);

pub(crate) fn url(cluster: &Cluster) -> String {
    let hosts: Vec<_> = cluster.nodes().iter().map(|it| it.address().to_string()).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

pub(crate) fn spread(cluster: &Cluster, namespace: &str) -> RedisBuilder {
    builder(&url(cluster)).namespace(namespace)
}

/// What is left of each limit, once the store answers.
pub(crate) fn left(node: &Node, request: &Request<'_>) -> Vec<u64> {
    let left = || {
        let report = node.engine.peek(request).block().unwrap();
        let left = report.rules().map(|rule| rule.decision.remaining()).collect::<Vec<_>>();
        (!report.is_outage()).then_some(left)
    };
    eventually("the store answers", left).unwrap()
}

/// All names of a namespace, each with what its value is.
pub(crate) fn kinds(cluster: &Cluster, namespace: &str) -> Vec<(String, String)> {
    let mut kinds = Vec::new();
    for node in primaries(cluster) {
        let names = node.command(&["KEYS", &format!("{namespace}:*")]);
        // The nodes are no record of this kind.
        let nodes = format!("{namespace}:nodes:");
        for name in names.array().iter().map(|it| it.text()).filter(|it| !it.starts_with(&nodes)) {
            let kind = node.command(&["GETRANGE", &name, "0", "3"]).text();
            kinds.push((name, kind));
        }
    }
    kinds
}

pub(crate) fn primaries(cluster: &Cluster) -> impl Iterator<Item = &Server> {
    let is_primary = |node: &&Server| node.info("role").as_deref() == Some("master");
    cluster.nodes().iter().filter(|node| node.is_running()).filter(is_primary)
}

/// Waits until no intent is left.
pub(crate) fn until_settled(cluster: &Cluster, namespace: &str) {
    until("all commits are settled", || {
        kinds(cluster, namespace).iter().all(|(_, kind)| kind == "tgr1")
    });
}

#[test]
fn nodes_that_share_three_limits_in_different_orders_admit_exactly_the_limits() {
    for (program, namespace) in [(Program::Valkey9, "v"), (Program::Redis7, "r")] {
        let cluster = Cluster::start(program);
        let nodes: Vec<Node> =
            (0..3).map(|_| Node::with(spread(&cluster, namespace), LIMITS)).collect();
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
        for (user, team, red) in [(0, "red", [0, 1]), (2, "blue", [2, 3])] {
            let attributes = [("user", users[user]), ("team", team)];
            let request = Request::new("default", &attributes);
            let of_team: u64 = red.iter().map(|user| allowed[*user]).sum();
            assert_eq!(left(&nodes[0], &request), [90 - allowed[user], 150 - of_team, 0]);
        }
        until_settled(&cluster, namespace);
        let count = |of: fn(&tidegate::redis::RedisStats) -> u64| -> u64 {
            nodes.iter().map(|node| of(&node.redis.stats())).sum()
        };
        assert!(count(|it| it.conflicts) > 0 && count(|it| it.intents_met) > 0, "they met");
        assert_eq!(count(|it| it.unknown), 0);
    }
}

#[test]
fn one_limit_costs_one_write_and_several_are_answered_after_one_round_trip() {
    let cluster = Cluster::start(Program::Valkey9);
    let commands = || -> u64 {
        let of_node = |node: &Server| {
            let stats = node.command(&["INFO", "commandstats"]).text();
            let calls = |name: &str| {
                let line = stats.lines().find_map(|line| line.strip_prefix(name));
                line.map_or(0, |it| it.split(',').next().unwrap().parse::<u64>().unwrap())
            };
            calls("cmdstat_set:calls=")
        };
        primaries(&cluster).map(of_node).sum()
    };
    let one = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 90, per = \"1h\" }\n";
    let node = Node::with(spread(&cluster, "one"), one);
    assert_eq!(node.allows(&RED), Some(true));
    let before = commands();
    (0..10).for_each(|_| assert_eq!(node.allows(&RED), Some(true)));
    assert_eq!((commands() - before, node.redis.stats().spread_commits), (10, 0));

    let node = Node::with(spread(&cluster, "several"), LIMITS);
    (0..10).for_each(|_| assert_eq!(node.allows(&RED), Some(true)));
    assert_eq!(node.redis.stats().spread_commits, 10);
    until_settled(&cluster, "several");
    let names = kinds(&cluster, "several");
    assert_eq!(names.len(), 4, "three states and the policy, and nothing else: {names:?}");
    // All states are listed, whatever node they are on.
    assert_eq!(node.engine.forget_all("test").block().unwrap(), 3);
    assert_eq!(left(&node, &RED), [90, 150, 250]);
}

#[test]
fn one_node_away_affects_only_decisions_with_keys_on_it() {
    let cluster = Cluster::start(Program::Valkey9);
    let policy =
        "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 90, per = \"1h\" }\n";
    let node = Node::with(spread(&cluster, "n").deadline(Duration::from_millis(300)), policy);
    let control = cluster.primary_of(cluster.slot_of("n:control"));
    let names: Vec<String> = (0..30).map(|number| format!("user-{number}")).collect();
    for name in &names {
        let attributes = [("user", &**name)];
        let request = Request::new("default", &attributes);
        until("it decides", || node.allows(&request) == Some(true));
    }
    let away = (control + 1) % 3;
    // It is paused, not killed: its replica replaces it after a second, and until then there is none.
    cluster.nodes()[away].pause();
    let ask = |name: &str| node.allows(&Request::new("default", &[("user", name)]));
    let (mut answered, mut failed) = (0, 0);
    let is_away = names.iter().find(|name| ask(name).is_none());
    assert!(is_away.is_some(), "some keys are on the node that is away");
    for name in &names {
        match ask(name) {
            Some(_) => answered += 1,
            None => failed += 1,
        }
    }
    assert!(answered > 0, "the keys of other nodes are decided: {answered} and {failed}");
    assert!(node.redis.is_available());
    // Its replica takes over, and all is decided again.
    until("all keys are decided again", || names.iter().all(|name| ask(name).is_some()));
    cluster.nodes()[away].resume();
}

/// Counts decisions of one user over three limits.
fn count(node: &Node, tally: &Tally) {
    let which = match node.allows(&RED) {
        Some(true) => &tally.allowed,
        Some(false) => &tally.denied,
        None => &tally.outages,
    };
    which.fetch_add(1, Ordering::Relaxed);
}

/// How many units each limit has lost; all of them the same.
pub(crate) fn charged(node: &Node) -> u64 {
    let left = left(node, &RED);
    let charged: Vec<u64> =
        [90, 150, 250].iter().zip(&left).map(|(max, left)| max - left).collect();
    assert!(charged.iter().all(|it| *it == charged[0]), "all or nothing: {charged:?}");
    charged[0]
}

#[test]
fn slots_that_move_are_followed() {
    let cluster = Cluster::start(Program::Redis7);
    let node = Node::with(spread(&cluster, "m"), LIMITS);
    let tally = Tally::default();
    (0..10).for_each(|_| count(&node, &tally));
    until_settled(&cluster, "m");
    // Each record moves, while decisions go on.
    for (name, _) in kinds(&cluster, "m") {
        let slot = cluster.slot_of(&name);
        let to = (cluster.primary_of(slot) + 1) % 3;
        let migration = cluster.migrate_slot(slot, to);
        migration.move_keys(1);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| count(&node, &tally));
            until("it is redirected", || node.redis.failure().is_some());
            migration.finish();
            waiting.join().unwrap();
        });
    }
    (0..10).for_each(|_| count(&node, &tally));
    assert_eq!(tally.get(), (24, 0, 0), "{:?}", node.redis.failure());
    assert_eq!(charged(&node), 24);
}

#[test]
fn a_primary_that_is_replaced_costs_at_most_what_it_had_not_replicated() {
    let cluster = Cluster::start(Program::Valkey9);
    let namespace = "f";
    let node = Node::with(spread(&cluster, namespace).deadline(Duration::from_millis(300)), LIMITS);
    let other = Node::with(spread(&cluster, namespace), LIMITS);
    let tally = Tally::default();
    until("it decides", || node.allows(&RED) == Some(true));
    tally.allowed.fetch_add(1, Ordering::Relaxed);
    let (name, _) =
        kinds(&cluster, namespace).into_iter().find(|(it, _)| it.contains("state")).unwrap();
    let slot = cluster.slot_of(&name);
    // A wanted failover first.
    cluster.failover(slot);
    (0..5).for_each(|_| count(&node, &tally));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                count(&node, &tally);
                thread::park_timeout(Duration::from_millis(20));
            }
        });
        let before = tally.get().0;
        until("it is under load", || tally.get().0 >= before + 5);
        let old = cluster.kill_primary(slot);
        cluster.until_replaced(slot, old);
        let before = tally.get();
        until("it decides again", || {
            let now = tally.get();
            now.0 + now.1 >= before.0 + before.1 + 5
        });
        is_over.store(true, Ordering::Relaxed);
    });
    let (allowed, _, outages) = tally.get();
    // A peek settles what was left behind. One write may have been acknowledged and not replicated.
    let charged = charged(&other);
    assert!(allowed <= charged + 1, "{allowed} allowed, {charged} charged");
    assert!(charged <= allowed + outages, "{charged} charged, {tally:?}");
}

#[test]
fn a_node_that_is_away_does_not_block_a_limit_that_all_requests_share() {
    let settings = Server::builder(Program::Valkey9).set("cluster-require-full-coverage", "no");
    let cluster = Cluster::start_with(&settings);
    let policy = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 1000, per = \"1h\" }\n\
        [[rule]]\nname = \"all\"\nwindow = { max = 100000, per = \"1h\" }\n";
    let node = Node::with(spread(&cluster, "w").deadline(Duration::from_millis(300)), policy);
    let ask = |name: &str| node.allows(&Request::new("default", &[("user", name)]));
    until("it decides", || ask("ada") == Some(true));
    until_settled(&cluster, "w");
    let first = kinds(&cluster, "w");
    until("it decides", || ask("bob") == Some(true));
    // What is there from the first request on is that of the first user, and the common one.
    let states = first.iter().map(|(name, _)| name).filter(|name| name.contains(":state:"));
    let taken: Vec<usize> = states
        .chain([&"w:control".to_owned()])
        .map(|name| cluster.primary_of(cluster.slot_of(name)))
        .collect();
    let Some(away) = (0..3).find(|number| !taken.contains(number)) else {
        // The first user is on the third node: another secret would be needed.
        panic!("choose another namespace: {taken:?}");
    };
    let names: Vec<String> = (0..24).map(|number| format!("user-{number}")).collect();
    for name in &names {
        until("it decides", || ask(name) == Some(true));
    }
    let (is_paused, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (answered, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for names in names.chunks(6) {
            scope.spawn(|| {
                // It ends by itself, too, should the test fail.
                let names = names.iter().cycle().take(20_000);
                for name in names.take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let was_paused = is_paused.load(Ordering::Acquire);
                    let which = if ask(name).is_some() { &answered } else { &failed };
                    which.fetch_add(u64::from(was_paused), Ordering::Relaxed);
                }
            });
        }
        // No replica replaces it.
        cluster.nodes()[away + 3].kill();
        cluster.nodes()[away].pause();
        is_paused.store(true, Ordering::Release);
        until("requests with keys there fail", || failed.load(Ordering::Relaxed) > 5);
        let before = answered.load(Ordering::Relaxed);
        until("others are decided", || answered.load(Ordering::Relaxed) > before + 50);
        is_over.store(true, Ordering::Relaxed);
    });
    cluster.nodes()[away].resume();
    until("all is decided again", || names.iter().all(|name| ask(name).is_some()));
}

#[test]
fn connections_that_are_cut_never_charge_twice_or_in_part() {
    let cluster = Cluster::start(Program::Valkey9);
    let many = LIMITS.replace("90", "5000").replace("150", "5000").replace("250", "5000");
    let nodes: Vec<Node> = (0..2).map(|_| Node::with(spread(&cluster, "cut"), &many)).collect();
    let (tally, requests) = (Tally::default(), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let cutting = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                let node = &cluster.nodes()[number % 3];
                // Clients alone: replicas stay connected.
                let _ = node.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                number += 1;
                // Slowly enough that connections are made in between.
                thread::park_timeout(Duration::from_millis(40));
            }
        });
        // Until a cut has met a commit on its way, which is a matter of luck.
        let is_resent = || nodes.iter().any(|node| node.redis.stats().resends > 0);
        thread::scope(|scope| {
            for node in &nodes {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let numbers = (0..1_200).take_while(|it| *it < 100 || !is_resent());
                        numbers.for_each(|_| {
                            requests.fetch_add(1, Ordering::Relaxed);
                            count(node, &tally);
                        });
                    });
                }
            }
        });
        is_over.store(true, Ordering::Relaxed);
        cutting.join().unwrap();
    });
    let (allowed, denied, outages) = tally.get();
    assert_eq!((allowed + outages, denied), (requests.into_inner(), 0));
    let left = left(&nodes[0], &RED);
    assert!(left.iter().all(|it| *it == left[0]), "all or nothing: {left:?}");
    let charged = 5_000 - left[0];
    assert!(allowed <= charged && charged <= allowed + outages, "{charged} charged, {tally:?}");
    let stats: Vec<_> = nodes.iter().map(|node| node.redis.stats()).collect();
    assert!(stats.iter().any(|it| it.resends > 0), "{stats:?}");
    until_settled(&cluster, "cut");
}

#[test]
fn spread_over_a_cluster_it_needs_no_more_rights_than_documented() {
    let cluster = Cluster::start(Program::Valkey9);
    let rights: Vec<&str> = RIGHTS.split_whitespace().chain(["+cluster|slots"]).collect();
    for node in cluster.nodes() {
        let _ = node.command(&rights).success();
    }
    let url = url(&cluster).replace("://", "://app:pw@");
    let nodes: Vec<Node> = (0..2).map(|_| Node::new(&url, LIMITS)).collect();
    for node in &nodes {
        assert_eq!(eventually("it decides", || node.allows(&RED)), Some(true));
    }
    let id = nodes[0].engine.reserve(&RED).block().unwrap().hold().unwrap();
    nodes[1].engine.cancel(id, None).block().unwrap();
    // Both at once, so that each meets intents of the other.
    thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(node.allows(&RED), Some(true))));
        }
    });
    assert_eq!(left(&nodes[0], &RED), [90 - 42, 150 - 42, 250 - 42]);
    assert!(nodes.iter().all(|node| node.redis.stats().spread_commits > 0));
}
