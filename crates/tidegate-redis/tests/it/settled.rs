//! Commits over several nodes of a cluster that another process than their writer has settled: the same
//! records under the same stamps, each with an expiry of its own. What the writer is answered next has
//! to be there.

use std::time::Duration;

use tidegate::{Request, WaitError};
use tidegate_redis_servers::{Cluster, Program};

use crate::abandoned::{get, put};
use crate::spread::{LIMITS, RED, charged, kinds, spread, until_settled};
use crate::support::Node;

const SLOT: &str = "[[rule]]\nname = \"slot\"\nslots = { max = 1, expires = \"10m\" }\n";

const ANY: Request<'static> = Request::new("default", &[]);

/// Two nodes whose records are in the same namespace.
fn two(cluster: &Cluster, namespace: &str, policy: &str) -> [Node; 2] {
    [0, 1].map(|_| Node::with(spread(cluster, namespace), policy))
}

/// Gives the records of a kind the expiry that another process would have given them, a little later.
fn settle_later(cluster: &Cluster, namespace: &str, kind: &str) {
    until_settled(cluster, namespace);
    let prefix = format!("{namespace}:{kind}:");
    let names: Vec<String> = kinds(cluster, namespace).into_iter().map(|(name, _)| name).collect();
    let mut count = 0;
    for name in names.iter().filter(|name| name.starts_with(&prefix)) {
        let mut value = get(cluster, name).value;
        let expiry = value[12..].first_chunk_mut::<8>().unwrap();
        *expiry = (u64::from_le_bytes(*expiry) + 7).to_le_bytes();
        put(cluster, name, &value);
        count += 1;
    }
    assert!(count > 0, "{names:?}");
}

#[test]
fn a_slot_that_was_granted_is_not_granted_again() {
    for (program, namespace) in [(Program::Valkey9, "v"), (Program::Redis7, "r")] {
        let cluster = Cluster::start(program);
        let [node, other] = two(&cluster, namespace, SLOT);
        node.engine.acquire(&ANY, None).block().unwrap().release().block().unwrap();
        settle_later(&cluster, namespace, "state");
        let lease = node.engine.acquire(&ANY, Some(Duration::ZERO)).block().unwrap();
        let second = other.engine.acquire(&ANY, Some(Duration::ZERO)).block();
        assert!(matches!(second, Err(WaitError::TimedOut)), "{program}: {second:?}");
        // It is found by its id, so it was there all the time.
        lease.release().block().unwrap();
        let _free = other.engine.acquire(&ANY, Some(Duration::ZERO)).block().unwrap();
    }
}

#[test]
fn a_charge_that_was_acknowledged_counts() {
    let cluster = Cluster::start(Program::Valkey9);
    let [node, other] = two(&cluster, "charge", LIMITS);
    for units in 1..=3 {
        assert_eq!(node.allows(&RED), Some(true));
        assert_eq!(charged(&other), units);
        settle_later(&cluster, "charge", "state");
    }
}

#[test]
fn a_request_under_an_idempotency_key_is_charged_once() {
    let cluster = Cluster::start(Program::Valkey9);
    let [node, other] = two(&cluster, "name", LIMITS);
    let request = RED.idempotency_key("once");
    let reserve = |node: &Node| node.engine.reserve(&request).block().unwrap().hold().unwrap();
    // Cancelled, the key is free again: its record says that there is none.
    node.engine.cancel(reserve(&node), None).block().unwrap();
    settle_later(&cluster, "name", "name");
    let first = reserve(&node);
    assert_eq!(reserve(&other), first, "the same request gets the same reservation");
    assert_eq!(charged(&other), 1);
}
