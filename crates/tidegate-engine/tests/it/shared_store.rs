//! Engines over records that answer later.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tidegate::policy::{Condition, Policy, RuleId};
use tidegate::store::{Listing, RecordStore, Records, SharedStore, Step, Transaction};
use tidegate::testing::{self, DelayedRecords, RecordFaults};
use tidegate::{
    Answer, CheckError, Edit, Lease, Outage, Request, StoreEngine, Timestamp,
    clock::{ManualClock, SystemClock},
    edit::{Ban, EditError, Overlay},
};

static SEED: AtomicU64 = AtomicU64::new(1);

fn seed() -> u64 {
    SEED.fetch_add(1, Ordering::Relaxed)
}

fn make() -> SharedStore {
    SharedStore::new(Arc::new(DelayedRecords::new(seed())), b"a secret")
}

#[test]
fn a_store_that_answers_later_and_out_of_order_conforms() {
    testing::conformance(make);
}

#[test]
fn a_store_that_answers_later_passes_the_vectors_of_the_core() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-core/vectors");
    for name in ["bucket", "window", "sliding", "cooldown", "quota"] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        assert!(testing::vectors(make, &text) > 0, "{name}");
    }
}

#[test]
fn an_edit_of_another_engine_that_a_program_cannot_serve_is_reported_to_it() {
    let rule = "[[rule]]\nname = \"r\"\nwindow = { max = 9, per = \"1h\" }\n";
    let nodes = Nodes::new(2, &Arc::new(DelayedRecords::new(seed())), rule);
    let [first, second] = &nodes.engines[..] else { panic!("there are two") };
    second.synchronize().block().unwrap();
    let imposed = Arc::new(Mutex::new(Vec::<String>::new()));
    second.require(
        &imposed,
        |_, rules| rules.iter().filter(|it| it.name() == "odd").map(|_| "odd".to_owned()).collect(),
        |imposed, reasons| imposed.lock().unwrap().extend_from_slice(reasons),
    );
    let odd = Policy::from_toml(&rule.replace("\"r\"", "\"odd\"")).unwrap();
    assert!(matches!(
        second.edit("own", Edit::policy(odd.clone())).block(),
        Err(EditError::Unfit { .. })
    ));
    assert!(imposed.lock().unwrap().is_empty(), "its own edits are rejected");
    first.edit("other", Edit::policy(odd.clone())).block().unwrap();
    second.synchronize().block().unwrap();
    assert_eq!((&**imposed.lock().unwrap(), &*second.policy()), (&["odd".to_owned()][..], &odd));
}

/// Engines as in several processes, on a clock that stands still.
struct Nodes {
    engines: Vec<StoreEngine>,
    clock: ManualClock,
}

impl Nodes {
    fn new(count: usize, records: &Arc<impl RecordStore>, policy: &str) -> Self {
        let clock = ManualClock::new(Timestamp::from_secs(1_000));
        let engine = |_| {
            let store = SharedStore::new(Arc::clone(records), b"a secret");
            let builder = StoreEngine::builder(Policy::from_toml(policy).unwrap());
            builder.store(store).clock(clock.clone()).build().unwrap()
        };
        Self { engines: (0..count).map(engine).collect(), clock }
    }

    fn two(policy: &str) -> Self {
        Self::new(2, &Arc::new(DelayedRecords::new(seed())), policy)
    }

    /// What remains for a user.
    fn left(&self, node: usize, user: &str) -> u64 {
        let attributes = [("user", user)];
        let request = Request::new("default", &attributes).cost(0);
        self.engines[node].peek(&request).block().unwrap().remaining().unwrap()
    }

    fn until_left(&self, units: u64) {
        until(|| self.left(0, "ada") == units);
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    assert!((0..1_000_000).any(|_| is_so()), "it does not come to that");
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

const ADA: Request<'static> = Request::new("default", &[("user", "ada")]);

const WINDOW: &str =
    "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 500, per = \"1h\" }";

const SLOTS: &str = "[[rule]]\nname = \"slots\"\nslots = { max = 1, queue = 10, expires = \"1m\" }";

#[test]
fn engines_that_share_records_admit_exactly_the_limit() {
    let records = Arc::new(DelayedRecords::new(seed()));
    let nodes = Nodes::new(3, &records, WINDOW);
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for node in &nodes.engines {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..120 {
                        let report = node.check(&ADA).block().unwrap();
                        admitted.fetch_add(report.is_allowed().into(), Ordering::Relaxed);
                    }
                });
            }
        }
    });
    assert_eq!(admitted.into_inner(), 500);
    assert!(records.conflicts() > 0, "they met");
}

#[test]
fn lost_answers_never_admit_too_much() {
    for round in 0..5 {
        let faults = RecordFaults::each(40);
        let records = Arc::new(DelayedRecords::with_faults(seed(), faults));
        let nodes = Nodes::new(2, &records, &WINDOW.replace("500", "200"));
        let (admitted, unknown) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for node in &nodes.engines {
                for number in 0..2 {
                    let (admitted, unknown) = (&admitted, &unknown);
                    scope.spawn(move || {
                        for step in 0..120 {
                            let key = format!("{number}-{step}");
                            let request = ADA.idempotency_key(&key);
                            let request = if step % 2 == 0 { ADA } else { request };
                            let report = node.check(&request).block().unwrap();
                            let count = if report.is_outage() { unknown } else { admitted };
                            let counts = report.is_allowed() && !report.is_repeat();
                            count.fetch_add(counts.into(), Ordering::Relaxed);
                        }
                    });
                }
            }
        });
        let (admitted, unknown) = (admitted.into_inner(), unknown.into_inner());
        assert!(admitted <= 200 && unknown > 0, "round {round}: {admitted}, {unknown}");
    }
}

#[test]
fn units_are_held_charged_or_free_whatever_answers_are_lost() {
    let faults = RecordFaults::each(30);
    let records = Arc::new(DelayedRecords::with_faults(seed(), faults));
    let nodes = Nodes::new(2, &records, WINDOW);
    let (surely, perhaps) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for node in &nodes.engines {
            let (surely, perhaps) = (&surely, &perhaps);
            scope.spawn(move || {
                for _ in 0..60 {
                    let Some(id) = node.hold(&ADA.cost(4)).block().unwrap().hold() else {
                        continue;
                    };
                    match node.commit(id, Some(3)).block() {
                        Ok(done) => surely.fetch_add(done.charged, Ordering::Relaxed),
                        Err(_) => perhaps.fetch_add(3, Ordering::Relaxed),
                    };
                }
            });
        }
    });
    // What is still on hold expires.
    nodes.clock.advance(Duration::from_secs(601));
    let healthy = loop {
        let report = nodes.engines[0].peek(&ADA.cost(0)).block().unwrap();
        if !report.is_outage() {
            break 500 - report.remaining().unwrap();
        }
    };
    let (surely, perhaps) = (surely.into_inner(), perhaps.into_inner());
    assert!((surely..=surely + perhaps).contains(&healthy), "{healthy}: {surely} + {perhaps}");
}

#[test]
fn a_call_submits_though_its_result_is_dropped() {
    let nodes = Nodes::two(WINDOW);
    drop(nodes.engines[0].check(&ADA.cost(7)));
    nodes.until_left(493);
    drop(nodes.engines[1].refund(&ADA.cost(3)));
    nodes.until_left(496);
    let policy = Policy::from_toml(&WINDOW.replace("500", "600")).unwrap();
    drop(nodes.engines[1].edit("test", Edit::policy(policy)));
    nodes.until_left(596);
}

#[test]
fn a_reservation_whose_caller_is_gone_is_cancelled() {
    let nodes = Nodes::two(WINDOW);
    assert!(nodes.engines[0].check(&ADA).block().unwrap().is_allowed());
    for _ in 0..20 {
        drop(nodes.engines[0].hold(&ADA.cost(20)));
    }
    nodes.until_left(499);
    let kept = nodes.engines[0].hold(&ADA.cost(20)).block().unwrap();
    assert!(kept.hold().is_some());
    nodes.until_left(479);
}

#[test]
fn a_repeat_whose_caller_is_gone_leaves_the_first_reservation() {
    let nodes = Nodes::two(WINDOW);
    let request = ADA.cost(20).idempotency_key("one");
    let first = nodes.engines[0].hold(&request).block().unwrap().hold().unwrap();
    for _ in 0..10 {
        drop(nodes.engines[1].hold(&request));
    }
    // If they were cancelled, it would show before long.
    for _ in 0..50 {
        assert_eq!(nodes.left(1, "ada"), 480);
    }
    assert_eq!(nodes.engines[0].commit(first, None).block().unwrap().charged, 20);
}

/// A slot without a wait in the queue, as soon as one is free.
fn free_slot(node: &StoreEngine) -> Lease {
    let acquire = || node.acquire(&ADA, Some(Duration::ZERO));
    let (mut waits, mut lease) = (acquire(), None);
    // Polled, not blocked on: behind a waiter that never leaves, it would block for ever.
    until(|| {
        match poll(&mut waits) {
            Poll::Ready(Ok(granted)) => lease = Some(granted),
            Poll::Ready(Err(_)) => waits = acquire(),
            Poll::Pending => thread::yield_now(),
        }
        lease.is_some()
    });
    lease.unwrap()
}

#[test]
fn a_dropped_wait_leaves_the_queue_and_no_slot_behind() {
    let nodes = Nodes::two(SLOTS);
    let [first, second] = [0, 1].map(|index| &nodes.engines[index]);
    let held = free_slot(first);
    // The clock stands still: no lease expires, and fences count the slots that were granted.
    let (mut last, mut to_dropped) = (held.fence(), 0);
    held.release().block().unwrap();
    until(|| {
        // Dropped while its first attempt is on its way, which may get the slot.
        drop(second.acquire(&ADA, None));
        for node in [first, second] {
            let held = free_slot(node);
            to_dropped += held.fence() - last - 1;
            last = held.fence();
            // Dropped in the queue, behind one that is dropped later.
            let mut head = second.acquire(&ADA, None);
            let mut next = second.acquire(&ADA, None);
            assert!(poll(&mut head).is_pending() && poll(&mut next).is_pending());
            drop((next, head));
            held.release().block().unwrap();
        }
        to_dropped >= 20
    });
}

#[test]
fn slots_are_granted_in_order_and_never_twice() {
    let records = Arc::new(DelayedRecords::new(seed()));
    let engine = || {
        let store = SharedStore::new(Arc::clone(&records), b"a secret");
        let builder = StoreEngine::builder(Policy::from_toml(SLOTS).unwrap()).store(store);
        builder.clock(SystemClock::new()).build().unwrap()
    };
    let nodes = [engine(), engine()];
    let (in_flight, served) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for node in &nodes {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let lease = node.acquire(&ADA, Some(Duration::from_secs(60))).block();
                        let lease = lease.unwrap();
                        assert_eq!(in_flight.fetch_add(1, Ordering::SeqCst), 0);
                        served.fetch_add(1, Ordering::Relaxed);
                        in_flight.fetch_sub(1, Ordering::SeqCst);
                        lease.release().block().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(served.into_inner(), 24);
}

#[test]
fn without_a_queue_every_free_slot_is_granted_at_once() {
    let policy = SLOTS.replace("max = 1, queue = 10", "max = 8, queue = 0");
    let nodes = Nodes::two(&policy);
    let granted = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                if let Ok(lease) = nodes.engines[0].acquire(&ADA, None).block() {
                    granted.fetch_add(1, Ordering::Relaxed);
                    let _ = lease.into_id();
                }
            });
        }
    });
    assert_eq!(granted.into_inner(), 8);
}

#[test]
fn edits_of_one_engine_count_in_all() {
    let nodes = Nodes::two(WINDOW);
    let [first, second] = [0, 1].map(|index| &nodes.engines[index]);
    assert!(second.check(&ADA).block().unwrap().is_allowed());
    let banned = vec![Condition::new("user", ["ada"]).unwrap()];
    let made = first.edit("root", Edit::ban(Ban::new("default", banned.clone()))).block().unwrap();
    assert_eq!(made.len(), 1);
    let denied = second.check(&ADA).block().unwrap();
    assert!(denied.details().is_banned(), "{denied:?}");
    second.edit("root", Edit::unban("default", &banned)).block().unwrap();
    assert!(first.check(&ADA).block().unwrap().is_allowed());
    assert_eq!(first.changes_since(0), second.changes_since(0));
    let error =
        first.edit("root", Edit::remove_override(&RuleId::named("no-such"), &banned)).block();
    assert!(matches!(error, Err(EditError::NoSuchRule(_))), "{error:?}");
    let quota = "[[rule]]\nname = \"q\"\nkey = [\"user\"]\nquota = { max = 2, per = \"round\" }";
    first.edit("root", Edit::policy(Policy::from_toml(quota).unwrap())).block().unwrap();
    assert_eq!(nodes.left(1, "ada"), 2);
    assert!(second.check(&ADA.cost(2)).block().unwrap().is_allowed());
    assert_eq!(second.close_round("default", None).block(), Ok(1));
    assert_eq!((nodes.left(0, "ada"), first.rounds("default")), (2, 1));
}

#[test]
fn a_policy_that_starts_later_is_taken_over_by_all() {
    let records = Arc::new(DelayedRecords::new(seed()));
    let first = Nodes::new(1, &records, WINDOW);
    assert!(first.engines[0].check(&ADA.cost(10)).block().unwrap().is_allowed());
    let second = Nodes::new(1, &records, &WINDOW.replace("500", "100"));
    assert_eq!(second.left(0, "ada"), 90, "it keeps what was consumed");
    assert_eq!(first.left(0, "ada"), 90);
}

/// Records that answer nothing, or garbage.
#[derive(Debug)]
struct BadRecords(Option<&'static [u8]>);

impl RecordStore for BadRecords {
    fn run(&self, mut transaction: Transaction) {
        let Some(garbage) = self.0 else { return transaction.fail(Outage::Unavailable) };
        let mut records = Records::default();
        let mut keys = transaction.first_reads().to_vec();
        loop {
            for key in keys {
                records.insert(key, Some(garbage.into()));
            }
            match transaction.step(&records) {
                Step::Read(more) => keys = more,
                Step::Write(_) => panic!("a foreign value is never overwritten"),
                Step::Done => return transaction.complete(),
            }
        }
    }

    fn states(&self, _: u64) -> Listing {
        Box::pin(async { Err(Outage::Unavailable) })
    }

    fn len(&self) -> usize {
        0
    }
}

#[test]
fn without_the_store_on_error_decides_and_other_calls_fail() {
    let quota = "[[rule]]\nname = \"q\"\nkey = [\"user\"]\nquota = { max = 2, per = \"day\" }";
    for (policy, is_allowed) in [(WINDOW, true), (quota, false)] {
        let nodes = Nodes::new(1, &Arc::new(BadRecords(None)), policy);
        let report = nodes.engines[0].check(&ADA).block().unwrap();
        assert!(report.is_outage());
        assert_eq!(report.is_allowed(), is_allowed, "{policy}");
        let refunded = nodes.engines[0].refund(&ADA).block();
        assert_eq!(refunded, Err(CheckError::Outage(Outage::Unavailable)));
        let edited = nodes.engines[0].edit("root", Edit::overlay(Overlay::default())).block();
        assert!(matches!(edited, Err(EditError::Outage(Outage::Unavailable))), "{edited:?}");
        assert_eq!(nodes.engines[0].forget_all(None).block(), Err(Outage::Unavailable));
    }
}

#[test]
fn a_foreign_value_is_an_error_that_names_its_key() {
    for garbage in [&b""[..], b"\x04tgc1", b"an apple", &[0xff; 100]] {
        let nodes = Nodes::new(1, &Arc::new(BadRecords(Some(garbage))), WINDOW);
        let refunded = nodes.engines[0].refund(&ADA).block();
        let Err(CheckError::Outage(outage)) = refunded else { panic!("{refunded:?}") };
        assert!(outage.to_string().contains("`control`"), "{outage}");
        assert!(nodes.engines[0].check(&ADA).block().unwrap().is_outage());
    }
}

#[test]
fn results_of_a_store_in_memory_are_there_at_once() {
    let engine = StoreEngine::new(Policy::from_toml(WINDOW).unwrap());
    assert!(matches!(engine.check(&ADA), Answer::Ready(Ok(_))));
    assert!(matches!(engine.explain(&ADA), Answer::Ready(Ok(_))));
    assert!(matches!(engine.edit("root", Edit::overlay(Overlay::default())), Answer::Ready(Ok(_))));
}

/// Records that answer nothing until they are dropped.
#[derive(Debug, Default)]
struct SilentRecords(Mutex<Vec<Transaction>>);

impl RecordStore for SilentRecords {
    fn run(&self, transaction: Transaction) {
        self.0.lock().unwrap().push(transaction);
    }

    fn states(&self, _: u64) -> Listing {
        Box::pin(async { Err(Outage::Unavailable) })
    }

    fn len(&self) -> usize {
        0
    }
}

#[test]
fn abandoned_operations_beyond_the_maximum_are_counted() {
    const MOST: u64 = 65_536;
    let records = Arc::new(SilentRecords::default());
    let nodes = Nodes::new(1, &records, WINDOW);
    let engine = &nodes.engines[0];
    for _ in 0..MOST {
        drop(engine.check(&ADA));
    }
    assert_eq!(engine.dropped_operations(), 0);
    for _ in 0..5 {
        drop(engine.check(&ADA));
    }
    assert_eq!(engine.dropped_operations(), 5);
    // Those before them are completed, and there is room again.
    until(|| {
        let open = std::mem::take(&mut *records.0.lock().unwrap());
        open.into_iter().for_each(|transaction| transaction.fail(Outage::Unavailable));
        thread::yield_now();
        let before = engine.dropped_operations();
        drop(engine.check(&ADA));
        engine.dropped_operations() == before
    });
}
