//! The count survives the process, however it ends.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;

use crate::http::{SECRET, send, try_post, update};
use crate::process::{Program, output};
use crate::server::{as_strs, environment};
use crate::stand_in::StandIn;

/// A folder for the counts, with an agent and a chat API that outlive the webhook.
struct Place {
    folder: PathBuf,
    agent: StandIn,
    chat: StandIn,
}

impl Place {
    async fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-webhook-state-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        Self { folder, agent: StandIn::new().await, chat: StandIn::new().await }
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = environment(&self.agent, &self.chat);
        variables.retain(|(name, _)| *name != "RATE_LIMIT_STORE");
        variables.push(("RATE_LIMIT_STORE", format!("file:{}", self.folder.display())));
        // An hour that begins while the test runs would let more pass.
        variables.push(("RATE_LIMIT_ALGORITHM", "sliding".to_owned()));
        variables.push(("RATE_LIMIT_USERS", "9=unlimited".to_owned()));
        variables
    }

    async fn start(&self) -> Program {
        Program::start(&as_strs(&self.variables())).await
    }

    /// Sends messages of user 7, all of which pass.
    async fn pass(&mut self, program: &Program, updates: std::ops::Range<i64>) {
        for update_id in updates {
            send(program.address, &update(update_id, 7)).await.is_ok();
            assert_eq!(self.agent.next().await.body["update_id"], update_id);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left in the folder for temporary files is nobody's loss.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn after_a_kill_the_count_goes_on() {
    for signal in ["-KILL", "-TERM"] {
        let mut place = Place::new().await;
        let program = place.start().await;
        place.pass(&program, 0..12).await;
        send(program.address, &update(100, 9)).await.is_ok();
        assert_eq!(place.agent.next().await.body["update_id"], 100);
        program.ended_by(signal).await;
        let program = place.start().await;
        place.pass(&program, 12..20).await;
        send(program.address, &update(20, 7)).await.is_ok();
        assert_eq!(place.chat.next().await.path, "/bot123:token/sendMessage", "{signal}");
        // What was passed on in another life is not passed on again, limit or not.
        send(program.address, &update(3, 7)).await.is_ok();
        send(program.address, &update(100, 9)).await.is_ok();
        let (_, log) = program.ended_by("-TERM").await;
        assert!(place.agent.is_idle() && place.chat.is_idle(), "{signal}: {log}");
    }
}

/// It ends in the middle of whatever it does, and Telegram sends everything again that it has no
/// answer to.
#[tokio::test(flavor = "multi_thread")]
async fn whenever_it_is_killed_no_more_pass_and_nothing_passes_twice() {
    for answers in [0, 1, 5, 10, 20, 29] {
        let mut place = Place::new().await;
        let program = place.start().await;
        let address = program.address;
        let headers = format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n");
        let mut sent = JoinSet::new();
        for update_id in 0..30 {
            let (headers, body) = (headers.clone(), update(update_id, 7).to_string());
            sent.spawn(async move { try_post(address, &headers, body.as_bytes()).await });
        }
        for _ in 0..answers {
            sent.join_next().await.unwrap().unwrap();
        }
        program.ended_by("-KILL").await;
        sent.join_all().await;
        let program = place.start().await;
        for update_id in 0..30 {
            send(program.address, &update(update_id, 7)).await.is_ok();
        }
        program.ended_by("-TERM").await;
        let mut passed = BTreeSet::new();
        while let Some(call) = place.agent.received() {
            let update_id = call.body["update_id"].as_i64().unwrap();
            assert!(passed.insert(update_id), "{update_id} twice, killed after {answers}");
        }
        assert!(passed.len() <= 20, "{} passed, killed after {answers}", passed.len());
    }
}

#[tokio::test]
async fn in_memory_a_restart_begins_anew() {
    let mut place = Place::new().await;
    let mut variables = place.variables();
    variables.retain(|(name, _)| *name != "RATE_LIMIT_STORE");
    variables
        .extend([("RATE_LIMIT_STORE", "memory".to_owned()), ("RATE_LIMIT_MAX", "1".to_owned())]);
    for update_id in 0..2 {
        let program = Program::start(&as_strs(&variables)).await;
        place.pass(&program, update_id..update_id + 1).await;
        program.ended_by("-TERM").await;
    }
    assert!(!place.folder.exists());
}

#[tokio::test]
async fn a_folder_that_cannot_be_had_stops_the_start_and_is_named() {
    let place = Place::new().await;
    let _program = place.start().await;
    let second = output(&as_strs(&place.variables()), &[]).await;
    assert_eq!(second.status.code(), Some(1));
    let message = String::from_utf8(second.stderr).unwrap();
    assert!(message.starts_with("error: RATE_LIMIT_STORE: "), "{message}");
    assert!(message.contains("is in use"), "{message}");

    let mut variables = place.variables();
    variables.retain(|(name, _)| *name != "RATE_LIMIT_STORE");
    variables.push(("RATE_LIMIT_STORE", "file:/dev/null/state".to_owned()));
    let message = String::from_utf8(output(&as_strs(&variables), &[]).await.stderr).unwrap();
    assert!(message.starts_with("error: RATE_LIMIT_STORE: cannot open "), "{message}");
}
