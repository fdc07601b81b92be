//! Engines on a server, as in several processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::redis::{Redis, RedisBuilder};
use tidegate::{Request, StoreEngine};

/// An engine with its store, as in a process of its own.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) redis: Redis,
    pub(crate) engine: StoreEngine,
}

/// What the loads of some nodes admitted, and what they do not know.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    /// Decided by `on_error`: it may have been charged.
    pub(crate) outages: AtomicU64,
}

pub(crate) const ADA: Request<'static> = Request::new("default", &[("user", "ada")]);

/// A builder for tests: a machine under load has to be slow before anything fails.
pub(crate) fn builder(url: &str) -> RedisBuilder {
    Redis::builder(url)
        .secret("a secret")
        .deadline(Duration::from_secs(5))
        .edit_lead(Duration::from_millis(100))
}

impl Node {
    pub(crate) fn new(url: &str, policy: &str) -> Self {
        Self::with(builder(url), policy)
    }

    pub(crate) fn with(builder: RedisBuilder, policy: &str) -> Self {
        let redis = builder.build().unwrap();
        let policy = Policy::from_toml(policy).unwrap();
        let store = redis.store().bounds(policy.settings().bounds());
        let engine =
            StoreEngine::builder(policy).store(store).clock(redis.clock()).build().unwrap();
        Self { redis, engine }
    }

    /// Whether a request is allowed; `None` in an outage.
    pub(crate) fn allows(&self, request: &Request<'_>) -> Option<bool> {
        let report = self.engine.check(request).block().unwrap();
        (!report.is_outage()).then(|| report.is_allowed())
    }

    /// What remains for a user, once the store answers.
    pub(crate) fn left(&self) -> u64 {
        let left = || {
            let report = self.engine.peek(&ADA).block().unwrap();
            (!report.is_outage()).then(|| report.remaining().unwrap())
        };
        eventually("the store answers", left).unwrap()
    }

    pub(crate) fn count(&self, tally: &Tally) {
        self.count_of(&ADA, tally);
    }

    pub(crate) fn count_of(&self, request: &Request<'_>, tally: &Tally) {
        let which = match self.allows(request) {
            Some(true) => &tally.allowed,
            Some(false) => &tally.denied,
            None => &tally.outages,
        };
        which.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tally {
    pub(crate) fn get(&self) -> (u64, u64, u64) {
        let number = |it: &AtomicU64| it.load(Ordering::Relaxed);
        (number(&self.allowed), number(&self.denied), number(&self.outages))
    }
}

/// Calls from two threads of each node, so many each.
pub(crate) fn load(nodes: &[Node], calls: usize) -> Tally {
    let tally = Tally::default();
    thread::scope(|scope| {
        for node in nodes {
            for _ in 0..2 {
                scope.spawn(|| (0..calls).for_each(|_| node.count(&tally)));
            }
        }
    });
    tally
}

/// The first that there is, within some seconds.
pub(crate) fn eventually<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> Option<T> {
    let mut found = None;
    tidegate_redis_servers::until(what, || {
        found = get();
        found.is_some()
    });
    found
}
