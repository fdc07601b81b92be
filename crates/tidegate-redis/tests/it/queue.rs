//! One queue for slots, over all nodes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::{
    Lease, NotGranted, Request, Waiting,
    clock::{Clock, MonotonicClock},
};
use tidegate_redis_servers::{Program, Server, until};

use crate::support::Node;

const SLOTS: &str = "[[rule]]\nname = \"slots\"\n\
                     slots = { max = 1, queue = 10, expires = \"10m\", priority = \"rank\" }\n";

const ANY: Request<'static> = Request::new("default", &[]);
const RANKS: [Request<'static>; 3] = [
    Request::new("default", &[("rank", "0")]),
    Request::new("default", &[("rank", "1")]),
    Request::new("default", &[("rank", "2")]),
];

type Slot = Lease;

fn three(server: &Server, policy: &str) -> [Node; 3] {
    std::array::from_fn(|_| Node::new(&server.url(), policy))
}

fn take(node: &Node) -> Slot {
    node.engine.acquire(&ANY, Some(Duration::ZERO)).block().unwrap()
}

fn poll(wait: &mut Waiting<'_, Slot>) -> Poll<Result<Slot, NotGranted>> {
    Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()))
}

/// How long the record of the slots is.
fn record_bytes(server: &Server) -> i64 {
    let keys = server.command(&["KEYS", "*state:*"]);
    let [key] = keys.array() else { panic!("one state: {keys:?}") };
    server.command(&["STRLEN", &key.text()]).integer()
}

/// A waiter whose ticket is on the server.
fn enrolled<'n>(server: &Server, node: &'n Node, request: &Request<'n>) -> Waiting<'n, Slot> {
    let before = record_bytes(server);
    let mut wait = node.engine.acquire(request, None);
    until("its ticket is there", || {
        assert!(poll(&mut wait).is_pending());
        record_bytes(server) > before
    });
    wait
}

/// Polls all waiters until the first has its slot; none of the others may get one before it.
fn first_of(waits: &mut Vec<Waiting<'_, Slot>>) -> Slot {
    let mut slot = None;
    until("the first gets its slot", || {
        for (index, wait) in waits.iter_mut().enumerate().rev() {
            match (poll(wait), index) {
                (Poll::Ready(Ok(granted)), 0) => slot = Some(granted),
                (Poll::Ready(other), _) => panic!("waiter {index}: {other:?}"),
                (Poll::Pending, _) => {}
            }
        }
        slot.is_some()
    });
    drop(waits.remove(0));
    slot.unwrap()
}

#[test]
fn waiters_of_three_nodes_are_served_in_the_order_in_which_they_came() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let nodes = three(&server, SLOTS);
        let mut held = take(&nodes[0]);
        let order = [1, 0, 2, 2, 1, 0];
        let mut waits: Vec<_> =
            order.iter().map(|node| enrolled(&server, &nodes[*node], &ANY)).collect();
        while !waits.is_empty() {
            held.release().block().unwrap();
            held = first_of(&mut waits);
        }
    }
}

#[test]
fn higher_ranks_come_first_over_all_nodes() {
    let server = Server::start(Program::Valkey9);
    let nodes = three(&server, SLOTS);
    let mut held = take(&nodes[0]);
    let mut waits: Vec<_> =
        (0..3).map(|rank| enrolled(&server, &nodes[rank], &RANKS[rank])).collect();
    // The last to come is the first to be served.
    waits.reverse();
    while !waits.is_empty() {
        held.release().block().unwrap();
        held = first_of(&mut waits);
    }
}

#[test]
fn the_bound_of_the_queue_counts_the_waiters_of_all_nodes() {
    let server = Server::start(Program::Valkey9);
    let nodes = three(&server, &SLOTS.replace("queue = 10", "queue = 2"));
    let _held = take(&nodes[2]);
    let first = enrolled(&server, &nodes[0], &ANY);
    let _second = enrolled(&server, &nodes[1], &ANY);
    for node in &nodes {
        let full = node.engine.acquire(&ANY, None).block();
        assert!(matches!(full, Err(NotGranted::QueueFull)), "{full:?}");
        let late = node.engine.acquire(&ANY, Some(Duration::ZERO)).block();
        assert!(matches!(late, Err(NotGranted::TimedOut)), "{late:?}");
    }
    let full = record_bytes(&server);
    drop(first);
    until("its ticket is gone", || record_bytes(&server) < full);
    let _third = enrolled(&server, &nodes[2], &ANY);
}

#[test]
fn the_tickets_of_a_node_that_is_gone_lapse_and_the_others_go_on() {
    let server = Server::start(Program::Valkey9);
    let nodes = three(&server, SLOTS);
    let held = take(&nodes[0]);
    // As in a process that was killed: it neither renews its tickets nor takes them back.
    std::mem::forget(enrolled(&server, &nodes[1], &ANY));
    std::mem::forget(enrolled(&server, &nodes[1], &ANY));
    let began = MonotonicClock.now();
    let mut waits = vec![enrolled(&server, &nodes[2], &ANY)];
    held.release().block().unwrap();
    drop(first_of(&mut waits));
    let took = MonotonicClock.now().saturating_duration_since(began);
    assert!(took >= Duration::from_secs(2), "it overtook them, after {took:?}");
}

#[test]
fn a_freed_slot_reaches_another_node_within_100_ms() {
    let server = Server::start(Program::Valkey9);
    let nodes = three(&server, SLOTS);
    let mut times: Vec<Duration> = (0..9)
        .map(|round| {
            let held = take(&nodes[round % 3]);
            let before = record_bytes(&server);
            let wait = nodes[(round + 1) % 3].engine.acquire(&ANY, Some(Duration::from_secs(20)));
            std::thread::scope(|scope| {
                let got = scope.spawn(move || {
                    let slot = wait.block().unwrap();
                    (MonotonicClock.now(), slot)
                });
                until("its ticket is there", || record_bytes(&server) > before);
                held.release().block().unwrap();
                let released = MonotonicClock.now();
                let (at, slot) = got.join().unwrap();
                slot.release().block().unwrap();
                at.saturating_duration_since(released)
            })
        })
        .collect();
    times.sort();
    // A machine under load is late; half of the rounds are not.
    assert!(times[4] <= Duration::from_millis(100), "{times:?}");
    assert!(times[8] <= Duration::from_secs(2), "{times:?}");
}

#[test]
fn a_waiter_reads_while_it_waits_and_writes_once_a_second() {
    let server = Server::start(Program::Valkey9);
    let nodes = three(&server, SLOTS);
    let _held = take(&nodes[0]);
    let mut wait = enrolled(&server, &nodes[1], &ANY);
    let (before, began) = (nodes[1].redis.stats().round_trips, MonotonicClock.now());
    let _ = server.command(&["CONFIG", "RESETSTAT"]);
    until("four seconds have passed", || {
        assert!(poll(&mut wait).is_pending());
        MonotonicClock.now().saturating_duration_since(began) >= Duration::from_secs(4)
    });
    let trips = nodes[1].redis.stats().round_trips - before;
    assert!((4..=4 * 40).contains(&trips), "{trips} round trips");
    // A commit of one key is a `SET` on this server.
    let stats = server.command(&["INFO", "commandstats"]).text();
    let sets = calls_of(&stats, "set");
    assert!((3..=9).contains(&sets), "{sets} writes: {stats}");
}

fn calls_of(stats: &str, name: &str) -> u64 {
    let line = stats.lines().find_map(|it| it.strip_prefix(&format!("cmdstat_{name}:calls=")));
    line.map_or(0, |it| it.split(',').next().unwrap().parse().unwrap())
}
