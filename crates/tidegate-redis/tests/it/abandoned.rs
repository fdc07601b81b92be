//! Commits over several nodes of a cluster whose writers are gone, at each point of the way: the next
//! one that uses the keys sees all of it, or nothing.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;

use tidegate_redis_servers::{Cluster, Program, Reply, Server, until};

use crate::spread::{LIMITS, RED, charged, kinds, left, spread, until_settled};
use crate::support::Node;

/// A record on the server, as it is read there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

impl Stored {
    fn stamp(&self) -> &[u8] {
        &self.value[4..12]
    }

    fn expiry(&self) -> &[u8] {
        &self.value[12..20]
    }

    fn record(&self) -> &[u8] {
        &self.value[20..]
    }
}

fn server_of<'c>(cluster: &'c Cluster, name: &str) -> &'c Server {
    &cluster.nodes()[cluster.primary_of(cluster.slot_of(name))]
}

pub(crate) fn get(cluster: &Cluster, name: &str) -> Stored {
    let Reply::Bulk(value) = server_of(cluster, name).command(&["GET", name]) else {
        panic!("{name} is not there");
    };
    Stored { name: name.to_owned(), value }
}

pub(crate) fn put(cluster: &Cluster, name: &str, value: &[u8]) {
    let _ = server_of(cluster, name).command(&[b"SET", name.as_bytes(), value]).success();
}

/// The states of a namespace, in the order of their keys.
fn states(cluster: &Cluster, namespace: &str) -> Vec<Stored> {
    until_settled(cluster, namespace);
    let names = kinds(cluster, namespace).into_iter().map(|(name, _)| name);
    let mut names: Vec<String> = names.filter(|name| name.contains(":state:")).collect();
    names.sort_unstable();
    names.iter().map(|name| get(cluster, name)).collect()
}

/// The intent of a commit from one state of all keys to another, at one of them.
fn intent(magic: &[u8; 4], at: usize, before: &[Stored], after: &[Stored]) -> Vec<u8> {
    let mut value = magic.to_vec();
    value.extend(STAMP);
    value.extend(before[at].expiry());
    value.extend(u16::try_from(before.len()).unwrap().to_le_bytes());
    for member in before {
        let (_, key) = member.name.split_once(':').unwrap();
        value.push(u8::try_from(key.len()).unwrap());
        value.extend(key.as_bytes());
        value.push(1);
        value.extend(member.stamp());
    }
    value.push(1);
    value.extend(before[at].stamp());
    value.extend(before[at].expiry());
    value.extend(u32::try_from(before[at].record().len()).unwrap().to_le_bytes());
    value.extend(before[at].record());
    value.push(1);
    value.extend(after[at].expiry());
    value.extend(after[at].record());
    value
}

/// What a writer has left at a key.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Nothing,
    Intent(&'static [u8; 4]),
    Record,
    /// Another process has written the key since.
    Overwritten,
}

const LAID: Rest = Rest::Intent(b"tgi1");
const PINNED: Rest = Rest::Intent(b"tgp1");
const MARKED: Rest = Rest::Intent(b"tgc1");

#[test]
fn a_writer_that_is_gone_leaves_all_or_nothing_wherever_it_was() {
    let cluster = Cluster::start(Program::Valkey9);
    let cases = [
        // After the first intents: nothing, and they are closed to the rest.
        ([LAID, Rest::Nothing, Rest::Nothing], false),
        ([Rest::Nothing, LAID, Rest::Nothing], false),
        ([LAID, LAID, Rest::Nothing], false),
        // After all of them, before anything else: all, though no caller may know.
        ([LAID, LAID, LAID], true),
        // Before, in and after the cleaning up.
        ([MARKED, LAID, LAID], true),
        ([MARKED, Rest::Record, LAID], true),
        ([MARKED, Rest::Record, Rest::Record], true),
        // While another process settled it.
        ([LAID, PINNED, LAID], true),
        ([LAID, PINNED, PINNED], true),
        // One intent was lost to another process.
        ([LAID, Rest::Overwritten, LAID], false),
        ([LAID, PINNED, Rest::Overwritten], false),
    ];
    for (number, (rests, is_committed)) in cases.into_iter().enumerate() {
        let namespace = format!("c{number}");
        let first = Node::with(spread(&cluster, &namespace), LIMITS);
        assert_eq!(first.allows(&RED), Some(true));
        let before = states(&cluster, &namespace);
        assert_eq!(first.allows(&RED), Some(true));
        let after = states(&cluster, &namespace);
        drop(first);
        for (at, rest) in rests.into_iter().enumerate() {
            let mut value = match rest {
                Rest::Nothing | Rest::Overwritten => before[at].value.clone(),
                Rest::Intent(magic) => intent(magic, at, &before, &after),
                Rest::Record => after[at].value.clone(),
            };
            match rest {
                Rest::Overwritten => value[4..12].copy_from_slice(&OTHER_STAMP),
                Rest::Record => value[4..12].copy_from_slice(&STAMP),
                Rest::Nothing | Rest::Intent(_) => {}
            }
            put(&cluster, &before[at].name, &value);
        }
        let nodes = [0, 1].map(|_| Node::with(spread(&cluster, &namespace), LIMITS));
        let units = if is_committed { 2 } else { 1 };
        for node in &nodes {
            assert_eq!(charged(node), units, "{rests:?}");
        }
        assert_eq!(nodes[0].allows(&RED), Some(true));
        assert_eq!(charged(&nodes[1]), units + 1, "{rests:?}");
        until_settled(&cluster, &namespace);
    }
}

#[test]
fn an_intent_that_comes_late_can_not_be_laid_any_more() {
    let cluster = Cluster::start(Program::Redis7);
    let node = Node::with(spread(&cluster, "late"), LIMITS);
    assert_eq!(node.allows(&RED), Some(true));
    let before = states(&cluster, "late");
    assert_eq!(node.allows(&RED), Some(true));
    let after = states(&cluster, "late");
    for stored in &before {
        put(&cluster, &stored.name, &stored.value);
    }
    put(&cluster, &before[2].name, &intent(b"tgi1", 2, &before, &after));
    // It is met at the key that has it, and settled as if the others would never come.
    let other = Node::with(spread(&cluster, "late"), LIMITS);
    assert_eq!(left(&other, &RED), [89, 149, 249]);
    let now = states(&cluster, "late");
    assert_ne!(now[2].stamp(), before[2].stamp(), "no value comes back");
    let is_open = |at: &usize| now[*at].stamp() == before[*at].stamp();
    assert!(!(0..2).all(|at| is_open(&at)), "one of the others is closed");
    assert_eq!(now.iter().map(Stored::record).collect::<Vec<_>>(), {
        before.iter().map(Stored::record).collect::<Vec<_>>()
    });
}

/// The variables with the address of the cluster, and with the file for what was allowed.
const URL: &str = "TIDEGATE_ABANDONED_URL";
const LOG: &str = "TIDEGATE_ABANDONED_LOG";

#[test]
#[ignore = "it is a process that another test kills"]
fn charge_until_killed() {
    let (url, log) = (std::env::var(URL).unwrap(), std::env::var(LOG).unwrap());
    let node = Node::with(crate::support::builder(&url).namespace("killed"), &many());
    let log = OpenOptions::new().append(true).create(true).open(log).unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let letter = match node.allows(&RED) {
                        Some(true) => b"a",
                        Some(false) => b"d",
                        None => b"?",
                    };
                    (&log).write_all(letter).unwrap();
                }
            });
        }
    });
}

fn many() -> String {
    LIMITS.replace("90", "100000").replace("150", "100000").replace("250", "100000")
}

#[test]
fn processes_that_are_killed_lose_nothing_and_leave_nothing_half_charged() {
    let cluster = Cluster::start(Program::Valkey9);
    let log = std::env::temp_dir().join(format!("tidegate-abandoned-{}", std::process::id()));
    let start = || -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "abandoned::charge_until_killed", "--ignored", "--nocapture"])
            .env(URL, crate::spread::url(&cluster))
            .env(LOG, &log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let letters = || std::fs::read(&log).unwrap_or_default();
    let node = Node::with(spread(&cluster, "killed"), &many());
    assert_eq!(node.allows(&RED), Some(true));
    let mut processes = [start(), start()];
    for kill in 0..KILLS {
        let before = letters().len();
        until("they decide", || letters().len() > before + 20);
        let process = &mut processes[kill % 2];
        process.kill().unwrap();
        process.wait().unwrap();
        *process = start();
    }
    for process in &mut processes {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let letters = letters();
    let _ = std::fs::remove_file(&log);
    let count = |letter: u8| letters.iter().filter(|it| **it == letter).count() as u64;
    let (allowed, unknown) = (count(b'a') + 1, count(b'?'));
    let left = left(&node, &RED);
    assert!(left.iter().all(|it| *it == left[0]), "all or nothing: {left:?}");
    let charged = 100_000 - left[0];
    assert_eq!(count(b'd'), 0);
    assert!(allowed <= charged, "{allowed} allowed, {charged} charged");
    // Those that were decided, and killed before they could write it down.
    let most = allowed + unknown + (KILLS as u64 + 2) * THREADS;
    assert!(charged <= most, "{charged} charged, {allowed} allowed, {unknown} unknown");
}

const STAMP: [u8; 8] = *b"\x01stamp\x02\x03";
const OTHER_STAMP: [u8; 8] = *b"\x09other\x02\x03";
const KILLS: usize = 8;
const THREADS: u64 = 3;
