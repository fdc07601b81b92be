//! A primary that sentinels know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::Request;
use tidegate::redis::{Redis, RedisBuilder};
use tidegate_redis_servers::{Cut, Fault, Program, Proxy, Sentinel, Server, until};

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
    // A sentinel that is away takes time where it is tried first.
    assert_eq!(eventually("it decides", || node.allows(&ADA)), Some(true));
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

#[test]
fn a_failover_loses_what_is_within_the_lag_and_nothing_that_replicas_acknowledged() {
    let sentinels = Sentinel::start(Program::Valkey9);
    let old = sentinels.primary();
    let policy = "[[rule]]\nname = \"m\"\nkey = [\"user\"]\nwindow = { max = 500, per = \"1h\" }\n\
        [[rule]]\nname = \"f\"\ndomain = \"flush\"\nkey = [\"user\"]\ndurability = \"flush\"\n\
        window = { max = 500, per = \"1h\" }\n";
    let flush = Request::new("flush", &[("user", "ada")]);
    let node = Node::with(quick(&url(&sentinels, "")).replicas(2), policy);
    until("it decides", || node.allows(&ADA) == Some(true));
    // Sentinels would lead the replicas around the proxies. The store stays connected.
    sentinels.sentinels().iter().for_each(Server::kill);
    let replicas = || sentinels.servers().filter(|server| server.address() != old.address());
    let proxies: Vec<Proxy> = replicas().map(|_| Proxy::start(old.address())).collect();
    for (replica, proxy) in replicas().zip(&proxies) {
        let port = proxy.address().port().to_string();
        let _ = replica.command(&["REPLICAOF", "127.0.0.1", &port]).success();
    }
    until("both replicas are in sync again", || {
        replicas().all(|it| it.info("master_link_status").as_deref() == Some("up"))
            && old.info("connected_slaves").as_deref() == Some("2")
    });
    let mut durable = 0;
    until("some are on both replicas", || {
        durable += u64::from(node.allows(&flush) == Some(true));
        durable >= 5
    });
    until("nothing else is on its way", || node.redis.server().is_some_and(|it| it.lag.bytes == 0));
    let kept = 500 - node.left();
    // From now on nothing reaches the replicas, and nothing comes back.
    proxies.iter().for_each(|proxy| proxy.set(Fault::Discard));
    let acknowledged = (0..20).filter(|_| node.allows(&ADA) == Some(true)).count() as u64;
    assert!(acknowledged > 0);
    assert_eq!(node.allows(&flush), None, "no replica has it");
    let measured = || node.redis.server().map(|it| it.lag.bytes).filter(|it| *it > 0);
    let lag_bytes = eventually("the lag is seen", || measured().filter(|it| *it >= 20 * SMALLEST));
    old.kill();
    proxies.iter().for_each(|proxy| proxy.cut(Cut::Reset));
    sentinels.sentinels().iter().for_each(Server::restart);
    sentinels.until_replaced(old.address());
    let charged = 500 - node.left();
    let lost = (kept + acknowledged).saturating_sub(charged);
    assert!(lost > 0 && lost <= acknowledged, "{lost} of {acknowledged}");
    assert!(lost * SMALLEST <= lag_bytes.unwrap(), "{lost}, {lag_bytes:?}");
    let left = eventually("it answers", || {
        let report = node.engine.peek(&flush).block().unwrap();
        (!report.is_outage()).then(|| report.remaining().unwrap())
    });
    assert!(500 - left.unwrap() >= durable, "{left:?} left of 500, {durable} were acknowledged");
}

/// How many bytes a commit has at least, on its way to a replica.
const SMALLEST: u64 = 50;
