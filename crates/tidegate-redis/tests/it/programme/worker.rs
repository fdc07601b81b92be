//! What a node of the programme does, until it is killed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::{Request, SettleError, clock::Clock, hold::Commit};

use super::{POLICY, USERS, machine_us};
use crate::support::{Node, builder};

/// The variable with the address of the server, and the one with the file for what was done.
pub(super) const URL: &str = "TIDEGATE_PROGRAMME_URL";
pub(super) const LOG: &str = "TIDEGATE_PROGRAMME_LOG";

/// A node, and what it writes down. A line is written at once, so it outlives the process.
struct Worker {
    node: Node,
    log: File,
    names: AtomicU64,
}

#[test]
#[ignore = "it is a node, which the programme starts"]
fn work_until_killed() {
    let (url, log) = (std::env::var(URL).unwrap(), std::env::var(LOG).unwrap());
    let node = Node::with(builder(&url).deadline(Duration::from_millis(200)), POLICY);
    let log = OpenOptions::new().append(true).create(true).open(log).unwrap();
    let worker = Worker { node, log, names: AtomicU64::new(0) };
    thread::scope(|scope| {
        for user in 0..USERS {
            let user = format!("u{user}");
            let worker = &worker;
            let (rate, sum, held) = (user.clone(), user.clone(), user);
            scope.spawn(move || worker.repeat(|| worker.charge(&rate)));
            scope.spawn(move || worker.repeat(|| worker.add(&sum)));
            scope.spawn(move || worker.repeat(|| worker.hold(&held)));
        }
        scope.spawn(|| worker.repeat(|| worker.lease()));
        scope.spawn(|| worker.repeat(|| worker.lease()));
        scope.spawn(|| worker.repeat(|| worker.add_once()));
    });
}

impl Worker {
    fn repeat(&self, mut work: impl FnMut()) {
        loop {
            work();
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    fn write(&self, line: &str) {
        (&self.log).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// A name that no other operation has, of no other process either.
    fn name(&self) -> String {
        format!("{}-{}", std::process::id(), self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// The server's time, at least and at most, in microseconds.
    fn earliest(&self) -> u64 {
        self.node.redis.clock().now().as_nanos() / 1_000
    }

    fn latest(&self) -> u64 {
        self.node.redis.clock().latest().as_nanos().div_ceil(1_000)
    }

    /// Charges a bucket: when it began, when it was over, how much was allowed.
    fn charge(&self, user: &str) {
        let attributes = [("user", user)];
        let begin = self.earliest();
        let report = self.node.engine.check(&Request::new("rate", &attributes).cost(2)).block();
        let is_allowed = report.is_ok_and(|it| it.is_allowed() && !it.is_outage());
        if is_allowed {
            self.write(&format!("rate {user} {begin} {} 2", self.latest()));
        }
    }

    /// Charges a quota, under an idempotency key, until the result is known.
    fn add(&self, user: &str) {
        let (attributes, name) = ([("user", user)], self.name());
        let request = Request::new("sum", &attributes).cost(3).idempotency_key(&name);
        self.write(&format!("begun {user} {name} 3"));
        loop {
            let report = self.node.engine.check(&request).block().unwrap();
            if !report.is_outage() {
                assert!(report.is_allowed());
                return self.write(&format!("ended {user} {name} 3"));
            }
        }
    }

    /// Charges a quota without an idempotency key: in an outage it stays unknown.
    fn add_once(&self) {
        let name = self.name();
        self.write(&format!("begun once {name} 1"));
        let report = self.node.engine.check(&Request::new("sum", &[("user", "once")])).block();
        if !report.unwrap().is_outage() {
            self.write(&format!("ended once {name} 1"));
        }
    }

    /// Reserves units of a quota, and charges some of them, or all, or none.
    fn hold(&self, user: &str) {
        let (attributes, name) = ([("user", user)], self.name());
        let request = Request::new("sum", &attributes).cost(5).idempotency_key(&name);
        self.write(&format!("begun {user} {name} 5"));
        let id = loop {
            let report = self.node.engine.hold(&request).block().unwrap();
            if !report.is_outage() {
                break report.hold().unwrap();
            }
        };
        let actual = self.names.load(Ordering::Relaxed) % 6;
        let units = loop {
            let settled = if actual == 5 {
                self.node.engine.cancel(id, None).block().map(|_| 0)
            } else {
                let commit = Commit::actual(actual);
                self.node.engine.commit(id, commit).block().map(|it| it.charged)
            };
            match settled {
                Ok(units) => break units,
                // It has expired during the outage: nothing is charged.
                Err(SettleError::Gone) => break 0,
                Err(_) => {}
            }
        };
        self.write(&format!("ended {user} {name} {units}"));
    }

    /// Has a slot for a moment: no earlier than this, and no later than that.
    fn lease(&self) {
        let Ok(lease) =
            self.node.engine.acquire(&Request::new("jobs", &[]), Some(Duration::ZERO)).block()
        else {
            return;
        };
        let Some(expires) = lease.expires() else { return };
        let (got, machine_got) = (self.latest(), machine_us());
        thread::park_timeout(Duration::from_millis(20));
        let machine_until = machine_us();
        let until = self.earliest().min(expires.as_nanos() / 1_000);
        let _ = lease.release().block();
        self.write(&format!("slot {got} {until} {machine_got} {machine_until}"));
    }
}
