//! Servers whose clocks are set.

use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::redis::ClockStep;
use tidegate_redis_servers::{Program, Server, until};

use crate::nodes::WINDOW;
use crate::support::{ADA, Node, builder};

const FIVE: Duration = Duration::from_secs(5);

/// Its record is kept for about a minute and a half.
const SHORT: &str =
    "[[rule]]\nname = \"w\"\nkey = [\"user\"]\nwindow = { max = 5, per = \"10s\" }\n";

/// The name of the one state on a server.
fn state(server: &Server) -> String {
    let names = server.command(&["KEYS", "tidegate:state:*"]);
    let [name] = names.array() else { panic!("{names:?}") };
    name.text()
}

#[test]
fn a_clock_set_back_refills_nothing_and_one_set_forward_counts_as_time() {
    let policy =
        "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nbucket = { rate = \"1/s\", burst = 5 }\n";
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::builder(program).steppable_clock().start();
        let node = Node::new(&server.url(), policy);
        (0..5).for_each(|_| assert_eq!(node.allows(&ADA), Some(true), "{program}"));
        let before = node.redis.clock().now();
        assert_eq!(node.redis.clock().last_step(), None);
        server.step_clock(-10);
        until("it is noticed", || node.redis.stats().clock_back == 1);
        assert!(matches!(node.redis.clock().last_step(), Some(ClockStep::Back(by)) if by > FIVE));
        assert!(node.left() <= 2, "nothing was refilled by it");
        assert!(node.redis.clock().now() >= before);
        // From before the first step on, 10 s have passed.
        server.step_clock(20);
        until("it is noticed", || node.redis.stats().clock_forward == 1);
        assert!(
            matches!(node.redis.clock().last_step(), Some(ClockStep::Forward(by)) if by > FIVE)
        );
        assert_eq!(node.left(), 5, "{program}");
    }
}

/// An hour ago a reservation of ten minutes is over for the system's clock, and not for the server's.
#[test]
fn a_settlement_is_the_first_thing_that_a_node_does_and_counts_by_the_clock_of_the_server() {
    let server = Server::builder(Program::Valkey9).steppable_clock().start();
    server.step_clock(-3_600);
    let first = Node::new(&server.url(), WINDOW);
    let id = first.engine.hold(&ADA.cost(7)).block().unwrap().hold().unwrap();
    let second = Node::new(&server.url(), WINDOW);
    assert_eq!(second.engine.commit(id, Some(3)).block().unwrap().charged, 3);
    assert_eq!(first.left(), 497);
}

/// As after a failover: the clock of the server is ahead of the one that the node knows. A record that expires
/// at a time would be gone when it is written, and nothing would be limited.
#[test]
fn a_server_whose_clock_is_ahead_deletes_no_record_that_a_node_writes() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::builder(program).steppable_clock().start();
        // The node reads the server's time every 150 s.
        let slow = builder(&server.url()).edit_lead(Duration::from_secs(600));
        let node = Node::with(slow, SHORT);
        assert_eq!(node.allows(&ADA), Some(true));
        // What was written before is gone with the time that has passed for the server.
        server.step_clock(3_600);
        let allowed = (0..8).filter(|_| node.allows(&ADA) == Some(true)).count();
        assert!((4..=5).contains(&allowed), "{program}: {allowed}");
        assert_eq!(node.allows(&ADA), Some(false), "{program}");
        let left_ms = server.command(&["PTTL", &state(&server)]).integer();
        assert!(left_ms > 60_000, "{program}: {left_ms}");
        assert_eq!(node.redis.stats().clock_forward, 0, "the node has not seen it");
    }
}

#[test]
fn a_record_outlives_the_time_that_nodes_stand_still_for() {
    let server = Server::builder(Program::Valkey9).steppable_clock().start();
    let node = Node::new(&server.url(), SHORT);
    assert_eq!(node.allows(&ADA), Some(true));
    let left_ms = || server.command(&["PTTL", &state(&server)]).integer();
    let before_ms = left_ms();
    assert!((60_000..120_000).contains(&before_ms), "{before_ms}");
    server.step_clock(-3_600);
    until("it is noticed", || node.redis.stats().clock_back == 1);
    assert_eq!(node.allows(&ADA), Some(true));
    let after_ms = left_ms();
    assert!(
        (3_600_000..3_720_000).contains(&after_ms),
        "it is judged by a clock that stands: {after_ms}"
    );
}
