//! One key that several nodes write at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_redis_servers::{Fault, Program, Proxy, Server, until};

use crate::faults::RIGHTS;
use crate::nodes::WINDOW;
use crate::support::{ADA, Node, builder, eventually, load};

const NODES: usize = 4;
const CALLS: usize = 150;

fn wide_window() -> String {
    WINDOW.replace("500", "100000")
}

fn nodes(url: &str) -> Vec<Node> {
    let nodes: Vec<Node> = (0..NODES).map(|_| Node::new(url, &wide_window())).collect();
    for node in &nodes {
        eventually("it decides", || node.allows(&ADA));
    }
    nodes
}

/// The name of the turn at the only key.
fn turn_name(server: &Server) -> String {
    let names = server.command(&["KEYS", "tidegate:state:*"]);
    format!("tidegate:turn:{{{}}}", names.array()[0].text())
}

/// All calls are allowed, and each is charged once.
fn check_load(nodes: &[Node]) {
    let before = nodes[0].left();
    let all = (nodes.len() * 2 * CALLS) as u64;
    assert_eq!(load(nodes, CALLS).get(), (all, 0, 0));
    eventually("all is charged", || (nodes[0].left() == before - all).then_some(()));
}

fn turns(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.redis.stats().turns).sum()
}

#[test]
fn nodes_take_turns_at_a_key_that_all_write_and_the_turn_expires() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let rules = RIGHTS.split_whitespace();
        // Redis 7.0 does not know it.
        let rules = rules.filter(|rule| program == Program::Valkey9 || *rule != "+waitaof");
        let _ = server.command(&rules.collect::<Vec<_>>()).success();
        let nodes = nodes(&format!("redis://app:pw@{}", server.address()));
        eventually("turns are taken", || {
            check_load(&nodes);
            (turns(&nodes) > 0).then_some(())
        });
        let name = turn_name(&server);
        until("it is gone", || server.command(&["EXISTS", &name]).integer() == 0);
    }
}

#[test]
fn turns_that_are_lost_or_foreign_hold_nothing_up() {
    let server = Server::start(Program::Valkey9);
    let nodes = nodes(&server.url());
    let name = turn_name(&server);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut thief = server.connect().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                thief.command(&["BLPOP", &name, "0.01"]).unwrap();
                thief.command(&["RPUSH", &name, "no value of this program"]).unwrap();
            }
        });
        check_load(&nodes);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn without_the_rights_for_turns_decisions_are_as_exact() {
    let server = Server::start(Program::Valkey9);
    let rules = RIGHTS.split_whitespace();
    let rules = rules.filter(|rule| !["+blpop", "+rpush", "+pexpire"].contains(rule));
    let _ = server.command(&rules.collect::<Vec<_>>()).success();
    let nodes = nodes(&format!("redis://app:pw@{}", server.address()));
    check_load(&nodes);
    assert_eq!(turns(&nodes), 0);
}

#[test]
fn transactions_that_wait_are_bounded_for_the_whole_store() {
    let server = Server::start(Program::Valkey9);
    let proxy = Proxy::start(server.address());
    let long = builder(&proxy.url()).deadline(Duration::from_secs(600));
    let node = Node::with(long.edit_lead(Duration::from_secs(600)), WINDOW);
    eventually("it decides", || node.allows(&ADA));
    proxy.set(Fault::Hold);
    let beyond = 100;
    let checks: Vec<_> = (0..(1 << 16) + beyond).map(|_| node.engine.check(&ADA)).collect();
    assert_eq!(node.redis.stats().unavailable, beyond, "those beyond 65 536 fail at once");
    drop(checks);
}

#[test]
fn the_policy_is_not_requested_again_while_a_request_for_it_is_on_its_way() {
    let server = Server::start(Program::Valkey9);
    let proxy = Proxy::start(server.address());
    let node = Node::new(&proxy.url(), WINDOW);
    eventually("it decides", || node.allows(&ADA));
    let pass = |ms: u64| {
        let from = node.redis.clock().now();
        let passed = || node.redis.clock().now().saturating_duration_since(from);
        until("time passes", || passed() >= Duration::from_millis(ms));
    };
    proxy.set(Fault::Hold);
    let before = node.redis.stats().round_trips;
    // The copy of the policy becomes too old meanwhile, and the request for it has no response.
    pass(400);
    let check = node.engine.check(&ADA);
    pass(200);
    let sent = node.redis.stats().round_trips - before;
    assert!(sent <= 1, "{sent} requests");
    proxy.set(Fault::Pass);
    assert!(check.block().unwrap().is_allowed());
}
