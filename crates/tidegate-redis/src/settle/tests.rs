//! Each write of a settlement compares, on a real server.

use std::sync::Arc;

use redis::Client;
use tidegate_engine::shared::RecordKey;
use tidegate_redis_servers::{Program, Server};
use tokio::runtime::Builder;

use super::{Laid, Withdrawal, finish, withdraw};
use crate::commands::COMMIT;
use crate::frame::Cell;
use crate::intent::{After, Found, Intent, Member, Phase};
use crate::servers::Servers;

const STAMP: u64 = 7;
const OTHER: u64 = 9;

fn key(number: u64) -> RecordKey {
    RecordKey::from_text(&format!("state:{number:016x}")).unwrap()
}

fn cell(stamp: u64, record: &[u8]) -> Cell {
    Cell { stamp: Some(stamp), expires_ms: 0, record: Some(Arc::from(record)) }
}

fn intents(stamp: u64) -> Vec<Intent> {
    let members: Arc<[Member]> =
        (0..3).map(|number| Member { key: key(number), expected: Some(1) }).collect();
    let intent = |_| Intent {
        phase: Phase::Laid,
        stamp,
        expires_ms: 0,
        members: Arc::clone(&members),
        before: cell(1, b"before"),
        after: After::Changed { expires_ms: 0, record: Some(Arc::from(&b"after"[..])) },
    };
    (0..3).map(intent).collect()
}

async fn servers(server: &Server) -> Servers {
    let client = Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(COMMIT);
    let sha: String = load.query_async(&mut connection).await.unwrap();
    Servers {
        connections: vec![Some(connection)],
        owners: None,
        prefix: "t:".into(),
        commit_sha: sha.into(),
        at_least_ms: 1 << 50,
    }
}

/// Puts a value at a key, whatever is there.
fn put(server: &Server, number: u64, value: &[u8]) {
    let name = format!("t:{}", key(number));
    let _ = server.command(&[b"SET", name.as_bytes(), value]).success();
}

fn laid(intents: &[Intent]) -> Laid {
    (0..3).map(key).zip(intents.iter().cloned().map(Some)).collect()
}

/// Runs a test with three intents, each as it is at its key.
fn run(at_keys: &[Vec<u8>; 3], test: impl AsyncFnOnce(&Servers)) {
    let server = Server::start(Program::Redis7);
    for (number, value) in (0..).zip(at_keys) {
        put(&server, number, value);
    }
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { test(&servers(&server).await).await });
}

/// The stamp and the record at each key; `None` for an intent.
async fn there(servers: &Servers) -> Vec<Option<(u64, Vec<u8>)>> {
    let mut all = Vec::new();
    for number in 0..3 {
        all.push(match servers.get(&key(number)).await.unwrap() {
            Found::Cell(cell) => Some((cell.stamp.unwrap(), cell.record.unwrap().to_vec())),
            Found::Intent(_) => None,
        });
    }
    all
}

#[test]
fn nothing_is_put_back_over_what_another_process_has_written() {
    let [first, second, _] = [0, 1, 2].map(|at| intents(STAMP)[at].value());
    let other = cell(OTHER, b"other");
    for how in [Withdrawal::Lost, Withdrawal::Uncertain] {
        run(&[first.clone(), second.clone(), other.value()], async |servers| {
            let withdrawn = withdraw(servers, &laid(&intents(STAMP)), how).await;
            assert!(withdrawn.is_certain && withdrawn.failure.is_none());
            assert_eq!(withdrawn.left.len(), 2);
            let there = there(servers).await;
            assert_eq!(there[2], Some((OTHER, b"other".to_vec())));
            for value in &there[..2] {
                let (stamp, record) = value.clone().unwrap();
                assert_eq!(record, b"before");
                assert!(![1, STAMP].contains(&stamp), "no value comes back");
            }
        });
    }
}

#[test]
fn what_is_pinned_is_not_withdrawn_unless_an_intent_was_lost() {
    let pinned = intents(STAMP)[0].with_phase(Phase::Pinned).value();
    let at_keys = [pinned.clone(), pinned.clone(), pinned];
    run(&at_keys, async |servers| {
        let withdrawn = withdraw(servers, &laid(&intents(STAMP)), Withdrawal::Uncertain).await;
        assert!(!withdrawn.is_certain && withdrawn.left.is_empty());
        assert_eq!(there(servers).await, [None, None, None]);
        let withdrawn = withdraw(servers, &laid(&intents(STAMP)), Withdrawal::Lost).await;
        assert!(withdrawn.is_certain);
        assert!(there(servers).await.iter().all(|it| it.as_ref().unwrap().1 == b"before"));
    });
}

#[test]
fn a_commit_is_finished_in_any_phase_and_over_nothing_else() {
    let all = intents(STAMP);
    let pinned = all[1].with_phase(Phase::Pinned).value();
    let other = cell(OTHER, b"other");
    run(&[all[0].value(), pinned, other.value()], async |servers| {
        let left = finish(servers, &laid(&all)).await.unwrap();
        assert_eq!(left.len(), 2);
        let after = Some((STAMP, b"after".to_vec()));
        assert_eq!(
            there(servers).await,
            [after.clone(), after.clone(), Some((OTHER, b"other".to_vec()))]
        );
        // Once more: nothing changes.
        assert!(finish(servers, &laid(&all)).await.unwrap().len() <= 2);
        assert_eq!(there(servers).await[0], after);
    });
}

#[test]
fn what_another_process_has_settled_is_not_taken_for_what_was_sent() {
    let mut all = intents(STAMP);
    for intent in &mut all {
        // A record that is needed no longer: how long it is kept depends on when it is settled.
        intent.after = After::Changed { expires_ms: 1, record: Some(Arc::from(&b"after"[..])) };
    }
    let at_keys = [0, 1, 2].map(|at| all[at].value());
    run(&at_keys, async |servers| {
        let later = Servers { at_least_ms: servers.at_least_ms + 5, ..servers.clone() };
        // The primary is marked, and another process replaces one of the others.
        let mark = all[0].with_phase(Phase::Committed);
        assert!(servers.put_intent(&key(0), &all[0], &mark).await.unwrap().is_there());
        let expected = Found::Intent(Box::new(all[1].clone()));
        let settled = all[1].committed(later.at_least_ms);
        assert!(later.put_cell(&key(1), &expected, &settled).await.unwrap().is_there());
        let left = finish(servers, &laid(&all)).await.unwrap();
        assert_eq!(left.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key(2), key(0)]);
        for (key, cell) in left {
            assert_eq!(servers.get(&key).await.unwrap(), Found::Cell(cell));
        }
        assert_eq!(servers.get(&key(1)).await.unwrap(), Found::Cell(settled));
    });
}
