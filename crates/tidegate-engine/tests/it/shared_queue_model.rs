//! The queue for slots over several engines against a model of it, step by step.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::store::SharedStore;
use tidegate::testing::{DelayedRecords, Dice};
use tidegate::{
    Lease, NotGranted, Request, StoreEngine, Timestamp, Waiting,
    clock::{Clock, ManualClock},
    hold::HoldId,
};

type Node = StoreEngine;
type Wait<'a> = Waiting<'a, Lease>;

const NODES: usize = 3;
const SLOTS: usize = 2;
const QUEUE: usize = 5;

const POLICY: &str = "[[rule]]\nname = \"slots\"\n\
    slots = { max = 2, queue = 5, expires = \"52w\", priority = \"rank\" }\n";

/// Requests of the ranks -1, 0 and 1.
const RANKED: [Request<'static>; 3] = [
    Request::new("default", &[("rank", "-1")]),
    Request::new("default", &[]),
    Request::new("default", &[("rank", "1")]),
];

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Granted,
    Full,
    TimedOut,
}

/// The ends of some waits, by number.
type Ends = BTreeMap<u64, End>;

/// One that waits, in the model.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    number: u64,
    node: usize,
    rank: usize,
    deadline: Option<Timestamp>,
}

/// One queue, in the order of arrival.
#[derive(Debug, Default)]
struct Model {
    queue: Vec<Waiter>,
    held: usize,
}

impl Model {
    fn arrive(&mut self, waiter: Waiter, may_wait: bool) -> Option<End> {
        let ahead = self.queue.iter().filter(|it| it.rank >= waiter.rank).count();
        if SLOTS - self.held > ahead {
            self.held += 1;
            return Some(End::Granted);
        }
        if !may_wait {
            return Some(End::TimedOut);
        }
        if self.queue.len() == QUEUE {
            return Some(End::Full);
        }
        self.queue.push(waiter);
        None
    }

    /// What happens by a time, where one engine may stand still.
    fn pass(&mut self, now: Timestamp, paused: Option<usize>) -> Ends {
        let mut ends = Ends::new();
        let mut order = self.queue.clone();
        order.sort_by_key(|waiter| std::cmp::Reverse(waiter.rank));
        let mut ahead = 0;
        for waiter in order {
            let is_late = waiter.deadline.is_some_and(|deadline| deadline <= now);
            let end = if paused == Some(waiter.node) {
                None
            } else if SLOTS - self.held > ahead {
                self.held += 1;
                Some(End::Granted)
            } else {
                is_late.then_some(End::TimedOut)
            };
            match end {
                Some(end) => {
                    self.queue.retain(|it| it.number != waiter.number);
                    ends.insert(waiter.number, end);
                }
                None => ahead += 1,
            }
        }
        ends
    }
}

/// The engines, and who waits at them.
struct Real<'a> {
    engines: &'a [Node],
    records: &'a DelayedRecords,
    clock: &'a ManualClock,
    waits: BTreeMap<u64, (usize, Wait<'a>)>,
    held: Vec<HoldId>,
}

impl Real<'_> {
    /// Lets everything happen that can happen now, but at an engine that stands still.
    fn settle(&mut self, paused: Option<usize>) -> Ends {
        let mut ends = Ends::new();
        let mut quiet_rounds = 0;
        loop {
            let was_idle = self.records.is_idle();
            let mut ended = Ends::new();
            for (number, (node, wait)) in &mut self.waits {
                if paused == Some(*node) {
                    continue;
                }
                let poll = Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()));
                let Poll::Ready(result) = poll else { continue };
                let end = match result {
                    Ok(lease) => {
                        self.held.push(lease.into_id());
                        End::Granted
                    }
                    Err(NotGranted::QueueFull) => End::Full,
                    Err(NotGranted::TimedOut) => End::TimedOut,
                    Err(error) => panic!("{error}"),
                };
                ended.insert(*number, end);
            }
            self.waits.retain(|number, _| !ended.contains_key(number));
            let is_quiet = was_idle && ended.is_empty() && self.records.is_idle();
            // Other threads go on with results that no caller waits for, if they get the time.
            quiet_rounds = if is_quiet { quiet_rounds + 1 } else { 0 };
            if quiet_rounds == QUIET_ROUNDS {
                return ends;
            }
            ends.append(&mut ended);
            thread::yield_now();
        }
    }

    fn pass(&mut self, time: Duration, paused: Option<usize>) -> Ends {
        self.clock.advance(time);
        for (node, engine) in self.engines.iter().enumerate() {
            if paused != Some(node) {
                engine.tick();
            }
        }
        self.settle(paused)
    }

    fn release(&mut self, dice: &mut Dice, model: &mut Model) {
        if self.held.is_empty() {
            return;
        }
        let id = self.held.swap_remove(dice.below(self.held.len() as u64) as usize);
        self.engines[dice.below(NODES as u64) as usize].release(id).block().unwrap();
        model.held -= 1;
    }
}

const STEP: Duration = Duration::from_millis(50);
const QUIET_ROUNDS: u32 = 32;

/// An engine stands still for three seconds, and its waiters join again at the end.
fn pause(real: &mut Real<'_>, model: &mut Model, dice: &mut Dice) {
    let node = dice.below(NODES as u64) as usize;
    if model.queue.iter().any(|waiter| waiter.deadline.is_some()) {
        return;
    }
    let paused = Some(node);
    if dice.once_in(2) {
        real.release(dice, model);
    }
    let ends = real.pass(STEP, paused);
    assert_eq!(ends, model.pass(real.clock.now(), paused), "its tickets count");
    let mut ends = Ends::new();
    for _ in 0..12 {
        ends.append(&mut real.pass(Duration::from_millis(250), paused));
    }
    let (lapsed, others) = model.queue.iter().partition(|waiter| waiter.node == node);
    model.queue = others;
    assert_eq!(ends, model.pass(real.clock.now(), None), "its tickets have lapsed");
    let lapsed: Vec<Waiter> = lapsed;
    model.queue.extend(lapsed);
}

/// One random operation, on the engines and on the model.
fn operate<'a>(
    real: &mut Real<'a>,
    model: &mut Model,
    dice: &mut Dice,
    number: u64,
) -> Result<(), TestFailure> {
    let now = real.clock.now();
    match dice.below(12) {
        kind @ 0..=5 => {
            let node = dice.below(NODES as u64) as usize;
            let rank = dice.below(3) as usize;
            let may_wait = kind != 5;
            let max_wait = match (may_wait, dice.below(4)) {
                (false, _) => Some(Duration::ZERO),
                (true, 0) => Some(STEP * (5 + dice.below(20) as u32)),
                (true, _) => None,
            };
            let deadline = max_wait.map(|wait| now.saturating_add(wait));
            let expected = model.arrive(Waiter { number, node, rank, deadline }, may_wait);
            let engines = real.engines;
            real.waits.insert(number, (node, engines[node].acquire(&RANKED[rank], max_wait)));
            let ends = real.settle(None);
            let expected: Ends = expected.map(|end| (number, end)).into_iter().collect();
            compare(&ends, &expected)?;
        }
        6..=8 => real.release(dice, model),
        9 => {
            let numbers: Vec<u64> = real.waits.keys().copied().collect();
            if !numbers.is_empty() {
                let dropped = dice.one_of(&numbers);
                drop(real.waits.remove(&dropped));
                model.queue.retain(|waiter| waiter.number != dropped);
            }
        }
        10 => {
            for _ in 0..dice.below(40) {
                let ends = real.pass(STEP, None);
                compare(&ends, &model.pass(real.clock.now(), None))?;
            }
        }
        _ => pause(real, model, dice),
    }
    let ends = real.pass(STEP, None);
    compare(&ends, &model.pass(real.clock.now(), None))
}

/// What the engines did, and what the model did.
type TestFailure = String;

fn compare(real: &Ends, model: &Ends) -> Result<(), TestFailure> {
    if real == model { Ok(()) } else { Err(format!("{real:?}, and not {model:?}")) }
}

#[test]
fn engines_serve_their_waiters_as_one_queue_would() {
    for seed in 0..10 {
        let records = Arc::new(DelayedRecords::new(seed));
        let clock = ManualClock::new(Timestamp::from_millis(1_000_000 + seed * 37));
        let engine = |_| {
            let store = SharedStore::new(Arc::clone(&records), b"a secret");
            let builder = StoreEngine::builder(Policy::from_toml(POLICY).unwrap());
            let engine = builder.store(store).clock(clock.clone()).build().unwrap();
            engine.synchronize().block().unwrap();
            engine
        };
        let engines: Vec<Node> = (0..NODES).map(engine).collect();
        let mut real = Real {
            engines: &engines,
            records: &records,
            clock: &clock,
            waits: BTreeMap::new(),
            held: Vec::new(),
        };
        let (mut model, mut dice) = (Model::default(), Dice::new(seed));
        for number in 0..80 {
            if let Err(failure) = operate(&mut real, &mut model, &mut dice, number) {
                panic!("seed {seed}, operation {number}: {failure}; {model:?}");
            }
            assert_eq!((real.waits.len(), real.held.len()), (model.queue.len(), model.held));
        }
    }
}
