//! Several nodes, one truth.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate::policy::{Condition, Policy};
use tidegate::{
    Edit, Request,
    edit::{Ban, EditError},
};
use tidegate_redis_servers::{Fault, Program, Proxy, Server};

use crate::support::{ADA, Node, builder, eventually, load};

pub(crate) const WINDOW: &str =
    "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 500, per = \"1h\" }\n";

const SLOTS: &str =
    "[[rule]]\nname = \"slots\"\nslots = { max = 1, queue = 10, expires = \"1m\" }\n";

fn nodes(server: &Server, count: usize, policy: &str) -> Vec<Node> {
    (0..count).map(|_| Node::new(&server.url(), policy)).collect()
}

#[test]
fn nodes_together_admit_exactly_the_limit() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let nodes = nodes(&server, 3, WINDOW);
        let tally = load(&nodes, 120);
        assert_eq!(tally.get(), (500, 220, 0), "{program}");
        let conflicts: u64 = nodes.iter().map(|node| node.redis.stats().conflicts).sum();
        assert!(conflicts > 0, "they met");
    }
}

#[test]
fn several_limits_are_charged_all_or_none_on_all_nodes() {
    let policy = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 300, per = \"1h\" }\n\
                  [[rule]]\nname = \"all\"\nwindow = { max = 200, per = \"1h\" }\n";
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let nodes = nodes(&server, 3, policy);
        assert_eq!(load(&nodes, 60).get(), (200, 160, 0), "{program}");
        let report = nodes[0].engine.peek(&ADA).block().unwrap();
        let left: Vec<u64> = report.rules().map(|rule| rule.decision.remaining()).collect();
        assert_eq!(left, [100, 0], "a denial by one charges the other nothing");
    }
}

#[test]
fn an_edit_counts_on_all_nodes_when_it_is_acknowledged() {
    let server = Server::start(Program::Valkey9);
    let nodes = nodes(&server, 2, WINDOW);
    assert_eq!(nodes[0].allows(&ADA), Some(true));
    assert_eq!(nodes[1].allows(&ADA), Some(true));
    for max in [1, 3, 2, 4] {
        let policy = Policy::from_toml(&WINDOW.replace("500", &max.to_string())).unwrap();
        nodes[0].engine.edit("test", Edit::policy(policy)).block().unwrap();
        let report = nodes[1].engine.peek(&ADA).block().unwrap();
        assert_eq!(report.limit(), Some(max));
    }
    let banned = vec![Condition::new("user", ["ada"]).unwrap()];
    nodes[1].engine.edit("test", Edit::ban(Ban::new("default", banned))).block().unwrap();
    assert_eq!(nodes[0].allows(&ADA), Some(false));
}

#[test]
fn an_acknowledged_edit_counts_on_a_node_that_hears_of_it_late() {
    let server = Server::start(Program::Valkey9);
    let proxy = Proxy::start(server.address());
    let (slow, editor) = (Node::new(&proxy.url(), WINDOW), Node::new(&server.url(), WINDOW));
    assert_eq!((slow.allows(&ADA), editor.allows(&ADA)), (Some(true), Some(true)));
    // Each way longer than edits are ahead of their time, so what comes back is too old.
    proxy.set(Fault::Delay(Duration::from_millis(500)));
    assert_eq!(slow.allows(&ADA), Some(true));
    // What the server has sent back by now does not have it.
    thread::park_timeout(Duration::from_millis(650));
    let banned = vec![Condition::new("user", ["ada"]).unwrap()];
    editor.engine.edit("test", Edit::ban(Ban::new("default", banned))).block().unwrap();
    assert_eq!(slow.allows(&ADA), Some(false));
}

#[test]
fn a_slot_that_another_node_releases_is_found_within_100_ms_and_an_expired_one_is_free() {
    let server = Server::start(Program::Valkey9);
    let nodes = nodes(&server, 2, SLOTS);
    let request = Request::new("default", &[]);
    let held = nodes[0].engine.acquire(&request, Some(Duration::ZERO)).block().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let second = nodes[1].engine.acquire(&request, Some(Duration::from_secs(20)));
    drop(held);
    let lease = runtime.block_on(second).unwrap();
    assert!(lease.expires().is_some());
}

#[test]
fn no_attribute_can_be_read_on_the_server_and_states_expire() {
    let server = Server::start(Program::Redis7);
    let policy = "[[rule]]\nname = \"secret-rule\"\nkey = [\"user\"]\nbucket = { rate = \"10/s\", burst = 10 }\n\
                  reserve_for = \"5s\"\n";
    let node = Node::with(builder(&server.url()).namespace("shop"), policy);
    let request = Request::new("default", &[("user", "ada-lovelace")]);
    assert_eq!(node.allows(&request), Some(true));
    let reserved = node.engine.hold(&request).block().unwrap();
    assert!(reserved.hold().is_some());
    let names = server.command(&["KEYS", "*"]);
    assert!(names.array().len() >= 3, "a state, a reservation and the policy");
    for name in names.array() {
        let name = name.text();
        assert!(name.starts_with("shop:"), "{name}");
        let value = format!("{:?}", server.command(&["GET", &name]));
        assert!(!value.contains("lovelace") && !name.contains("lovelace"), "{name}: {value}");
        let ttl = server.command(&["TTL", &name]).integer();
        let is_forever = name == "shop:control";
        assert_eq!(ttl == -1, is_forever, "{name} has {ttl}");
        assert!(is_forever || ttl >= 55, "{name} has {ttl}");
    }
}

#[test]
fn one_round_trip_on_known_keys_and_two_at_first_sight() {
    let server = Server::start(Program::Valkey9);
    let node = Node::new(&server.url(), WINDOW);
    assert_eq!(node.allows(&ADA), Some(true));
    // How many reads and writes there were. The record of the policy is read by a script, as often as
    // time passes: that is no part of the decisions.
    let commands = || {
        let stats = server.command(&["INFO", "commandstats"]).text();
        let calls = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |it| it.split(',').next().unwrap().parse::<u64>().unwrap())
        };
        let scripts = calls("cmdstat_evalsha:calls=");
        (calls("cmdstat_get:calls=") - scripts, calls("cmdstat_set:calls="))
    };
    let before = commands();
    for _ in 0..10 {
        assert_eq!(node.allows(&ADA), Some(true));
    }
    assert_eq!(commands(), (before.0, before.1 + 10));
    assert_eq!(node.allows(&Request::new("default", &[("user", "bob")])), Some(true));
    assert_eq!(commands(), (before.0 + 1, before.1 + 11));
}

#[test]
fn requests_that_wait_for_one_key_share_commits() {
    let server = Server::start(Program::Valkey9);
    let node = Arc::new(Node::new(&server.url(), WINDOW));
    assert_eq!(node.allows(&ADA), Some(true));
    let before = node.redis.stats().round_trips;
    let checks: Vec<_> = (0..400).map(|_| node.engine.check(&ADA)).collect();
    for check in checks {
        assert!(check.block().unwrap().is_allowed());
    }
    let trips = node.redis.stats().round_trips - before;
    assert!(trips < 200, "{trips} round trips for 400 requests");
    assert_eq!(node.left(), 99);
}

#[test]
fn holds_count_on_all_nodes_and_can_be_settled_on_another() {
    let server = Server::start(Program::Valkey9);
    let nodes = nodes(&server, 2, WINDOW);
    let id = nodes[0].engine.hold(&ADA.cost(100)).block().unwrap().hold().unwrap();
    assert_eq!(nodes[1].left(), 400);
    nodes[1].engine.commit(id, Some(30)).block().unwrap();
    eventually("the first node sees it", || (nodes[0].left() == 470).then_some(()));
}

#[test]
fn a_file_that_was_replaced_does_not_come_back_with_a_node_that_starts() {
    let server = Server::start(Program::Valkey9);
    let limit = |node: &Node| {
        node.engine.synchronize().block().unwrap();
        node.engine.peek(&ADA).block().unwrap().limit().unwrap()
    };
    let first = Node::new(&server.url(), WINDOW);
    assert_eq!(limit(&first), 500);
    let newer = Node::new(&server.url(), &WINDOW.replace("500", "7"));
    assert_eq!(limit(&newer), 7, "a new file takes force");
    let restarted = Node::new(&server.url(), WINDOW);
    assert_eq!(limit(&restarted), 7, "the file that it replaced does not");
    let policy = Policy::from_toml(WINDOW).unwrap();
    restarted.engine.edit("reload", Edit::policy(policy)).block().unwrap();
    assert_eq!([&first, &newer, &restarted].map(limit), [500; 3], "a reload puts it there");
}

#[test]
fn the_policy_with_the_higher_revision_is_in_force() {
    let server = Server::start(Program::Valkey9);
    let policy = |revision: u64, max: u64| {
        format!("[server]\nrevision = {revision}\n{}", WINDOW.replace("500", &max.to_string()))
    };
    let limit = |node: &Node| {
        node.engine.synchronize().block().unwrap();
        node.engine.peek(&ADA).block().unwrap().limit().unwrap()
    };
    let second = Node::new(&server.url(), &policy(2, 20));
    assert_eq!(limit(&second), 20);
    let first = Node::new(&server.url(), &policy(1, 10));
    assert_eq!(limit(&first), 20);
    for older in [policy(1, 10), WINDOW.to_owned()] {
        let older = Policy::from_toml(&older).unwrap();
        let refused = first.engine.edit("reload", Edit::policy(older)).block();
        assert!(matches!(refused, Err(EditError::OlderRevision { in_force: 2 })), "{refused:?}");
    }
    let third = Node::new(&server.url(), &policy(3, 30));
    assert_eq!(limit(&third), 30);
    eventually("the others follow", || (limit(&first) == 30 && limit(&second) == 30).then_some(()));
}
