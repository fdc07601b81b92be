//! Local shares of limits while the server is gone.

use std::time::Duration;

use tidegate::Request;
use tidegate_redis_servers::{Appendfsync, Program, Server};

use crate::support::{ADA, Node, builder};

const POLICY: &str = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 42, per = \"1h\" }\n\
    on_error = { local = 0.25 }\n\
    [[rule]]\nname = \"all\"\nwindow = { max = 60, per = \"1h\" }\non_error = { local = 0.25 }\n";

const BOB: Request<'static> = Request::new("default", &[("user", "bob")]);

/// How many of 40 requests are allowed, all of them without the server.
fn admitted(node: &Node, request: &Request<'_>) -> usize {
    let check = |_| {
        let report = node.engine.check(request).block().unwrap();
        assert!(report.details().is_local(), "{report:?}");
        report.is_allowed()
    };
    (0..40).map(check).filter(|is_allowed| *is_allowed).count()
}

#[test]
fn without_the_server_each_node_admits_its_share_exactly_and_then_the_server_decides_again() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::builder(program).appendonly(Appendfsync::Always).start();
        let node = || Node::with(builder(&server.url()), POLICY);
        let nodes = [node(), node()];
        for node in &nodes {
            assert_eq!(node.allows(&ADA), Some(true), "{:?}", node.redis.failure());
        }
        server.kill();
        // The deadline of a decision that is on its way is long; no other waits for it.
        for node in &nodes {
            assert_eq!(admitted(node, &ADA), 10, "a quarter of 42");
            assert_eq!(admitted(node, &BOB), 5, "what is left of a quarter of 60");
        }
        let report = nodes[0].engine.check(&BOB).block().unwrap();
        assert_eq!(report.rule().map(|rule| rule.name()), Some("all"));
        server.restart();
        for node in &nodes {
            assert_eq!(node.left(), 40, "only what the server had charged");
        }
        assert_eq!(nodes[0].allows(&ADA), Some(true));
    }
}

#[test]
fn an_answer_that_is_lost_is_decided_by_the_local_share_too() {
    let server = Server::start(Program::Redis7);
    let quick = builder(&server.url()).deadline(Duration::from_millis(200));
    let node = Node::with(quick, POLICY);
    assert_eq!(node.allows(&ADA), Some(true), "{:?}", node.redis.failure());
    // It takes requests, and answers none.
    server.pause();
    assert_eq!(admitted(&node, &ADA), 10);
    server.resume();
    let left = node.left();
    assert!((30..=41).contains(&left), "{left}: what was lost may have been charged");
}
