//! All records of a namespace on one node of a cluster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::redis::{ClusterMode, RedisBuilder};
use tidegate_redis_servers::{Cluster, Program, Server, until};

use crate::faults::check_books;
use crate::nodes::WINDOW;
use crate::support::{ADA, Node, Tally, builder, eventually};

const LIMITS: &str = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 500, per = \"1h\" }\n\
    [[rule]]\nname = \"all\"\nwindow = { max = 100000, per = \"1h\" }\n";

fn url(nodes: &[&Server]) -> String {
    let hosts: Vec<_> = nodes.iter().map(|it| it.address().to_string()).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

fn together(url: &str) -> RedisBuilder {
    builder(url).cluster(ClusterMode::Together)
}

#[test]
fn a_cluster_together_follows_failover_and_migration() {
    let cluster = Cluster::start(Program::Redis7);
    let slot = cluster.slot_of("{tidegate}:control");
    let owner = cluster.primary_of(slot);
    // A seed that is away, and one that does not have the slot.
    let away = Server::start(Program::Redis7);
    let other = &cluster.nodes()[(owner + 1) % 3];
    let url = url(&[&away, other]);
    away.kill();
    let node = Node::with(together(&url), LIMITS);
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

    let short = Node::with(together(&url).deadline(Duration::from_millis(200)), LIMITS);
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
fn addresses_that_do_not_fit_the_server_are_refused_with_the_reason() {
    for (namespace, is_good) in [("a{b}c", true), ("a{", false), ("a}", false), ("{}", false)] {
        let built = together("redis+cluster://127.0.0.1:1").namespace(namespace).build();
        assert_eq!(built.is_ok(), is_good, "{namespace}");
    }
    let server = Server::start(Program::Redis7);
    let node = Node::with(
        together(&format!("redis+cluster://{}", server.address()))
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
