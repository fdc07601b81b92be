//! Which nodes share a store.

use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};

use tidegate::redis::Redis;
use tidegate_redis_servers::{Cluster, Fault, Program, Proxy, Server, until};

use crate::cluster::url;
use crate::faults::RIGHTS;
use crate::nodes::WINDOW;
use crate::support::{ADA, Node, builder};

/// A node of this name that takes part.
fn named(url: &str, name: &str) -> Node {
    let node = Node::with(builder(url).node_name(name), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true));
    node
}

/// The names of the nodes that one lists.
fn listed(redis: &Redis) -> Option<Vec<String>> {
    Some(redis.nodes()?.into_iter().map(|node| node.name).collect())
}

fn sees(node: &Node, names: &[&str]) -> bool {
    listed(&node.redis).is_some_and(|listed| listed == names)
}

fn entries(server: &Server, record: &str) -> i64 {
    server.command(&["HLEN", record]).integer()
}

/// A number that a server has counted of a command, such as `calls`.
fn counted(server: &Server, command: &str, what: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).text();
    let line = stats.lines().find_map(|it| it.strip_prefix(&format!("cmdstat_{command}:")));
    let number = line.and_then(|it| it.split(',').find_map(|it| it.strip_prefix(what)));
    number.map_or(0, |it| it.trim_start_matches('=').trim().parse().unwrap())
}

/// Waits for so many surveys that an announcement would have been due among them.
fn until_surveyed(server: &Server) {
    let before = counted(server, "dbsize", "calls");
    until("it was surveyed", || counted(server, "dbsize", "calls") >= before + 12);
}

#[test]
fn nodes_of_a_namespace_see_each_other_and_one_that_is_dropped_leaves_at_once() {
    for program in Program::ALL {
        let server = Server::start(program);
        let (a, b) = (named(&server.url(), "a"), named(&server.url(), "b"));
        let other = Node::with(builder(&server.url()).namespace("shop").node_name("c"), WINDOW);
        assert_eq!(other.allows(&ADA), Some(true));
        b.redis.set_node_address("10.0.0.7:8080").unwrap();
        until("they see each other", || {
            let has_address = |it: &tidegate::redis::Node| it.address.is_some();
            sees(&a, &["a", "b"])
                && sees(&b, &["b", "a"])
                && a.redis.nodes().is_some_and(|nodes| nodes.iter().any(has_address))
        });
        until("the other namespace has its own", || sees(&other, &["c"]));
        let nodes = a.redis.nodes().unwrap();
        assert_eq!((nodes[0].is_self, nodes[1].is_self), (true, false));
        assert_eq!(nodes[0].address, None);
        assert_eq!(nodes[1].address.as_deref(), Some("10.0.0.7:8080"));
        assert_eq!(nodes[1].version, env!("CARGO_PKG_VERSION"));
        assert!(nodes.iter().all(|it| it.seen_ago.as_secs() <= 10), "{nodes:?}");
        let ttl_ms = server.command(&["PTTL", "tidegate:nodes"]).integer();
        assert!((1..=60_000).contains(&ttl_ms), "{ttl_ms}");
        drop(b);
        // Of its own accord: others would remove it after a minute.
        until("it is out of the record", || entries(&server, "tidegate:nodes") == 1);
        until("it is not listed", || sees(&a, &["a"]));
        drop(a);
        until("the last one leaves no record", || {
            server.command(&["EXISTS", "tidegate:nodes"]).integer() == 0
        });
    }
}

#[test]
fn a_node_that_is_cut_off_is_absent_after_10_s_removed_after_60_s_and_comes_back() {
    let server = Server::builder(Program::Valkey9).steppable_clock().start();
    let proxy = Proxy::start(server.address());
    let (a, b) = (named(&proxy.url(), "a"), named(&server.url(), "b"));
    until("they see each other", || sees(&a, &["a", "b"]) && sees(&b, &["b", "a"]));
    proxy.set(Fault::Discard);
    server.step_clock(11);
    until("it is absent", || sees(&b, &["b"]));
    assert_eq!(entries(&server, "tidegate:nodes"), 2, "its entry is there");
    server.step_clock(60);
    until("it is removed", || entries(&server, "tidegate:nodes") == 1);
    until("the one that is there stays", || sees(&b, &["b"]));
    until("what is cut off knows nothing", || a.redis.nodes().is_none());
    proxy.set(Fault::Pass);
    until("it comes back", || sees(&a, &["a", "b"]) && sees(&b, &["b", "a"]));
}

#[test]
fn a_node_leaves_when_it_is_about_to_end_and_decides_until_then() {
    let server = Server::start(Program::Valkey9);
    let (a, b) = (named(&server.url(), "a"), named(&server.url(), "b"));
    until("they see each other", || sees(&a, &["a", "b"]) && sees(&b, &["b", "a"]));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(b.redis.leave());
    assert_eq!(entries(&server, "tidegate:nodes"), 1);
    until_surveyed(&server);
    assert_eq!(entries(&server, "tidegate:nodes"), 1, "it is not announced again");
    assert_eq!(b.allows(&ADA), Some(true));
    until("it is not listed", || sees(&a, &["a"]));
    // Without a connection there is nothing to wait for.
    server.kill();
    until("it is noticed", || a.redis.failure().is_some());
    runtime.block_on(a.redis.leave());
}

#[test]
fn a_store_without_a_policy_has_no_nodes() {
    let server = Server::start(Program::Valkey9);
    let redis = builder(&server.url()).build().unwrap();
    until_surveyed(&server);
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
    assert_eq!(redis.nodes(), None);
}

#[test]
fn what_no_node_has_written_is_ignored_and_left_alone() {
    let server = Server::start(Program::Redis7);
    let a = named(&server.url(), "a");
    let huge = "x".repeat(1 << 20);
    let future = "tgn1\0\0\0\0\0\0\0\u{1}\u{1}f\u{1}1\0";
    for (field, value) in [
        ("", ""),
        ("no id", future),
        ("00000000000000AA", future),
        ("0000000000000001", ""),
        ("0000000000000002", "tgn1"),
        ("0000000000000003", "tgn1\0\0\0\0\0\0\0\u{1}\u{7f}f"),
        ("0000000000000004", "tgn1\0\0\0\0\0\0\0\u{1}\u{1}\u{1b}\u{1}1\0"),
        ("0000000000000005", &huge),
    ] {
        let _ = server.command(&["HSET", "tidegate:nodes", field, value]).success();
    }
    let _ = server.command(&["HSET", "tidegate:nodes", "0000000000000006", future]).success();
    until("one from the future is present for a while", || sees(&a, &["a", "f"]));
    until("and no longer", || sees(&a, &["a"]));
    assert_eq!(entries(&server, "tidegate:nodes"), 10);
    server.command(&["DEL", "tidegate:nodes"]);
    let _ = server.command(&["SET", "tidegate:nodes", "something else"]).success();
    until("the nodes are unknown", || a.redis.nodes().is_none());
    assert_eq!(a.allows(&ADA), Some(true));
    assert_eq!(server.command(&["GET", "tidegate:nodes"]).text(), "something else");
    server.command(&["DEL", "tidegate:nodes"]);
    until("it announces itself again", || sees(&a, &["a"]));
}

#[test]
fn without_the_rights_nodes_are_unknown_with_one_warning_and_decisions_go_on() {
    keep_warnings();
    for (missing, namespace) in [("+hset", "left"), ("+hrandfield", "right")] {
        let server = Server::start(Program::Valkey9);
        let rights = RIGHTS.replace("~tidegate:*", &format!("~{namespace}:*"));
        let rights: Vec<&str> = rights.split_whitespace().filter(|it| *it != missing).collect();
        let _ = server.command(&rights).success();
        let url = format!("redis://app:pw@{}", server.address());
        let node = Node::with(builder(&url).namespace(namespace), WINDOW);
        assert_eq!(node.allows(&ADA), Some(true));
        let command = missing.trim_start_matches('+');
        until("it is refused", || counted(&server, command, "rejected_calls") == 1);
        until_surveyed(&server);
        assert_eq!(counted(&server, command, "rejected_calls"), 1, "it is not sent again");
        assert_eq!(node.redis.nodes(), None);
        assert_eq!(node.allows(&ADA), Some(true));
        let facts = node.redis.server().unwrap();
        assert!(facts.keys.is_some(), "all else is known: {facts:?}");
        assert_eq!(warnings(&format!("record=\"{namespace}:nodes\"")), 1);
    }
}

/// What a command responds is not taken for the response of one that was not sent.
#[test]
fn without_the_right_to_count_keys_nodes_are_listed_and_keys_are_unknown() {
    let server = Server::start(Program::Valkey9);
    let rights = RIGHTS.split_whitespace().filter(|it| *it != "+dbsize");
    let _ = server.command(&rights.collect::<Vec<_>>()).success();
    let node = named(&format!("redis://app:pw@{}", server.address()), "a");
    until("it is listed", || sees(&node, &["a"]));
    let before = counted(&server, "hset", "calls");
    until("it is announced again", || {
        assert_eq!(node.redis.server().and_then(|it| it.keys), None);
        counted(&server, "hset", "calls") >= before + 2
    });
}

#[test]
fn nodes_on_a_cluster_see_each_other() {
    let cluster = Cluster::start(Program::Redis7);
    let nodes = ["a", "b"].map(|name| named(&url(&cluster), name));
    until("they see each other", || sees(&nodes[0], &["a", "b"]) && sees(&nodes[1], &["b", "a"]));
    let record = "{tidegate}:nodes";
    let owner = &cluster.nodes()[cluster.primary_of(cluster.slot_of(record))];
    assert_eq!(entries(owner, record), 2);
    let [a, b] = nodes;
    drop(b);
    until("it is out of the record", || entries(owner, record) == 1);
    until("it is not listed", || sees(&a, &["a"]));
}

#[test]
fn a_store_without_a_secret_has_to_say_so() {
    let url = "redis://127.0.0.1:1";
    for built in [Redis::builder(url).build(), Redis::builder(url).secret("").build()] {
        let error = built.unwrap_err().to_string();
        assert!(error.contains("has no secret") && error.contains("without_secret"), "{error}");
    }
    assert!(Redis::builder(url).without_secret().build().is_ok());
    assert!(Redis::builder(url).secret("s").build().is_ok());
}

#[test]
fn names_and_addresses_that_cannot_be_listed_are_refused() {
    let long = "x".repeat(129);
    for wrong in ["", "a\nb", &long] {
        let built = builder("redis://127.0.0.1:1").node_name(wrong).build();
        assert!(built.unwrap_err().to_string().contains("name of a node"), "{wrong:?}");
        let redis = builder("redis://127.0.0.1:1").build().unwrap();
        let refused = redis.set_node_address(wrong).unwrap_err();
        assert!(refused.to_string().contains("address of a node"), "{wrong:?}");
    }
}

/// What was logged by all tests of this process.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn keep_warnings() {
    static START: Once = Once::new();
    START.call_once(|| {
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
        log.with_ansi(false).with_writer(|| Log).init();
    });
}

/// How many warnings have a text.
fn warnings(text: &str) -> usize {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&log).lines().filter(|line| line.contains(text)).count()
}
