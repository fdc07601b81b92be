//! A primary that sentinels know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_redis::{Redis, RedisBuilder};
use tidegate_redis_servers::{Program, Sentinel, Server, until};

use crate::nodes::WINDOW;
use crate::support::{ADA, Node, Tally, builder, eventually};

fn url(sentinels: &Sentinel, login: &str) -> String {
    let hosts: Vec<_> = sentinels.sentinels().iter().map(|it| it.address().to_string()).collect();
    format!("redis+sentinel://{login}{}/{}", hosts.join(","), Sentinel::NAME)
}

/// A builder with the deadline of a store in use.
fn quick(url: &str) -> RedisBuilder {
    builder(url).deadline(Duration::from_millis(200))
}

#[test]
fn a_failover_loses_at_most_what_was_not_replicated_and_nodes_recover() {
    let sentinels = Sentinel::start_with(&Server::builder(Program::Valkey9).password("pw"));
    let url = url(&sentinels, ":pw@");
    let policy = WINDOW.replace("500", "1000000");
    let nodes: Vec<Node> = (0..2).map(|_| Node::with(quick(&url), &policy)).collect();
    let tally = Tally::default();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    node.count(&tally);
                    // Most time of the failover is an outage that ends at once.
                    if !node.redis.is_available() {
                        thread::park_timeout(Duration::from_millis(5));
                    }
                }
            });
        }
        until("they are under load", || tally.get().0 >= 200);
        let old = sentinels.primary();
        let address = old.address();
        // Nothing more is written there: what it has acknowledged is what was allowed until now,
        // and what the replica has not got of it is lost.
        old.pause();
        sentinels.until_replaced(address);
        let before = tally.get().0;
        until("they decide again", || tally.get().0 >= before + 200);
        is_over.store(true, Ordering::Relaxed);
        old.kill();
    });
    let (allowed, denied, outages) = tally.get();
    assert_eq!(denied, 0);
    let charged = 1_000_000 - nodes[0].left();
    // Nothing is charged that was neither allowed nor unknown.
    assert!(charged <= allowed + outages, "{charged}, {tally:?}");
    // What is lost was acknowledged, but had not left for the replicas when the primary stopped:
    // at most one round of its loop, and each node has two batches on their way at most.
    let lost = allowed.saturating_sub(charged);
    assert!(lost <= 4, "{lost} lost: {charged} charged, {tally:?}");
}

#[test]
fn a_wanted_failover_is_followed_without_a_restart() {
    let sentinels = Sentinel::start(Program::Redis7);
    // One of them is away.
    sentinels.sentinels()[0].kill();
    let node = Node::with(builder(&url(&sentinels, "")), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true), "{:?}", node.redis.failure());
    let old = sentinels.primary_address();
    sentinels.failover();
    assert_ne!(sentinels.primary_address(), old);
    eventually("it decides", || node.allows(&ADA));
    let primary = sentinels.primary();
    until("the new primary is used", || {
        node.allows(&ADA);
        primary.info("connected_clients").is_some_and(|it| it != "1")
            && node.redis.failure().is_none()
    });
    assert!(node.left() <= 498);
}

#[test]
fn sentinels_that_cannot_help_are_an_outage_with_a_reason() {
    let server = Server::start(Program::Redis7);
    let address = server.address();
    server.kill();
    let node = Node::with(quick(&format!("redis+sentinel://{address}/primary")), WINDOW);
    assert_eq!(node.allows(&ADA), None);
    let failure = eventually("it has failed", || node.redis.failure()).unwrap();
    assert!(failure.contains("sentinel"), "{failure}");
    server.restart();
    // No sentinel at all, but a server.
    let failure = eventually("it says why", || {
        node.redis.failure().filter(|it| it.contains("SENTINEL") || it.contains("unknown"))
    });
    assert!(failure.is_some());
    let login = Redis::builder("redis://127.0.0.1:1").sentinel_login(None, "pw").build();
    assert!(login.unwrap_err().to_string().contains("redis+sentinel://"));
}
