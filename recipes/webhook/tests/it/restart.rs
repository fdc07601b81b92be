//! The count survives the process, however it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::http::{SECRET, TIMEOUT, health, send, try_post, update};
use crate::process::{Program, output};
use crate::server::{as_strs, environment};
use crate::stand_in::StandIn;

/// A folder for the counts, with an agent and a chat API that outlive the webhook.
struct Fixture {
    folder: PathBuf,
    agent: StandIn,
    chat: StandIn,
    /// More settings.
    more: Vec<(&'static str, &'static str)>,
}

impl Fixture {
    async fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-webhook-state-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        Self { folder, agent: StandIn::new().await, chat: StandIn::new().await, more: Vec::new() }
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = environment(&self.agent, &self.chat);
        variables.retain(|(name, _)| *name != "RATE_LIMIT_STORE");
        variables.push(("RATE_LIMIT_STORE", format!("file:{}", self.folder.display())));
        // A new hour during the test would allow more.
        variables.push(("RATE_LIMIT_ALGORITHM", "sliding".to_owned()));
        variables.push(("RATE_LIMIT_USERS", "9=unlimited".to_owned()));
        variables.extend(self.more.iter().map(|(name, value)| (*name, (*value).to_owned())));
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
        // A call whose response is not recorded would be made again.
        idle(&program).await;
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

/// Sends updates of user 7 at once, and kills the process after some responses; returns which
/// updates got a 200.
async fn killed_after(fixture: &Fixture, updates: i64, responses: usize) -> BTreeSet<i64> {
    let program = fixture.start().await;
    let address = program.address;
    let headers = format!("X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n");
    let mut sent = JoinSet::new();
    for update_id in 0..updates {
        let (headers, body) = (headers.clone(), update(update_id, 7).to_string());
        sent.spawn(async move {
            let response = try_post(address, &headers, body.as_bytes()).await;
            response.filter(|response| response.status == 200).map(|_| update_id)
        });
    }
    let mut answered = BTreeSet::new();
    for _ in 0..responses {
        answered.extend(sent.join_next().await.unwrap().unwrap());
    }
    program.ended_by("-KILL").await;
    answered.extend(sent.join_all().await.into_iter().flatten());
    answered
}

/// The calls of the agent so far, by update.
fn calls(agent: &mut StandIn, into: &mut BTreeMap<i64, usize>) {
    while let Some(call) = agent.received() {
        let update_id = call.body["update_id"].as_i64().unwrap();
        assert_eq!(call.headers["idempotency-key"], update_id.to_string());
        *into.entry(update_id).or_default() += 1;
    }
}

/// The process is killed at any point. What it accepted is dispatched after the restart, also if
/// Telegram does not resend it.
#[tokio::test(flavor = "multi_thread")]
async fn kill_at_any_point_loses_no_accepted_message_and_allows_no_more() {
    for (responses, max) in [(0, "20"), (1, "40"), (6, "40"), (13, "20"), (21, "40"), (29, "20")] {
        let mut fixture = Fixture::new().await;
        fixture.more = vec![("RATE_LIMIT_MAX", max)];
        let answered = killed_after(&fixture, 30, responses).await;
        let program = fixture.start().await;
        idle(&program).await;
        let mut seen = BTreeMap::new();
        calls(&mut fixture.agent, &mut seen);
        let dispatched = answered.iter().filter(|update_id| seen.contains_key(update_id)).count();
        // Below the limit a 200 means that it is dispatched.
        assert!(max == "20" || dispatched == answered.len(), "after {responses}: {seen:?}");
        for update_id in 0..30 {
            send(program.address, &update(update_id, 7)).await.is_ok();
        }
        idle(&program).await;
        program.ended_by("-TERM").await;
        calls(&mut fixture.agent, &mut seen);
        let expected = if max == "20" { 20 } else { 30 };
        assert_eq!(seen.len(), expected, "killed after {responses}: {seen:?}");
        // A call in flight is repeated at most once: the process was killed once.
        assert!(seen.values().all(|times| *times <= 2), "killed after {responses}: {seen:?}");
    }
}

/// Waits until nothing is open.
async fn idle(program: &Program) {
    until(program, |health| health["agent"]["open"] == 0 && health["replies"]["open"] == 0).await;
}

async fn until(program: &Program, is_so: impl Fn(&Value) -> bool) {
    let polled = async {
        while !is_so(&health(program.address).await) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, polled).await.expect("the condition in time");
}

/// With a slow agent almost everything is queued when the process is killed.
#[tokio::test]
async fn queue_survives_a_kill_without_telegram() {
    let mut fixture = Fixture::new().await;
    fixture.agent = StandIn::silent(axum::http::StatusCode::OK).await;
    fixture.more = vec![("AGENT_CONCURRENCY", "2"), ("RATE_LIMIT_MAX", "9")];
    let program = fixture.start().await;
    for update_id in 0..7 {
        send(program.address, &update(update_id, 7)).await.is_ok();
    }
    send(program.address, &update(7, 9)).await.is_ok();
    // Three get a response, which is recorded; two more are in flight.
    let mut expected: BTreeSet<i64> = (0..8).collect();
    for _ in 0..3 {
        // The second of two concurrent calls may arrive first.
        let update_id = fixture.agent.next().await.body["update_id"].as_i64().unwrap();
        expected.remove(&update_id);
        fixture.agent.respond(1);
    }
    until(&program, |health| health["agent"]["open"] == 5).await;
    let mut in_flight = BTreeSet::new();
    for _ in 0..2 {
        in_flight.insert(fixture.agent.next().await.body["update_id"].as_i64().unwrap());
    }
    assert!(fixture.agent.is_idle());
    program.ended_by("-KILL").await;

    let program = fixture.start().await;
    fixture.agent.respond(100);
    let mut again = Vec::new();
    for _ in 0..5 {
        let call = fixture.agent.next().await;
        let update_id = call.body["update_id"].as_i64().unwrap();
        let user = if update_id == 7 { 9 } else { 7 };
        assert_eq!(call.body, update(update_id, user), "unchanged");
        assert_eq!(call.headers["idempotency-key"], update_id.to_string());
        again.push(update_id);
    }
    idle(&program).await;
    assert_eq!(again.iter().copied().collect::<BTreeSet<_>>(), expected);
    assert!(in_flight.iter().all(|update_id| again.contains(update_id)));
    // Telegram resends all of them: nothing is dispatched or charged again.
    for update_id in 0..7 {
        send(program.address, &update(update_id, 7)).await.is_ok();
    }
    send(program.address, &update(7, 9)).await.is_ok();
    idle(&program).await;
    assert!(fixture.agent.is_idle() && fixture.chat.is_idle());
    fixture.pass(&program, 20..22).await;
    send(program.address, &update(22, 7)).await.is_ok();
    fixture.chat.next().await;
    // And once more: everything was answered.
    idle(&program).await;
    program.ended_by("-KILL").await;
    let program = fixture.start().await;
    idle(&program).await;
    send(program.address, &update(22, 7)).await.is_ok();
    idle(&program).await;
    assert!(fixture.agent.is_idle(), "nothing is left");
    assert!(fixture.chat.is_idle(), "one reply to a denied message, also over a restart");
}

/// A graceful stop leaves what is not delivered in time to the next start.
#[tokio::test]
async fn queue_survives_a_stop_that_takes_too_long() {
    let mut fixture = Fixture::new().await;
    fixture.agent = StandIn::silent(axum::http::StatusCode::OK).await;
    fixture.more = vec![("AGENT_CONCURRENCY", "1"), ("STOP_GRACE_MS", "50")];
    let program = fixture.start().await;
    for update_id in 0..4 {
        send(program.address, &update(update_id, 7)).await.is_ok();
    }
    let (_, log) = program.ended_by("-TERM").await;
    assert!(log.contains("stopped before all were delivered: the next start sends them"), "{log}");
    while fixture.agent.received().is_some() {}
    let program = fixture.start().await;
    fixture.agent.respond(100);
    for update_id in 0..4 {
        assert_eq!(fixture.agent.next().await.body["update_id"], update_id, "in their order");
    }
    idle(&program).await;
    assert!(fixture.agent.is_idle());
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
        let (_, log) = program.ended_by("-TERM").await;
        assert!(log.contains("RATE_LIMIT_STORE is memory"), "it says what it loses: {log}");
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
