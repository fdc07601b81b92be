#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use tidegate::StoreEngine;
use tidegate::durable::FileOptions;
use tidegate::policy::{Parsed, Policy};
use tidegate::testing::CrashDisk;

use super::*;
use crate::daemon::Daemon;
use crate::settings::Settings;

const POLICY: &str =
    "[[rule]]\nname = 'n'\nkey = ['k']\nquota = { max = 1_000_000, per = 'day' }\n";

/// A daemon whose disk can be paused.
fn daemon(disk: &CrashDisk) -> SharedDaemon {
    let policy = Policy::from_toml(POLICY).unwrap();
    let store = FileOptions::default().open_on(Arc::new(disk.clone())).unwrap();
    let engine = StoreEngine::builder(policy.clone()).store(store).build().unwrap();
    Arc::new(Daemon::new(engine, Settings::on_free_ports(Parsed::from_code(policy))))
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Version::Resp2);
    replies.array(words.len());
    words.iter().for_each(|word| replies.bulk(word.as_bytes()));
    bytes
}

/// Handles commands on a disk that does not answer, until this many bytes are counted.
async fn counted_while_waiting(commands: &[Vec<u8>], least: usize) -> usize {
    let disk = CrashDisk::new();
    let daemon = daemon(&disk);
    let peer = PeerId::Address("192.0.2.1:1".parse().unwrap());
    let permit = Arc::new(daemon.connections.of(Listener::Resp).take(peer).unwrap());
    let mut session = Session::new(&daemon, 1, peer, &permit, None);
    let unsent = || daemon.connections.all().bytes_held(BudgetKind::Unsent);
    disk.pause();
    let (mut arguments, input, mut out) = (Arguments::default(), commands.concat(), Vec::new());
    let mut polls = 0;
    let counted = async {
        while unsent() < least && polls < 1_000 {
            polls += 1;
            tokio::task::yield_now().await;
        }
        unsent()
    };
    let counted = tokio::select! {
        biased;
        _ = session.handle(&mut arguments, &input, &mut out) => panic!("the disk is paused"),
        counted = counted => counted,
    };
    disk.resume();
    drop(session);
    drop(permit);
    assert_eq!(unsent(), 0, "nothing is left behind");
    counted
}

#[tokio::test]
async fn replies_that_wait_for_the_store_are_counted() {
    let echo = command(&["ECHO", &"x".repeat(50_000)]);
    for name in ["TG.CHECK", "TG.RESERVE"] {
        let waits = command(&[name, "default", "ATTR", "k", "v"]);
        let commands = [echo.clone(), echo.clone(), waits];
        let counted = counted_while_waiting(&commands, 100_000).await;
        assert!(counted >= 100_000, "{counted} bytes before {name}");
    }
}

#[tokio::test]
async fn decisions_that_wait_for_the_store_are_counted() {
    let check = command(&["TG.CHECK", "default", "ATTR", "k", "v"]);
    let counted = counted_while_waiting(&vec![check; 500], 50_000).await;
    assert!(counted >= 50_000, "{counted} bytes for 500 decisions");
}
