//! Holds of engines that share a store, over every delay: at most as many live as the limit has room for.
//!
//! Each engine has a clock of its own, and its transactions take as long as the dice say. What clients
//! believe is compared with the limit: a lease or a reservation counts from its grant to its end by the
//! latest of all clocks. Nobody may believe in units that another client has got since.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::store::SharedStore;
use tidegate::testing::{Dice, SteppedRecords};
use tidegate::{
    Request, SettleError, StoreEngine, Timestamp,
    clock::{Clock, ManualClock},
    hold::HoldId,
};

type Node = StoreEngine;
type Pending<T> = Pin<Box<dyn Future<Output = T>>>;

const NODES: usize = 2;
const LIMIT: u64 = 10;
const HOLD: Duration = Duration::from_secs(10);

/// Ten units, or ten slots, that do not come back by themselves while a test runs.
const LIMITS: [&str; 6] = [
    "bucket = { rate = \"1/day\", burst = 10 }",
    "window = { max = 10, per = \"1d\" }",
    "sliding = { max = 10, per = \"1d\" }",
    "quota = { max = 10, per = \"round\" }",
    "quota = { max = 10, per = \"round\", carry = \"all\", debt = \"none\" }",
    "slots = { max = 10, queue = 0, expires = \"10s\" }",
];

/// A limit for all, and, in every second world, one for each user beside it: a hold has two states then,
/// and another engine touches only one of them.
fn policy(limit: &str, is_paired: bool) -> Policy {
    let length = if limit.starts_with("slots") { "" } else { "reserve_for = \"10s\"" };
    let rule = |head: &str| format!("[[rule]]\n{head}\n{limit}\n{length}\n");
    let second = if is_paired { rule("name = \"user\"\nkey = [\"user\"]") } else { String::new() };
    Policy::from_toml(&(rule("name = \"all\"") + &second)).unwrap()
}

/// What a client wants, and what it was told.
enum Call {
    /// To hold units; `Some`: until when it may.
    Hold {
        units: u64,
        name: Option<String>,
        reply: Pending<Option<(HoldId, Timestamp)>>,
    },
    Check {
        units: u64,
        reply: Pending<bool>,
    },
    Renew {
        id: HoldId,
        reply: Pending<Option<Timestamp>>,
    },
    /// To charge what is on hold; `Some`: what was charged.
    Commit {
        id: HoldId,
        reply: Pending<Option<u64>>,
    },
    /// To cancel or to void.
    Cancel {
        id: HoldId,
        reply: Pending<()>,
    },
    /// To refund a unit of what was committed.
    Refund {
        id: HoldId,
        reply: Pending<u64>,
    },
}

/// What a client believes to hold.
#[derive(Clone, Debug)]
struct Held {
    units: u64,
    until: Timestamp,
    /// One settlement or renewal at a time.
    is_busy: bool,
    name: Option<String>,
}

struct World {
    records: Arc<SteppedRecords>,
    nodes: Vec<Node>,
    clocks: Vec<ManualClock>,
    calls: Vec<Call>,
    held: BTreeMap<HoldId, Held>,
    /// Those that are settled or gone: a repeat that began before may still return them.
    ended: BTreeSet<HoldId>,
    charged: u64,
    /// What is charged to reservations, without refunds.
    committed: BTreeMap<HoldId, u64>,
    is_slots: bool,
    is_paired: bool,
    log: Vec<String>,
}

impl World {
    fn new(limit: &str) -> Self {
        Self::with(limit, false)
    }

    fn with(limit: &str, is_paired: bool) -> Self {
        let records = Arc::new(SteppedRecords::default());
        let start = Timestamp::from_secs(1_000_000);
        let clocks: Vec<ManualClock> = (0..NODES).map(|_| ManualClock::new(start)).collect();
        let engine = |clock: &ManualClock| {
            let store = SharedStore::new(Arc::clone(&records), b"a secret");
            let builder = StoreEngine::builder(policy(limit, is_paired));
            builder.store(store).clock(clock.clone()).build().unwrap()
        };
        let nodes: Vec<Node> = clocks.iter().map(engine).collect();
        let world = Self {
            records,
            nodes,
            clocks,
            calls: Vec::new(),
            held: BTreeMap::new(),
            ended: BTreeSet::new(),
            charged: 0,
            committed: BTreeMap::new(),
            is_slots: limit.starts_with("slots"),
            is_paired,
            log: Vec::new(),
        };
        for node in &world.nodes {
            let mut ready = Box::pin(node.synchronize().into_future());
            while poll(&mut ready).is_none() {
                world.records.step(0);
            }
        }
        world
    }

    /// The latest that any clock shows.
    fn latest(&self) -> Timestamp {
        self.clocks.iter().map(Clock::now).max().unwrap()
    }

    fn operate(&mut self, dice: &mut Dice) {
        match dice.below(10) {
            0 => self.begin(dice),
            1 => {
                let node = dice.below(NODES as u64) as usize;
                self.clocks[node].advance(HOLD / dice.one_of(&[1, 2, 5, 20, 100]));
                // Clocks of servers are set right; they never differ by much.
                let latest = self.latest();
                for clock in &self.clocks {
                    let behind = latest.saturating_duration_since(clock.now());
                    clock.advance(behind.saturating_sub(HOLD / 4));
                }
                self.log.push(format!("node {node}: {:?}", self.clocks[node].now()));
            }
            _ => {
                let open = self.records.open() as u64;
                if open > 0 {
                    self.records.step(dice.below(open) as usize);
                }
            }
        }
        self.hear();
        let (latest, held) = (self.latest(), self.held.values());
        let alive: u64 = held.filter(|it| it.until > latest).map(|it| it.units).sum();
        let (charged, log) = (self.charged, &self.log);
        assert!(alive + charged <= LIMIT, "{alive} + {charged}: {log:#?} {:?}", self.held);
    }

    /// Lets a client call.
    fn begin(&mut self, dice: &mut Dice) {
        let node = self.nodes[dice.below(NODES as u64) as usize].clone();
        let free: Vec<HoldId> =
            self.held.iter().filter(|(_, it)| !it.is_busy).map(|(id, _)| *id).collect();
        let user = dice.one_of(&USERS);
        let call = match dice.below(9) {
            8 => match self.committed.iter_mut().find(|(_, units)| **units > 0) {
                None => return,
                Some((id, units)) => {
                    // It may take effect before it is heard of.
                    (*units, self.charged) = (*units - 1, self.charged - 1);
                    Call::refund(node, *id)
                }
            },
            0 | 1 if self.is_slots => {
                let reply = async move {
                    let lease = node.acquire(&ANY, Some(Duration::ZERO)).await.ok()?;
                    let until = lease.expires()?;
                    Some((lease.into_id(), until))
                };
                Call::Hold { units: 1, name: None, reply: Box::pin(reply) }
            }
            kind @ (0 | 1) => {
                let names = self.held.values().filter_map(|it| Some((it.units, it.name.clone()?)));
                let names: Vec<(u64, String)> = names.collect();
                // A repeat, or a new one.
                let (units, name) = match kind {
                    0 if !names.is_empty() => dice.one_of(&names),
                    _ => (1 + dice.below(9), dice.bits().to_string()),
                };
                // A repeat is the same request.
                let user = USERS[name.len() % USERS.len()];
                let key = name.clone();
                let reply = async move {
                    let request = user.cost(units).idempotency_key(&key);
                    let report = node.hold(&request).await.ok()?;
                    Some((report.hold()?, report.details().expires()?))
                };
                Call::Hold { units, name: Some(name), reply: Box::pin(reply) }
            }
            2 if !self.is_slots => {
                let units = 1 + dice.below(3);
                let reply = async move {
                    node.check(&user.cost(units)).await.is_ok_and(|report| report.is_allowed())
                };
                Call::Check { units, reply: Box::pin(reply) }
            }
            _ if free.is_empty() => return,
            kind => {
                let id = dice.one_of(&free);
                if let Some(held) = self.held.get_mut(&id) {
                    held.is_busy = true;
                }
                match kind {
                    3 if !self.is_slots => Call::commit(node, id),
                    4 => Call::end(node, id, dice.once_in(2)),
                    _ => Call::renew(node, id),
                }
            }
        };
        self.log.push(format!("{:?} calls: {}", self.latest(), call.name()));
        self.calls.push(call);
    }

    /// When all has been heard of and every hold is over, each state has what was charged.
    fn check_books(&mut self) {
        while !self.calls.is_empty() {
            if self.records.open() > 0 {
                self.records.step(0);
            }
            self.hear();
        }
        self.clocks.iter().for_each(|clock| clock.advance(HOLD * 10));
        let node = self.nodes[0].clone();
        let used: Vec<Vec<u64>> = USERS
            .iter()
            .map(|user| {
                let mut usage = Box::pin(node.usage(user).into_future());
                loop {
                    if let Some(usage) = poll(&mut usage) {
                        return usage.unwrap().iter().map(|it| it.used + it.held).collect();
                    }
                    self.records.step(0);
                }
            })
            .collect();
        let (charged, log) = (if self.is_slots { 0 } else { self.charged }, &self.log);
        assert_eq!(used[0][0], charged, "{used:?} {log:#?}");
        if self.is_paired {
            assert_eq!(used[0][1] + used[1][1], charged, "{used:?} {log:#?}");
        }
    }

    fn end(&mut self, id: HoldId) {
        self.held.remove(&id);
        self.ended.insert(id);
    }

    /// Lets clients hear what was decided.
    fn hear(&mut self) {
        for mut call in std::mem::take(&mut self.calls) {
            match &mut call {
                Call::Hold { units, name, reply } => match poll(reply) {
                    None => self.calls.push(call),
                    Some(None) => {}
                    Some(Some((id, until))) => {
                        self.log.push(format!("{id:?} held until {until:?}"));
                        let held = Held { units: *units, until, is_busy: false, name: name.take() };
                        if !self.ended.contains(&id) {
                            self.held.entry(id).or_insert(held);
                        }
                    }
                },
                Call::Check { units, reply } => match poll(reply) {
                    None => self.calls.push(call),
                    Some(is_allowed) => {
                        self.log.push(format!("checked {units}: {is_allowed}"));
                        self.charged += if is_allowed { *units } else { 0 };
                    }
                },
                Call::Renew { id, reply } => match poll(reply) {
                    None => self.calls.push(call),
                    Some(until) => {
                        self.log.push(format!("renewed {id:?}: {until:?}"));
                        match (until, self.held.get_mut(id)) {
                            (Some(until), Some(held)) => {
                                (held.until, held.is_busy) = (until, false);
                            }
                            _ => self.end(*id),
                        }
                    }
                },
                Call::Commit { id, reply } => match poll(reply) {
                    None => self.calls.push(call),
                    Some(charged) => {
                        self.log.push(format!("committed {id:?}: {charged:?}"));
                        self.charged += charged.unwrap_or(0);
                        self.committed.insert(*id, charged.unwrap_or(0));
                        self.end(*id);
                    }
                },
                Call::Cancel { id, reply } => match poll(reply) {
                    None => self.calls.push(call),
                    Some(()) => {
                        self.log.push(format!("cancelled {id:?}"));
                        self.end(*id);
                    }
                },
                Call::Refund { id, reply } => match poll(reply) {
                    None => self.calls.push(call),
                    Some(refunded) => assert_eq!(refunded, 1, "{id:?}: {:#?}", self.log),
                },
            }
        }
    }
}

impl Call {
    fn commit(node: Node, id: HoldId) -> Self {
        let reply = async move { done(node.commit(id, None).await).map(|it| it.charged) };
        Self::Commit { id, reply: Box::pin(reply) }
    }

    fn end(node: Node, id: HoldId, is_voided: bool) -> Self {
        let reply = async move {
            let _ = done(match is_voided {
                true => node.void(id, None).await,
                false => node.cancel(id, None).await,
            });
        };
        Self::Cancel { id, reply: Box::pin(reply) }
    }

    fn renew(node: Node, id: HoldId) -> Self {
        let reply = async move { done(node.renew(id).await) };
        Self::Renew { id, reply: Box::pin(reply) }
    }

    fn refund(node: Node, id: HoldId) -> Self {
        let reply = async move { done(node.refund_hold(id, 1).await).unwrap() };
        Self::Refund { id, reply: Box::pin(reply) }
    }

    fn name(&self) -> String {
        match self {
            Self::Hold { units, name, .. } => format!("hold {units} as {name:?}"),
            Self::Check { units, .. } => format!("check {units}"),
            Self::Renew { id, .. } => format!("renew {id:?}"),
            Self::Commit { id, .. } => format!("commit {id:?}"),
            Self::Cancel { id, .. } => format!("cancel {id:?}"),
            Self::Refund { id, .. } => format!("refund {id:?}"),
        }
    }
}

/// Whose requests come. Those of a reservation and its repeats follow from the length of its name.
const USERS: [Request<'static>; 2] =
    [Request::new("default", &[("user", "ada")]), Request::new("default", &[("user", "bob")])];

const ANY: Request<'static> = Request::new("default", &[]);

/// The result of a settlement; `None` if the hold is gone.
fn done<T: Debug>(result: Result<T, SettleError>) -> Option<T> {
    match result {
        Ok(result) => Some(result),
        Err(SettleError::Gone) => None,
        Err(error) => panic!("{error:?}"),
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[test]
fn clients_never_hold_more_than_the_limit_whatever_is_delayed() {
    for limit in LIMITS {
        for seed in 0..SEEDS {
            let is_paired = seed % 2 == 1 && !limit.starts_with("slots");
            let (mut world, mut dice) = (World::with(limit, is_paired), Dice::new(seed));
            for _ in 0..400 {
                world.operate(&mut dice);
            }
            world.check_books();
        }
    }
}

/// Enough to find a renewal, a commit, a cancellation or a repeat that believes in what is over.
const SEEDS: u64 = 300;

/// One engine's check, which another one overtakes between its read and its write; ten seconds pass.
fn overtaken(world: &World, mut check: Pending<tidegate::Report>) -> tidegate::Report {
    assert!(poll(&mut check).is_none());
    let read = world.records.open() - 1;
    world.records.step(read);
    let other = world.nodes[1].clone();
    let mut other: Pending<bool> =
        Box::pin(async move { other.check(&ANY).await.unwrap().is_allowed() });
    while poll(&mut other).is_none() {
        let last = world.records.open() - 1;
        world.records.step(last);
    }
    world.clocks.iter().for_each(|clock| clock.advance(HOLD));
    loop {
        world.records.step(0);
        if let Some(report) = poll(&mut check) {
            return report;
        }
    }
}

#[test]
fn what_is_decided_again_reads_the_clock_again_unless_its_time_was_given() {
    for limit in ["window = { max = 9, per = \"1d\" }", "quota = { max = 9, per = \"minute\" }"] {
        let world = World::new(limit);
        let (node, start) = (world.nodes[0].clone(), world.latest());
        let check = Box::pin(async move { node.check(&ANY).await.unwrap() });
        let report = overtaken(&world, check);
        let decided_at = report.decision().unwrap().decided_at();
        assert_eq!(decided_at, start.saturating_add(HOLD), "{limit}");
        let (node, given) = (world.nodes[0].clone(), world.latest());
        let check = Box::pin(async move { node.at(given).check(&ANY).await.unwrap() });
        let decided_at = overtaken(&world, check).decision().unwrap().decided_at();
        assert_eq!(decided_at, given, "{limit}");
    }
}

#[test]
fn what_is_decided_again_in_another_period_is_planned_again() {
    let world = World::new("quota = { max = 1, per = \"minute\" }");
    let end = Timestamp::from_secs(1_000_020);
    world.clocks.iter().for_each(|clock| clock.set(Timestamp::from_secs(1_000_015)));
    let node = world.nodes[0].clone();
    let check = Box::pin(async move { node.check(&ANY).await.unwrap() });
    // The other engine takes the unit of the first minute, and this one that of the next.
    let report = overtaken(&world, check);
    assert!(world.latest() > end && report.is_allowed(), "{report:?}");
}
