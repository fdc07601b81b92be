//! What happens when the server, or the way to it, fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::CheckError;
use tidegate_redis_servers::{Appendfsync, Cut, Fault, Program, Proxy, Server, until};

use crate::nodes::WINDOW;
use crate::support::{ADA, Node, Tally, builder, eventually, load};

/// Never more than the limit, and what is charged is what was allowed, or is not known.
pub(crate) fn check_books(node: &Node, tally: &Tally, max: u64) {
    let (allowed, _, outages) = tally.get();
    let charged = max - node.left();
    assert!(allowed <= charged, "{allowed} allowed, {charged} charged");
    assert!(
        charged <= allowed + outages,
        "{charged} charged, {allowed} allowed, {outages} unknown"
    );
}

#[test]
fn a_reply_lost_after_the_commit_is_recognised_and_charged_once() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let proxy = Proxy::start(server.address());
        let node = Node::new(&proxy.url(), WINDOW);
        assert_eq!(node.allows(&ADA), Some(true));
        let command = if program == Program::Valkey9 { "SET" } else { "EVALSHA" };
        for _ in 0..5 {
            proxy.lose_replies(command, 1);
            assert_eq!(node.allows(&ADA), Some(true), "{program}");
        }
        assert_eq!(node.left(), 494, "{program}");
        assert!(node.redis.stats().resends >= 1, "{:?}", node.redis.stats());
        assert_eq!(node.redis.stats().unknown, 0);
    }
}

#[test]
fn a_lost_commit_that_another_node_wrote_over_is_unknown_and_not_charged_again() {
    let server = Server::start(Program::Valkey9);
    let proxy = Proxy::start(server.address());
    let (node, other) = (Node::new(&proxy.url(), WINDOW), Node::new(&server.url(), WINDOW));
    assert_eq!((node.allows(&ADA), other.allows(&ADA)), (Some(true), Some(true)));
    assert_eq!(node.left(), 498);
    proxy.set(Fault::Refuse);
    proxy.lose_replies("SET", 1);
    thread::scope(|scope| {
        let lost = scope.spawn(|| node.allows(&ADA));
        until("the reply is lost", || proxy.lost_replies() == 1);
        assert_eq!(other.allows(&ADA), Some(true));
        proxy.set(Fault::Pass);
        assert_eq!(lost.join().unwrap(), None, "it may have happened");
    });
    assert_eq!(node.redis.stats().unknown, 1);
    assert_eq!(other.left(), 496, "it is charged once");
}

#[test]
fn what_could_not_be_sent_is_unavailable() {
    let server = Server::start(Program::Valkey9);
    let proxy = Proxy::start(server.address());
    let short = builder(&proxy.url()).deadline(Duration::from_millis(300));
    let (node, other) = (Node::with(short, WINDOW), Node::new(&server.url(), WINDOW));
    for round in 0..8 {
        until("it decides", || node.allows(&ADA) == Some(true));
        let (left, before) = (other.left(), node.redis.stats());
        proxy.set(Fault::Refuse);
        proxy.cut(Cut::Close);
        until("no connection is left", || proxy.connections() == 0);
        assert_eq!(node.allows(&ADA), None, "round {round}");
        let after = node.redis.stats();
        assert_eq!(after.unknown, before.unknown, "round {round}: it was not sent");
        assert_eq!(after.unavailable, before.unavailable + 1, "round {round}");
        assert_eq!(other.left(), left, "nothing is charged");
        proxy.set(Fault::Pass);
    }
}

#[test]
fn what_may_have_been_sent_is_unknown() {
    let server = Server::start(Program::Valkey9);
    let proxy = Proxy::start(server.address());
    let (node, other) = (Node::new(&proxy.url(), WINDOW), Node::new(&server.url(), WINDOW));
    assert_eq!(node.allows(&ADA), Some(true));
    proxy.set(Fault::Refuse);
    proxy.lose_replies("SET", 1);
    assert_eq!(node.allows(&ADA), None);
    assert_eq!((proxy.lost_replies(), node.redis.stats().unknown), (1, 1), "it may have happened");
    assert_eq!(other.left(), 498, "and it has");
}

/// Scripts are loaded with each connection; here they are gone before the commit is sent again.
#[test]
fn a_lost_commit_that_finds_no_script_when_it_is_sent_again_is_charged_once() {
    let server = Server::start(Program::Redis7);
    let proxy = Proxy::start(server.address());
    let node = Node::new(&proxy.url(), WINDOW);
    let (tally, is_over) = (Tally::default(), AtomicBool::new(false));
    node.count(&tally);
    thread::scope(|scope| {
        let flushing = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = server.command(&["SCRIPT", "FLUSH"]).success();
                // Slowly enough that scripts are found now and then.
                thread::park_timeout(Duration::from_millis(1));
            }
        });
        for _ in 0..40 {
            proxy.lose_replies("EVALSHA", 1);
            node.count(&tally);
        }
        is_over.store(true, Ordering::Relaxed);
        flushing.join().unwrap();
    });
    assert!(node.redis.stats().resends > 0, "{:?}", node.redis.stats());
    check_books(&node, &tally, 500);
}

#[test]
fn cut_connections_never_admit_too_much() {
    let server = Server::start(Program::Valkey9);
    let proxies: Vec<Proxy> = (0..2).map(|_| Proxy::start(server.address())).collect();
    let nodes: Vec<Node> = proxies.iter().map(|it| Node::new(&it.url(), WINDOW)).collect();
    let is_over = AtomicBool::new(false);
    let tally = thread::scope(|scope| {
        let cutting = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (proxy, how) in proxies.iter().zip([Cut::Reset, Cut::Close]) {
                    proxy.cut(how);
                    proxy.lose_replies("SET", 1);
                    thread::yield_now();
                }
            }
        });
        let tally = load(&nodes, 200);
        is_over.store(true, Ordering::Relaxed);
        cutting.join().unwrap();
        tally
    });
    let (allowed, denied, outages) = tally.get();
    assert!(allowed <= 500 && allowed + denied + outages == 800, "{tally:?}");
    check_books(&nodes[0], &tally, 500);
}

#[test]
fn kill_9_of_a_server_with_aof_always_loses_nothing_and_it_recovers_by_itself() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::builder(program).appendonly(Appendfsync::Always).start();
        let url = server.url();
        let node = Node::with(builder(&url).deadline(Duration::from_millis(200)), WINDOW);
        let tally = Tally::default();
        for round in 0..3 {
            (0..20).for_each(|_| node.count(&tally));
            server.kill();
            until("the breaker opens", || {
                node.count(&tally);
                !node.redis.is_available()
            });
            let before = tally.get();
            (0..5).for_each(|_| node.count(&tally));
            assert_eq!(tally.get().2, before.2 + 5, "it fails at once, in round {round}");
            server.restart();
            until("it recovers", || node.redis.is_available());
            check_books(&node, &tally, 500);
        }
    }
}

#[test]
fn what_is_known_to_be_denied_stays_denied_in_an_outage() {
    let server = Server::start(Program::Valkey9);
    let url = server.url();
    let node =
        Node::with(builder(&url).deadline(Duration::from_millis(200)), &WINDOW.replace("500", "1"));
    assert_eq!(node.allows(&ADA), Some(true));
    assert_eq!(node.allows(&ADA), Some(false));
    server.kill();
    until("the breaker opens", || {
        node.allows(&tidegate::Request::new("default", &[("user", "bob")]));
        !node.redis.is_available()
    });
    assert_eq!(node.allows(&ADA), Some(false), "a denial needs no write");
    let look = node.engine.peek(&ADA).block().unwrap();
    assert!(look.is_outage(), "what was last seen is not shown as what is");
}

#[test]
fn it_starts_while_the_server_is_away() {
    let server = Server::start(Program::Valkey9);
    let url = server.url();
    server.kill();
    let node = Node::with(builder(&url).deadline(Duration::from_millis(100)), WINDOW);
    assert_eq!(node.allows(&ADA), None);
    server.restart();
    eventually("it decides", || node.allows(&ADA));
}

#[test]
fn a_silent_server_opens_the_breaker_and_nothing_is_lost() {
    for fault in [Fault::Hold, Fault::Discard] {
        let server = Server::start(Program::Valkey9);
        let proxy = Proxy::start(server.address());
        let node = Node::with(builder(&proxy.url()).deadline(Duration::from_millis(100)), WINDOW);
        let tally = Tally::default();
        until("it decides", || {
            node.count(&tally);
            tally.get().0 > 0
        });
        proxy.set(fault);
        until("the breaker opens", || {
            node.count(&tally);
            !node.redis.is_available()
        });
        proxy.set(Fault::Pass);
        until("it recovers", || node.redis.is_available());
        check_books(&node, &tally, 500);
    }
}

#[test]
fn a_paused_server_is_an_outage_until_it_goes_on() {
    let server = Server::start(Program::Redis7);
    let node = Node::with(builder(&server.url()).deadline(Duration::from_millis(100)), WINDOW);
    let tally = Tally::default();
    until("it decides", || {
        node.count(&tally);
        tally.get().0 > 0
    });
    server.pause();
    until("the breaker opens", || {
        node.count(&tally);
        !node.redis.is_available()
    });
    server.resume();
    until("it recovers", || node.redis.is_available());
    check_books(&node, &tally, 500);
}

#[test]
fn dropped_scripts_are_loaded_again() {
    let server = Server::start(Program::Redis7);
    let node = Node::new(&server.url(), WINDOW);
    for _ in 0..5 {
        assert_eq!(node.allows(&ADA), Some(true));
        server.command(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(node.left(), 495);
}

#[test]
fn flushall_is_noticed_and_the_policy_is_put_there_again() {
    let server = Server::start(Program::Valkey9);
    let node = Node::new(&server.url(), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true));
    server.command(&["FLUSHALL"]);
    until("it is noticed", || node.redis.stats().flushed == 1);
    assert_eq!(node.allows(&ADA), Some(true));
    assert_eq!(node.left(), 499);
    assert_eq!(server.command(&["EXISTS", "tidegate:control"]).integer(), 1);
}

#[test]
fn a_full_server_is_an_outage_and_charges_nothing() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let node = Node::new(&server.url(), WINDOW);
        assert_eq!(node.allows(&ADA), Some(true));
        assert!(node.redis.is_available());
        let _ = server.command(&["CONFIG", "SET", "maxmemory", "1"]).success();
        assert_eq!(node.allows(&ADA), None, "{program}");
        assert!(!node.redis.is_available(), "{program}");
        assert!(node.redis.failure().unwrap().contains("OOM"), "{:?}", node.redis.failure());
        let _ = server.command(&["CONFIG", "SET", "maxmemory", "0"]).success();
        eventually("it decides again", || node.allows(&ADA));
        assert!(node.redis.is_available() && node.redis.failure().is_none(), "{program}");
        assert!(node.left() >= 497, "{program}");
    }
}

#[test]
fn a_server_that_was_full_is_available_again_without_requests() {
    let server = Server::start(Program::Valkey9);
    let node = Node::new(&server.url(), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true));
    let _ = server.command(&["CONFIG", "SET", "maxmemory", "1"]).success();
    assert_eq!(node.allows(&ADA), None);
    assert!(!node.redis.is_available());
    let _ = server.command(&["CONFIG", "SET", "maxmemory", "0"]).success();
    until("the node has announced itself", || node.redis.is_available());
}

#[test]
fn a_server_that_forbids_commands_is_not_available_until_a_commit_succeeds() {
    let server = Server::start(Program::Valkey9);
    let _ = server.command(&RIGHTS.split_whitespace().collect::<Vec<_>>()).success();
    let node = Node::new(&format!("redis://app:pw@{}", server.address()), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true));
    let _ = server.command(&["ACL", "SETUSER", "app", "-set", "-evalsha"]).success();
    assert_eq!(node.allows(&ADA), None);
    let failure = node.redis.failure().unwrap();
    assert!(!node.redis.is_available() && failure.contains("NOPERM"), "{failure}");
    let _ = server.command(&["ACL", "SETUSER", "app", "+set", "+evalsha"]).success();
    eventually("it decides again", || node.allows(&ADA));
    assert!(node.redis.is_available());
}

#[test]
fn a_foreign_record_of_the_policy_makes_the_store_unavailable_until_it_is_gone() {
    let server = Server::start(Program::Valkey9);
    let node = Node::new(&server.url(), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true));
    let _ = server.command(&["SET", "tidegate:control", "something else"]).success();
    until("it is noticed", || !node.redis.is_available());
    let failure = node.redis.failure().unwrap();
    assert!(failure.contains("the policy is not of this program"), "{failure}");
    server.command(&["DEL", "tidegate:control"]);
    until("it is gone", || node.redis.is_available());
}

#[test]
fn a_foreign_value_is_an_error_that_names_the_key_and_is_left_alone() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let node = Node::new(&server.url(), WINDOW);
        assert_eq!(node.allows(&ADA), Some(true));
        let names = server.command(&["KEYS", "tidegate:state:*"]);
        let name = names.array()[0].text();
        for foreign in [&["SET", &name, "something else"][..], &["LPUSH", &name, "a"]] {
            server.command(&["DEL", &name]);
            let _ = server.command(foreign).success();
            assert_eq!(node.allows(&ADA), None, "{program}");
            let text = match node.engine.forget(&ADA).block() {
                Err(CheckError::Outage(outage)) => outage.to_string(),
                other => panic!("{program}: {other:?}"),
            };
            assert!(text.contains(name.strip_prefix("tidegate:").unwrap()), "{text}");
        }
        assert_eq!(server.command(&["LLEN", &name]).integer(), 1, "it is not overwritten");
    }
}

#[test]
fn a_wrong_password_is_an_outage() {
    let server = Server::builder(Program::Valkey9).password("right").start();
    let address = server.address();
    let wrong = format!("redis://:wrong@{address}");
    let node = Node::with(builder(&wrong).deadline(Duration::from_millis(100)), WINDOW);
    assert_eq!(node.allows(&ADA), None);
    let right = Node::new(&format!("redis://:right@{address}"), WINDOW);
    assert_eq!(right.allows(&ADA), Some(true));
}

/// The rights that the README documents.
pub(crate) const RIGHTS: &str = "ACL SETUSER app on >pw ~tidegate:* +get +mget +set +del \
                                 +evalsha +eval +script|load +time +info +wait +waitaof +blpop \
                                 +rpush +pexpire +dbsize +hset +hdel +hrandfield";

#[test]
fn it_needs_no_more_rights_than_documented() {
    let server = Server::builder(Program::Valkey9).appendonly(Appendfsync::Everysec).start();
    let _ = server.command(&RIGHTS.split_whitespace().collect::<Vec<_>>()).success();
    let policy = format!("{WINDOW}durability = \"fsync\"\n");
    let node = Node::new(&format!("redis://app:pw@{}", server.address()), &policy);
    assert_eq!(node.allows(&ADA), Some(true));
    let id = node.engine.hold(&ADA).block().unwrap().hold().unwrap();
    node.engine.cancel(id, None).block().unwrap();
    assert_eq!(node.left(), 499);
    assert!(node.redis.stats().barriers > 0);
    until("the keys are counted", || node.redis.server().is_some_and(|it| it.keys.is_some()));
    until("the nodes are listed", || node.redis.nodes().is_some_and(|nodes| nodes.len() == 1));
    let _ = server.command(&["HSET", "tidegate:nodes", "0000000000000000", OLD_NODE]).success();
    until("one that is long gone is removed", || {
        server.command(&["HLEN", "tidegate:nodes"]).integer() == 1
    });
    until("none of it was refused", || node.redis.nodes().is_some_and(|nodes| nodes.len() == 1));
}

/// The announcement of a node from 1970.
const OLD_NODE: &str = "tgn1\0\0\0\0\0\0\0\0\x01a\x011\0";
