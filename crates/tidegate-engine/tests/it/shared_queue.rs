//! The queue for slots, where several engines share it.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::store::{
    Listing, RecordKey, RecordStore, Records, SharedStore, Step, Transaction, Write,
};
use tidegate::testing::{DelayedRecords, RecordFaults};
use tidegate::{
    Edit, Lease, NotGranted, Outage, Request, StoreEngine, Timestamp, Waiting,
    clock::{ManualClock, SystemClock},
};

type Node = StoreEngine;
type Slot = Lease;

/// Records in a map: each transaction is complete when it has been submitted.
#[derive(Debug, Default)]
struct MapRecords(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    records: HashMap<RecordKey, Arc<[u8]>>,
    /// What was written since this was last taken.
    writes: Vec<Write>,
    /// Whether the server cannot be reached.
    is_away: bool,
    /// Whether the answer to the next write is lost.
    loses_answer: bool,
}

impl MapRecords {
    fn set_away(&self, is_away: bool) {
        self.0.lock().unwrap().is_away = is_away;
    }

    fn lose_next_answer(&self) {
        self.0.lock().unwrap().loses_answer = true;
    }

    /// The writes of states since the last call.
    fn writes(&self) -> Vec<Write> {
        let mut writes = std::mem::take(&mut self.0.lock().unwrap().writes);
        writes.retain(|write| write.key.is_state());
        writes
    }
}

impl RecordStore for MapRecords {
    fn run(&self, mut transaction: Transaction) {
        let mut map = self.0.lock().unwrap();
        if map.is_away {
            drop(map);
            return transaction.fail(Outage::Unavailable);
        }
        let mut records = Records::default();
        let mut keys = transaction.first_reads().to_vec();
        let writes = loop {
            for key in keys {
                records.insert(key, map.records.get(&key).cloned());
            }
            match transaction.step(&records) {
                Step::Read(more) => keys = more,
                Step::Write(writes) => break writes,
                Step::Done => break Vec::new(),
            }
        };
        let is_lost = !writes.is_empty() && std::mem::take(&mut map.loses_answer);
        for write in writes {
            map.writes.push(write.clone());
            match write.value {
                Some(value) => map.records.insert(write.key, value),
                None => map.records.remove(&write.key),
            };
        }
        drop(map);
        if is_lost { transaction.fail(Outage::Unknown) } else { transaction.complete() }
    }

    fn states(&self, _: u64) -> Listing {
        Box::pin(async { Ok((Vec::new(), 0)) })
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().records.len()
    }
}

/// Engines as in several processes, on a clock that stands still.
struct Nodes {
    engines: Vec<Node>,
    records: Arc<MapRecords>,
    clock: ManualClock,
}

impl Nodes {
    fn new(count: usize, policy: &str) -> Self {
        let records = Arc::new(MapRecords::default());
        let clock = ManualClock::new(Timestamp::from_secs(1_000));
        let engine = |_| {
            let store = SharedStore::new(Arc::clone(&records), b"a secret");
            let builder = StoreEngine::builder(Policy::from_toml(policy).unwrap());
            let engine = builder.store(store).clock(clock.clone()).build().unwrap();
            engine.synchronize().block().unwrap();
            engine
        };
        Self { engines: (0..count).map(engine).collect(), records, clock }
    }

    fn take(&self, node: usize) -> Slot {
        self.engines[node].acquire(&ANY, Some(Duration::ZERO)).block().unwrap()
    }

    fn wait(&self, node: usize) -> Waiting<'_, Slot> {
        self.engines[node].acquire(&ANY, None)
    }

    fn wait_ranked(&self, node: usize, rank: &'static Request<'static>) -> Waiting<'_, Slot> {
        self.engines[node].acquire(rank, None)
    }

    /// Lets time pass on these engines, in steps of 50 ms.
    fn pass(&self, ms: u64, nodes: &[usize], mut polls: Vec<&mut Waiting<'_, Slot>>) {
        for _ in 0..ms / 50 {
            self.clock.advance(Duration::from_millis(50));
            nodes.iter().for_each(|node| self.engines[*node].tick());
            polls.iter_mut().for_each(|wait| assert!(poll(wait).is_pending()));
        }
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The slot that a waiter has got.
#[track_caller]
fn granted(wait: &mut Waiting<'_, Slot>) -> Slot {
    match poll(wait) {
        Poll::Ready(Ok(slot)) => slot,
        other => panic!("it has no slot: {other:?}"),
    }
}

const ANY: Request<'static> = Request::new("default", &[]);
const HIGH: Request<'static> = Request::new("default", &[("rank", "5")]);
const LOW: Request<'static> = Request::new("default", &[("rank", "-5")]);

const SLOTS: &str = "[[rule]]\nname = \"slots\"\n\
                     slots = { max = 1, queue = 10, expires = \"1h\", priority = \"rank\" }\n";

#[test]
fn waiters_of_all_engines_are_served_in_the_order_in_which_they_came() {
    let nodes = Nodes::new(3, SLOTS);
    let mut held = nodes.take(0);
    let order = [2, 0, 1, 1, 2, 0];
    let mut waits: Vec<Waiting<'_, Slot>> = order.iter().map(|node| nodes.wait(*node)).collect();
    waits.iter_mut().for_each(|wait| assert!(poll(wait).is_pending()));
    while !waits.is_empty() {
        held.release().block().unwrap();
        nodes.clock.advance(Duration::from_millis(50));
        nodes.engines.iter().for_each(StoreEngine::tick);
        // Those that came later attempt before the first does.
        waits[1..].iter_mut().rev().for_each(|wait| assert!(poll(wait).is_pending()));
        held = granted(&mut waits[0]);
        drop(waits.remove(0));
    }
}

#[test]
fn higher_ranks_come_first_on_whichever_engine() {
    let nodes = Nodes::new(3, SLOTS);
    let held = nodes.take(0);
    let mut low = nodes.wait_ranked(0, &LOW);
    let mut middle = nodes.wait(1);
    let mut high = nodes.wait_ranked(2, &HIGH);
    nodes.pass(50, &[0, 1, 2], vec![&mut low, &mut middle, &mut high]);
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines.iter().for_each(StoreEngine::tick);
    assert!(poll(&mut low).is_pending() && poll(&mut middle).is_pending());
    let held = granted(&mut high);
    nodes.pass(50, &[0, 1], vec![&mut low, &mut middle]);
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines.iter().for_each(StoreEngine::tick);
    assert!(poll(&mut low).is_pending());
    drop(granted(&mut middle));
}

#[test]
fn the_bound_of_the_queue_counts_the_waiters_of_all_engines() {
    let nodes = Nodes::new(3, &SLOTS.replace("queue = 10", "queue = 2"));
    let _held = nodes.take(0);
    let (mut first, mut second) = (nodes.wait(0), nodes.wait(1));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    for node in 0..3 {
        let full = poll(&mut nodes.wait(node));
        assert!(matches!(full, Poll::Ready(Err(NotGranted::QueueFull))), "{full:?}");
    }
    drop(first);
    let mut third = nodes.wait(2);
    assert!(poll(&mut third).is_pending(), "there is room again");
}

#[test]
fn a_request_that_does_not_wait_does_not_overtake() {
    let nodes = Nodes::new(2, SLOTS);
    let held = nodes.take(0);
    let mut wait = nodes.wait(0);
    assert!(poll(&mut wait).is_pending());
    // Released on the other engine, so the waiter does not know yet.
    let id = held.into_id();
    nodes.engines[1].release(id).block().unwrap();
    let denied = nodes.engines[1].acquire(&ANY, Some(Duration::ZERO)).block();
    assert!(matches!(denied, Err(NotGranted::TimedOut)), "{denied:?}");
    assert_eq!(nodes.engines[1].peek(&ANY).block().unwrap().remaining(), Some(0));
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[0].tick();
    drop(granted(&mut wait));
}

#[test]
fn each_free_slot_is_for_one_waiter_whichever_attempts_first() {
    let nodes = Nodes::new(3, &SLOTS.replace("max = 1", "max = 3"));
    let held = [nodes.take(0), nodes.take(0), nodes.take(0)];
    let mut waits: Vec<_> = (0..3).map(|node| nodes.wait(node)).collect();
    waits.iter_mut().for_each(|wait| assert!(poll(wait).is_pending()));
    let [first, second, third] = held.map(Lease::into_id);
    for id in [first, second] {
        nodes.engines[0].release(id).block().unwrap();
    }
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines.iter().for_each(StoreEngine::tick);
    assert!(poll(&mut waits[2]).is_pending(), "two come before it");
    let _second = granted(&mut waits[1]);
    let _first = granted(&mut waits[0]);
    nodes.engines[0].release(third).block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[2].tick();
    let _third = granted(&mut waits[2]);
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue_at_once() {
    let nodes = Nodes::new(3, SLOTS);
    let held = nodes.take(0);
    let mut dropped = nodes.wait(1);
    let mut late = nodes.engines[1].acquire(&ANY, Some(Duration::from_millis(100)));
    let mut wait = nodes.wait(2);
    assert!(poll(&mut dropped).is_pending() && poll(&mut late).is_pending());
    nodes.pass(50, &[1, 2], vec![&mut dropped, &mut late, &mut wait]);
    drop(dropped);
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[1].tick();
    assert!(matches!(poll(&mut late), Poll::Ready(Err(NotGranted::TimedOut))));
    let mut closed = nodes.wait(0);
    assert!(poll(&mut closed).is_pending());
    nodes.engines[0].close();
    assert!(matches!(poll(&mut closed), Poll::Ready(Err(NotGranted::Closed))));
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[2].tick();
    let held = granted(&mut wait);
    held.release().block().unwrap();
    assert!(nodes.engines[1].acquire(&ANY, Some(Duration::ZERO)).block().is_ok(), "none is left");
}

#[test]
fn the_tickets_of_an_engine_that_was_killed_lapse_after_three_seconds() {
    let nodes = Nodes::new(2, SLOTS);
    let held = nodes.take(1);
    std::mem::forget((nodes.wait(0), nodes.wait(0)));
    let mut wait = nodes.wait(1);
    held.release().block().unwrap();
    nodes.pass(2_950, &[1], vec![&mut wait]);
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[1].tick();
    drop(granted(&mut wait));
}

#[test]
fn a_waiter_of_an_engine_that_stood_still_joins_again_at_the_end_and_takes_no_slot_twice() {
    let nodes = Nodes::new(2, SLOTS);
    let held = nodes.take(1);
    let mut paused = nodes.wait(0);
    let mut wait = nodes.wait(1);
    assert!(poll(&mut paused).is_pending());
    nodes.pass(3_000, &[1], vec![&mut wait]);
    // It is back, and finds that its ticket has lapsed.
    nodes.pass(50, &[0, 1], vec![&mut paused, &mut wait]);
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines.iter().for_each(StoreEngine::tick);
    assert!(poll(&mut paused).is_pending());
    let held = granted(&mut wait);
    nodes.pass(500, &[0, 1], vec![&mut paused]);
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[0].tick();
    drop(granted(&mut paused));
}

#[test]
fn waiters_that_attempt_keep_their_tickets_for_as_long_as_they_wait() {
    let nodes = Nodes::new(2, SLOTS);
    let held = nodes.take(0);
    let (mut first, mut second, mut third) = (nodes.wait(0), nodes.wait(1), nodes.wait(1));
    nodes.pass(20_000, &[0, 1], vec![&mut first, &mut second, &mut third]);
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines.iter().for_each(StoreEngine::tick);
    assert!(poll(&mut third).is_pending() && poll(&mut second).is_pending());
    drop(granted(&mut first));
}

#[test]
fn a_ticket_is_written_once_a_second_and_other_attempts_write_nothing() {
    let nodes = Nodes::new(1, SLOTS);
    let _held = nodes.take(0);
    nodes.records.writes();
    let mut wait = nodes.wait(0);
    assert!(poll(&mut wait).is_pending());
    assert_eq!(nodes.records.writes().len(), 1, "its ticket");
    nodes.pass(10_000, &[0], vec![&mut wait]);
    let writes = nodes.records.writes().len();
    assert!((10..=20).contains(&writes), "{writes} writes in ten seconds");
}

#[test]
fn a_record_with_tickets_is_kept_until_they_lapse() {
    let nodes = Nodes::new(1, &SLOTS.replace("1h", "1s"));
    let _held = nodes.take(0);
    nodes.records.writes();
    let mut wait = nodes.wait(0);
    assert!(poll(&mut wait).is_pending());
    let kept_for = nodes.records.writes()[0].keep_for;
    assert!(kept_for.is_some_and(|it| it >= Duration::from_secs(3)), "{kept_for:?}");
}

#[test]
fn nothing_is_charged_while_a_request_waits() {
    let policy = format!(
        "{SLOTS}[[rule]]\nname = \"all\"\nwindow = {{ max = 5, per = \"1h\" }}\n\
         charge_refused = true\n"
    );
    let nodes = Nodes::new(2, &policy);
    let held = nodes.take(0);
    let mut wait = nodes.wait(1);
    nodes.pass(5_000, &[0, 1], vec![&mut wait]);
    let left = || {
        let report = nodes.engines[0].peek(&ANY).block().unwrap();
        let of_all = report.rules().find(|rule| rule.rule.to_string().contains("all"));
        of_all.unwrap().decision.remaining()
    };
    assert_eq!(left(), 4, "only what the first was charged");
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[1].tick();
    drop(granted(&mut wait));
    assert_eq!(left(), 3);
}

#[test]
fn a_waiter_outlasts_an_outage_and_a_new_one_gets_an_error() {
    let nodes = Nodes::new(2, SLOTS);
    let held = nodes.take(0);
    let (mut first, mut second) = (nodes.wait(0), nodes.wait(1));
    nodes.pass(100, &[0, 1], vec![&mut first, &mut second]);
    nodes.records.set_away(true);
    nodes.pass(2_000, &[0, 1], vec![&mut first, &mut second]);
    let refused = poll(&mut nodes.wait(0));
    assert!(matches!(refused, Poll::Ready(Err(_))), "{refused:?}");
    nodes.records.set_away(false);
    nodes.pass(100, &[0, 1], vec![&mut first, &mut second]);
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines.iter().for_each(StoreEngine::tick);
    let both = [poll(&mut first), poll(&mut second)];
    assert_eq!(both.iter().filter(|it| it.is_ready()).count(), 1, "{both:?}");
}

#[test]
fn a_slot_whose_grant_was_not_answered_is_found_by_the_next_attempt() {
    let nodes = Nodes::new(2, SLOTS);
    let held = nodes.take(1);
    let mut wait = nodes.wait(0);
    assert!(poll(&mut wait).is_pending());
    held.release().block().unwrap();
    nodes.records.lose_next_answer();
    nodes.pass(50, &[0], vec![&mut wait]);
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[0].tick();
    let slot = granted(&mut wait);
    let denied = nodes.engines[1].acquire(&ANY, Some(Duration::ZERO)).block();
    assert!(matches!(denied, Err(NotGranted::TimedOut)), "it is the one slot: {denied:?}");
    slot.release().block().unwrap();
    drop(nodes.take(1));
}

#[test]
fn a_slot_whose_grant_was_not_answered_is_released_if_the_waiter_gives_up() {
    let nodes = Nodes::new(2, SLOTS);
    // At its first attempt, which fails.
    nodes.records.lose_next_answer();
    let failed = nodes.engines[0].acquire(&ANY, None).block();
    assert!(failed.is_err(), "{failed:?}");
    let held = nodes.take(1);
    // Later, when it is dropped.
    let mut wait = nodes.wait(0);
    assert!(poll(&mut wait).is_pending());
    held.release().block().unwrap();
    nodes.records.lose_next_answer();
    nodes.pass(50, &[0], vec![&mut wait]);
    drop(wait);
    drop(nodes.take(1));
}

#[test]
fn a_waiter_that_is_banned_meanwhile_leaves_the_queue() {
    let nodes = Nodes::new(2, SLOTS);
    let held = nodes.take(0);
    let mut banned = nodes.wait_ranked(0, &HIGH);
    let mut wait = nodes.wait(1);
    nodes.pass(100, &[0, 1], vec![&mut banned, &mut wait]);
    let condition = tidegate::policy::Condition::new("rank", ["5"]).unwrap();
    let ban = tidegate::edit::Ban::new("default", vec![condition]);
    nodes.engines[1].edit("test", Edit::ban(ban)).block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines.iter().for_each(StoreEngine::tick);
    assert!(matches!(poll(&mut banned), Poll::Ready(Err(NotGranted::Denied(_)))));
    held.release().block().unwrap();
    nodes.clock.advance(Duration::from_millis(50));
    nodes.engines[1].tick();
    drop(granted(&mut wait));
}

#[test]
fn lost_answers_grant_no_slot_twice_and_leave_none_behind() {
    let mut faults = RecordFaults::default();
    faults.lost_answers = 150;
    let records = Arc::new(DelayedRecords::with_faults(7, faults));
    let engine = |_| {
        let store = SharedStore::new(Arc::clone(&records), b"a secret");
        let builder = StoreEngine::builder(Policy::from_toml(SLOTS).unwrap()).store(store);
        builder.clock(SystemClock::new()).build().unwrap()
    };
    let nodes: Vec<_> = (0..2).map(engine).collect();
    let (in_flight, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    let serve = |node: &StoreEngine| {
        let mut served = 0;
        while served < 15 {
            let Ok(slot) = node.acquire(&ANY, Some(Duration::from_secs(60))).block() else {
                lost.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            assert_eq!(in_flight.fetch_add(1, Ordering::SeqCst), 0, "granted twice");
            served += 1;
            in_flight.fetch_sub(1, Ordering::SeqCst);
            // It is released, whether or not the answer comes.
            let _ = slot.release().block();
        }
    };
    std::thread::scope(|scope| {
        for node in nodes.iter().flat_map(|node| [node; 3]) {
            scope.spawn(|| serve(node));
        }
    });
    assert!(lost.into_inner() > 0, "first attempts whose answers are lost fail");
    // No lease and no ticket of a waiter that has failed is left.
    let is_free = || nodes[0].acquire(&ANY, Some(Duration::ZERO)).block().is_ok();
    assert!((0..1_000).any(|_| is_free()), "a slot was left behind");
}
