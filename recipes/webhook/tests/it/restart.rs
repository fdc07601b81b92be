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
struct Fixture {
    folder: PathBuf,
    agent: StandIn,
    chat: StandIn,
}

impl Fixture {
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
        // A new hour during the test would allow more.
        variables.push(("RATE_LIMIT_ALGORITHM", "sliding".to_owned()));
        variables.push(("RATE_LIMIT_USERS", "9=unlimited".to_owned()));
        variables
    }

    async fn start(&self) -> Program {
        Program::start(&as_strs(&self.variables())).await
    }

    /// Sends messages of user 7, all of which are allowed.
    async fn pass(&mut self, program: &Program, updates: std::ops::Range<i64>) {
        for update_id in updates {
            send(program.address, &update(update_id, 7)).await.is_ok();
            assert_eq!(self.agent.next().await.body["update_id"], update_id);
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // A failure only leaves temporary files behind.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn count_survives_a_kill() {
    for signal in ["-KILL", "-TERM"] {
        let mut fixture = Fixture::new().await;
        let program = fixture.start().await;
        fixture.pass(&program, 0..12).await;
        send(program.address, &update(100, 9)).await.is_ok();
        assert_eq!(fixture.agent.next().await.body["update_id"], 100);
        program.ended_by(signal).await;
        let program = fixture.start().await;
        fixture.pass(&program, 12..20).await;
        send(program.address, &update(20, 7)).await.is_ok();
        assert_eq!(fixture.chat.next().await.path, "/bot123:token/sendMessage", "{signal}");
        // A message dispatched before the restart is not dispatched again, limit or not.
        send(program.address, &update(3, 7)).await.is_ok();
        send(program.address, &update(100, 9)).await.is_ok();
        let (_, log) = program.ended_by("-TERM").await;
        assert!(fixture.agent.is_idle() && fixture.chat.is_idle(), "{signal}: {log}");
    }
}

/// The process is killed at any point, and Telegram resends everything without a response.
#[tokio::test(flavor = "multi_thread")]
async fn kill_at_any_point_allows_no_more_and_dispatches_nothing_twice() {
    for responses in [0, 1, 5, 10, 20, 29] {
        let mut fixture = Fixture::new().await;
        let program = fixture.start().await;
        let address = program.address;
        let headers = format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n");
        let mut sent = JoinSet::new();
        for update_id in 0..30 {
            let (headers, body) = (headers.clone(), update(update_id, 7).to_string());
            sent.spawn(async move { try_post(address, &headers, body.as_bytes()).await });
        }
        for _ in 0..responses {
            sent.join_next().await.unwrap().unwrap();
        }
        program.ended_by("-KILL").await;
        sent.join_all().await;
        let program = fixture.start().await;
        for update_id in 0..30 {
            send(program.address, &update(update_id, 7)).await.is_ok();
        }
        program.ended_by("-TERM").await;
        let mut passed = BTreeSet::new();
        while let Some(call) = fixture.agent.received() {
            let update_id = call.body["update_id"].as_i64().unwrap();
            assert!(passed.insert(update_id), "{update_id} twice, killed after {responses}");
        }
        assert!(passed.len() <= 20, "{} passed, killed after {responses}", passed.len());
    }
}

#[tokio::test]
async fn restart_in_memory_begins_anew() {
    let mut fixture = Fixture::new().await;
    let mut variables = fixture.variables();
    variables.retain(|(name, _)| *name != "RATE_LIMIT_STORE");
    variables
        .extend([("RATE_LIMIT_STORE", "memory".to_owned()), ("RATE_LIMIT_MAX", "1".to_owned())]);
    for update_id in 0..2 {
        let program = Program::start(&as_strs(&variables)).await;
        fixture.pass(&program, update_id..update_id + 1).await;
        program.ended_by("-TERM").await;
    }
    assert!(!fixture.folder.exists());
}

#[tokio::test]
async fn unusable_folder_prevents_the_start_and_is_named() {
    let fixture = Fixture::new().await;
    let _program = fixture.start().await;
    let second = output(&as_strs(&fixture.variables()), &[]).await;
    assert_eq!(second.status.code(), Some(1));
    let message = String::from_utf8(second.stderr).unwrap();
    assert!(message.starts_with("error: RATE_LIMIT_STORE: "), "{message}");
    assert!(message.contains("is in use"), "{message}");

    let mut variables = fixture.variables();
    variables.retain(|(name, _)| *name != "RATE_LIMIT_STORE");
    variables.push(("RATE_LIMIT_STORE", "file:/dev/null/state".to_owned()));
    let message = String::from_utf8(output(&as_strs(&variables), &[]).await.stderr).unwrap();
    assert!(message.starts_with("error: RATE_LIMIT_STORE: cannot open "), "{message}");
}
