#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tidegate_table::locks::lock;

use super::{Gathering, Log, WaitDurable};
use crate::disk::{Disk, DiskFile};
use crate::frame::SegmentEnd;
use crate::writer::{Level, ResumePoint, SegmentSizes, SegmentWriter};

/// A disk whose syncs wait until they are let go, one by one.
#[derive(Debug)]
struct StepDisk {
    begun: Sender<()>,
    let_go: Arc<Mutex<Receiver<()>>>,
}

#[derive(Debug)]
struct StepFile {
    begun: Sender<()>,
    let_go: Arc<Mutex<Receiver<()>>>,
}

impl Disk for StepDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn read(&self, _name: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn create(&self, _name: &str) -> io::Result<Box<dyn DiskFile>> {
        let (begun, let_go) = (self.begun.clone(), Arc::clone(&self.let_go));
        Ok(Box::new(StepFile { begun, let_go }))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn cut(&self, _name: &str, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for StepFile {
    fn write_at(&mut self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.begun.send(()).map_err(io::Error::other)?;
        lock(&self.let_go).recv().map_err(io::Error::other)
    }
}

/// Notes in which order callers are woken.
struct Woken {
    name: usize,
    order: Arc<Mutex<Vec<usize>>>,
    count: AtomicUsize,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        lock(&self.order).push(self.name);
    }
}

/// A log, what its disk begins, and what lets it go on.
fn stepped() -> (Log, Receiver<()>, Sender<()>) {
    stepped_with(Duration::ZERO)
}

/// With so much for the usual time of an fsync: a batch waits half of it for callers.
fn stepped_with(usual: Duration) -> (Log, Receiver<()>, Sender<()>) {
    let (begun, begins) = channel();
    let (go, let_go) = channel();
    let disk = Arc::new(StepDisk { begun, let_go: Arc::new(Mutex::new(let_go)) });
    let from = ResumePoint { end: SegmentEnd::default(), next_segment: 1, next_batch: 1 };
    let writer = SegmentWriter::new(disk, SegmentSizes::default(), from, Vec::new());
    (Log::gathering(writer, |_| {}, Gathering::new(usual, usual)).unwrap(), begins, go)
}

fn poll(wait: &mut WaitDurable, woken: &Arc<Woken>) -> Poll<bool> {
    let waker = Waker::from(Arc::clone(woken));
    let polled = Pin::new(wait).poll(&mut Context::from_waker(&waker));
    polled.map(|outcome| outcome.is_ok())
}

#[test]
fn caller_waits_for_its_own_record_and_no_later_one() {
    let (log, begins, go) = stepped();
    let order = Arc::new(Mutex::new(Vec::new()));
    let caller =
        |name| Arc::new(Woken { name, order: Arc::clone(&order), count: AtomicUsize::new(0) });
    let first = log.append(b"first", Level::Synced);
    begins.recv().unwrap();
    // The first record is on its way. Others come, before its caller waits.
    let later: Vec<u64> = (0..5).map(|_| log.append(b"later", Level::Synced)).collect();
    let mut first = log.wait_record(first, Level::Synced);
    let callers: Vec<_> = (0..6).map(caller).collect();
    assert_eq!(poll(&mut first, &callers[0]), Poll::Pending);
    let mut later: Vec<_> =
        later.into_iter().map(|record| log.wait_record(record, Level::Synced)).collect();
    for (wait, caller) in later.iter_mut().zip(&callers[1..]) {
        assert_eq!(poll(wait, caller), Poll::Pending);
    }
    go.send(()).unwrap();
    // With the next sync begun, the callers of the one before have been woken.
    begins.recv().unwrap();
    assert_eq!(*lock(&order), [0]);
    assert_eq!(poll(&mut first, &callers[0]), Poll::Ready(true));
    assert_eq!(poll(&mut later[0], &callers[1]), Poll::Pending);
    go.send(()).unwrap();
    // Nothing is left to be synced: the last sync is that of the end of the log.
    drop(go);
    drop(log);
    assert_eq!(*lock(&order), [0, 1, 2, 3, 4, 5], "the longest wait ends first");
    for (wait, caller) in later.iter_mut().zip(&callers[1..]) {
        assert_eq!(poll(wait, caller), Poll::Ready(true));
        assert_eq!(caller.count.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn dropped_wait_is_forgotten() {
    let (log, begins, go) = stepped();
    let record = log.append(b"record", Level::Synced);
    begins.recv().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let caller = Arc::new(Woken { name: 1, order, count: AtomicUsize::new(0) });
    let mut waits: Vec<_> = (0..3).map(|_| log.wait_record(record, Level::Synced)).collect();
    waits.iter_mut().for_each(|wait| assert_eq!(poll(wait, &caller), Poll::Pending));
    waits.remove(1);
    assert_eq!(lock(&log.shared.state).waiting.len(), 2);
    go.send(()).unwrap();
    drop(go);
    drop(log);
    assert_eq!(caller.count.load(Ordering::SeqCst), 2);
}

/// Makes the batch of a caller durable while another record comes, and returns that one's wait,
/// which is in the next batch.
fn acknowledged_beside_another(
    log: &Log,
    (begins, go): (&Receiver<()>, &Sender<()>),
    caller: &Arc<Woken>,
) -> WaitDurable {
    let record = log.append(b"first", Level::Synced);
    begins.recv().unwrap();
    let mut first = log.wait_record(record, Level::Synced);
    assert_eq!(poll(&mut first, caller), Poll::Pending);
    let other = log.append(b"other", Level::Synced);
    go.send(()).unwrap();
    while caller.count.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    assert_eq!(poll(&mut first, caller), Poll::Ready(true));
    log.wait_record(other, Level::Synced)
}

fn caller() -> Arc<Woken> {
    Arc::new(Woken { name: 1, order: Arc::default(), count: AtomicUsize::new(0) })
}

#[test]
fn caller_that_comes_back_is_in_the_next_batch() {
    // So slow a disk that the batch waits for as long as the test takes.
    let (log, begins, go) = stepped_with(Duration::from_secs(1 << 30));
    let first = caller();
    let mut other = acknowledged_beside_another(&log, (&begins, &go), &first);
    let back = log.append(b"back", Level::Synced);
    begins.recv().unwrap();
    let mut back = log.wait_record(back, Level::Synced);
    let [of_other, of_back] = [caller(), caller()];
    assert_eq!(poll(&mut other, &of_other), Poll::Pending);
    assert_eq!(poll(&mut back, &of_back), Poll::Pending);
    go.send(()).unwrap();
    drop(go);
    drop(log);
    // One fsync was enough for both.
    assert_eq!(poll(&mut other, &of_other), Poll::Ready(true));
    assert_eq!(poll(&mut back, &of_back), Poll::Ready(true));
    assert!(begins.try_recv().is_err());
}

#[test]
fn end_of_the_log_does_not_wait_for_callers() {
    let (log, begins, go) = stepped_with(Duration::from_secs(1 << 30));
    let mut other = acknowledged_beside_another(&log, (&begins, &go), &caller());
    go.send(()).unwrap();
    drop(log);
    assert_eq!(poll(&mut other, &caller()), Poll::Ready(true));
}
