//! A server that is killed and started again, over and over, while nodes charge a bucket: in no interval
//! is a unit too many admitted.
//!
//! `TIDEGATE_FAULTS=60 cargo test -p tidegate-redis --test it restarts` is the long form.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate_redis_servers::{Appendfsync, Program, Server, until};

use crate::programme::{Admitted, check_rate, number};
use crate::support::{ADA, Node, builder};

/// So fast that a unit is a fraction of a millisecond: an error of the clock would show.
const POLICY: &str = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\n\
    bucket = { rate = \"2000/s\", burst = 20 }\non_error = \"deny\"\n";

/// What all nodes have admitted.
#[derive(Default)]
struct Observer {
    admitted: Mutex<Vec<Admitted>>,
    count: AtomicUsize,
    is_over: AtomicBool,
}

impl Observer {
    /// Charges until it is over. A call is admitted no earlier than it begins, by the earliest time that
    /// it can be then, and no later than it ends, by the latest time.
    fn charge(&self, node: &Node) {
        while !self.is_over.load(Ordering::Relaxed) {
            let begin_us = node.redis.clock().now().as_nanos() / 1_000;
            if node.allows(&ADA) == Some(true) {
                let end_us = node.redis.clock().latest().as_nanos().div_ceil(1_000);
                self.admitted.lock().unwrap().push(Admitted { begin_us, end_us, units: 1 });
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn restarts_of_the_server_admit_no_unit_too_many() {
    let server = Server::builder(Program::Valkey9).appendonly(Appendfsync::Always).start();
    let node = || Node::with(builder(&server.url()).deadline(Duration::from_millis(200)), POLICY);
    let nodes = [node(), node()];
    // From here on all of them know the server's clock.
    for node in &nodes {
        until("it decides", || node.allows(&ADA).is_some());
    }
    let observer = Observer::default();
    thread::scope(|scope| {
        for node in nodes.iter().chain(&nodes) {
            scope.spawn(|| observer.charge(node));
        }
        for _ in 0..number("TIDEGATE_FAULTS", 6) {
            let before = observer.count.load(Ordering::Relaxed);
            until("they charge", || observer.count.load(Ordering::Relaxed) > before + 100);
            server.kill();
            server.restart();
        }
        observer.is_over.store(true, Ordering::Relaxed);
    });
    check_rate("ada", &observer.admitted.into_inner().unwrap(), (20, 2_000));
}
