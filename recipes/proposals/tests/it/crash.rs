//! `kill -9` at any point: acknowledged operations survive, and none happens twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::ai::Ai;
use crate::program::Program;
use crate::support::{Http, Scratch, TIMEOUT};

#[tokio::test]
async fn proposal_survives_a_kill_at_every_step() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let program = Program::started(&scratch, ai, &[]).await;
    let id = program.http.proposed("ada", 5, "a change").await;
    program.killed().await;
    let program = Program::started(&scratch, ai, &[]).await;
    let http = &program.http;
    assert_eq!((http.status(&id).await.as_str(), http.left("ada").await), ("interpreted", (0, 2)));
    http.act("ada", &id, "confirm").await.ok();
    program.killed().await;
    let program = Program::started(&scratch, ai, &[]).await;
    let http = &program.http;
    assert_eq!((http.status(&id).await.as_str(), http.left("ada").await), ("voting", (0, 2)));
    http.vote("bob", &id, "yes").await.ok();
    http.vote("cy", &id, "yes").await.ok();
    program.killed().await;
    let program = Program::started(&scratch, ai, &[]).await;
    let http = &program.http;
    http.post("host", "/v1/rounds", json!({ "round": 1 })).await.ok();
    program.killed().await;
    let program = Program::started(&scratch, ai, &[]).await;
    let http = &program.http;
    let tally = http.post("host", "/v1/tally", json!({})).await.ok();
    assert_eq!(tally["proposals"][0], json!({ "proposal": id, "yes": 2, "no": 0, "passed": true }));
    program.killed().await;
    let program = Program::started(&scratch, ai, &[]).await;
    let http = &program.http;
    assert_eq!((http.status(&id).await.as_str(), http.left("ada").await), ("passed", (2, 3)));
    assert_eq!(http.sum("ada").await, 2);
}

#[tokio::test]
async fn kill_while_interpreting_releases_tokens_and_slots() {
    let (scratch, mut ai) = (Scratch::new(), Ai::slow().await);
    let program = Program::started(&scratch, ai.address, &[]).await;
    let mut pending = Vec::new();
    for who in ["ada", "ada", "bob", "bob", "cy"] {
        let http = program.http.clone();
        pending.push(tokio::spawn(async move {
            let body = json!({ "tier": 1, "text": "a change" });
            http.try_send(who, (axum::http::Method::POST, "/v1/proposals"), Some(body)).await
        }));
    }
    let calls = [ai.next().await, ai.next().await, ai.next().await];
    for (who, count) in [("ada", 2), ("bob", 2), ("cy", 1)] {
        program.http.until(who, "interpreting", count).await;
    }
    program.killed().await;
    for one in pending {
        assert!(one.await.unwrap().is_none(), "there is no response");
    }
    drop(calls);
    let program = Program::started(&scratch, ai.address, &[]).await;
    for who in ["ada", "bob", "cy"] {
        assert_eq!((program.http.left(who).await, program.http.sum(who).await), ((2, 3), 2));
    }
    let events = program.http.events("?governor=cy").await;
    let reason = "the desk restarted before it was interpreted";
    assert_eq!(events.last().unwrap()["reason"], reason);
    // All three slots are free.
    let proposals = ["ada", "bob", "cy"].map(|who| {
        let http = program.http.clone();
        tokio::spawn(async move { http.propose(who, 1, "again").await })
    });
    let calls = [ai.next().await, ai.next().await, ai.next().await];
    calls.into_iter().for_each(crate::ai::Call::agree);
    for proposal in proposals {
        proposal.await.unwrap().ok();
    }
}

/// What clients got as responses, and so has to be true after any crash.
#[derive(Default)]
struct Acknowledged {
    proposed: BTreeSet<String>,
    confirmed: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    votes: BTreeSet<(String, String)>,
    /// By window: the cap that its tally set.
    tallies: BTreeMap<u64, Option<u64>>,
}

/// Concurrent clients, until the desk is gone.
#[derive(Clone)]
struct Clients {
    http: Http,
    acknowledged: Arc<Mutex<Acknowledged>>,
    responses: watch::Sender<u64>,
}

impl Clients {
    /// Sends a request and counts the response; `None` if the desk is gone.
    async fn send(&self, who: &str, path: &str, body: Value) -> Option<(u16, Value)> {
        let post = (axum::http::Method::POST, path);
        let response = self.http.try_send(who, post, Some(body)).await?;
        self.responses.send_modify(|count| *count += 1);
        Some((response.status, response.body))
    }

    fn note(&self, change: impl FnOnce(&mut Acknowledged)) {
        change(&mut self.acknowledged.lock().unwrap());
    }

    async fn governor(self, who: &'static str, mut random: Random) -> Option<()> {
        loop {
            let (tier, text) = match random.below(4) {
                0 => (4, format!("cap {}", 1 + random.below(10))),
                other => (other * 2, "a change".to_owned()),
            };
            let draft = json!({ "tier": tier, "text": text });
            let (status, body) = self.send(who, "/v1/proposals", draft).await?;
            if status == 201 {
                let id = body["id"].as_str().unwrap().to_owned();
                self.note(|acknowledged| acknowledged.proposed.extend([id.clone()]));
                let act = if random.below(3) == 0 { "cancel" } else { "confirm" };
                let path = format!("/v1/proposals/{id}/{act}");
                if self.send(who, &path, json!({})).await?.0 == 200 {
                    self.note(|acknowledged| {
                        let acted = if act == "cancel" {
                            &mut acknowledged.cancelled
                        } else {
                            &mut acknowledged.confirmed
                        };
                        acted.insert(id);
                    });
                }
            }
            let open = (axum::http::Method::GET, "/v1/proposals?status=voting");
            let open = self.http.try_send(who, open, None).await?;
            for proposal in open.body["proposals"].as_array()? {
                if proposal["votes"][who].is_null() {
                    let id = proposal["id"].as_str().unwrap().to_owned();
                    let path = format!("/v1/proposals/{id}/vote");
                    if self.send(who, &path, json!({ "vote": "yes" })).await?.0 == 200 {
                        self.note(|acknowledged| acknowledged.votes.extend([(id, who.to_owned())]));
                    }
                }
            }
        }
    }

    async fn host(self, mut round: u64) -> Option<()> {
        loop {
            round += 1;
            assert_eq!(self.send("host", "/v1/rounds", json!({ "round": round })).await?.0, 200);
            let (status, tally) = self.send("host", "/v1/tally", json!({})).await?;
            assert_eq!(status, 200, "{tally}");
            let window = tally["window"].as_u64().unwrap();
            let cap = tally["proposals_per_window"].as_u64();
            self.note(|acknowledged| acknowledged.tallies.extend([(window, cap)]));
        }
    }
}

#[tokio::test]
async fn repeated_kills_lose_no_acknowledged_operation() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
    let mut random = Random(20_261_115);
    for cycle in 0..10 {
        // Also during the start.
        Program::spawned(&scratch, ai, &[]).killed().await;
        let program = Program::started(&scratch, ai, &[]).await;
        let so_far = acknowledged.lock().unwrap().copy();
        check(&program.http, &so_far).await;
        let last = program.http.get("host", "/v1/window").await.ok()["rounds"]["last"].as_u64();
        let (responses, mut counted) = watch::channel(0);
        let clients = Clients {
            http: program.http.clone(),
            acknowledged: Arc::clone(&acknowledged),
            responses,
        };
        let mut tasks = vec![tokio::spawn(clients.clone().host(last.unwrap()))];
        for who in ["ada", "bob", "cy"] {
            tasks.push(tokio::spawn(clients.clone().governor(who, Random(random.next()))));
        }
        let enough = 5 + random.below(60);
        let waiting = counted.wait_for(|count| *count >= enough);
        timeout(TIMEOUT, waiting).await.expect("the responses in time").unwrap();
        program.killed().await;
        for task in tasks {
            assert_eq!(task.await.unwrap(), None, "cycle {cycle}");
        }
    }
    let program = Program::started(&scratch, ai, &[]).await;
    let acknowledged = acknowledged.lock().unwrap().copy();
    check(&program.http, &acknowledged).await;
    assert!(
        acknowledged.votes.len() > 10
            && acknowledged.tallies.len() > 5
            && acknowledged.cancelled.len() > 1
    );
}

/// Checks that everything is as acknowledged, and adds up.
async fn check(http: &Http, acknowledged: &Acknowledged) {
    let listed = http.get("ada", "/v1/proposals").await.ok();
    let listed = listed["proposals"].as_array().unwrap();
    let known: BTreeMap<&str, &Value> =
        listed.iter().map(|it| (it["id"].as_str().unwrap(), it)).collect();
    let status = |id: &str| known[id]["status"].as_str().unwrap();
    assert!(known.keys().all(|id| status(id) != "interpreting"));
    assert!(acknowledged.proposed.iter().all(|id| known.contains_key(id.as_str())));
    for id in &acknowledged.confirmed {
        assert!(
            matches!(status(id), "voting" | "passed" | "failed"),
            "{id}: {}",
            known[id.as_str()]
        );
    }
    for id in &acknowledged.cancelled {
        assert_eq!(status(id), "cancelled");
    }
    for (id, who) in &acknowledged.votes {
        assert_eq!(known[id.as_str()]["votes"][who], "yes");
    }
    let window = http.get("ada", "/v1/window").await.ok();
    let mut caps: BTreeMap<u64, u64> = BTreeMap::new();
    for it in window["closed"].as_array().unwrap().iter().chain([&window]) {
        let number = it["window"].as_u64().unwrap();
        let before = caps.insert(number, it["proposals_per_window"].as_u64().unwrap());
        assert_eq!(before, None, "window {number} was closed once");
    }
    for (number, cap) in &acknowledged.tallies {
        let expected = cap.unwrap_or(caps[number]);
        assert_eq!(caps[&(number + 1)], expected, "after the tally of window {number}: {caps:?}");
    }
    for who in ["ada", "bob", "cy"] {
        let left = http.left(who).await.0;
        assert_eq!(i64::try_from(left).unwrap(), http.sum(who).await, "{who}");
    }
}

impl Acknowledged {
    fn copy(&self) -> Self {
        Self {
            proposed: self.proposed.clone(),
            confirmed: self.confirmed.clone(),
            cancelled: self.cancelled.clone(),
            votes: self.votes.clone(),
            tallies: self.tallies.clone(),
        }
    }
}

/// Pseudo-random numbers, the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
