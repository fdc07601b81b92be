//! `kill -9`, at any point: what was answered is there, and nothing is there twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::ai::Ai;
use crate::program::Program;
use crate::support::{Http, PATIENCE, Scratch};

#[tokio::test]
async fn after_propose_the_proposal_waits_for_its_governor() {
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
async fn while_it_is_interpreted_the_tokens_come_back_and_so_do_the_places() {
    let (scratch, mut ai) = (Scratch::new(), Ai::slow().await);
    let program = Program::started(&scratch, ai.address, &[]).await;
    let mut asking = Vec::new();
    for who in ["ada", "ada", "bob", "bob", "cy"] {
        let http = program.http.clone();
        asking.push(tokio::spawn(async move {
            let body = json!({ "tier": 1, "text": "a change" });
            http.try_send(who, (axum::http::Method::POST, "/v1/proposals"), Some(body)).await
        }));
    }
    let calls = [ai.next().await, ai.next().await, ai.next().await];
    for (who, count) in [("ada", 2), ("bob", 2), ("cy", 1)] {
        program.http.until(who, "interpreting", count).await;
    }
    program.killed().await;
    for one in asking {
        assert!(one.await.unwrap().is_none(), "nobody is told anything");
    }
    drop(calls);
    let program = Program::started(&scratch, ai.address, &[]).await;
    for who in ["ada", "bob", "cy"] {
        assert_eq!((program.http.left(who).await, program.http.sum(who).await), ((2, 3), 2));
    }
    let events = program.http.events("?governor=cy").await;
    let reason = "the desk was restarted before it was interpreted";
    assert_eq!(events.last().unwrap()["reason"], reason);
    // All three places are free.
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

/// What clients were told, and so has to be true after any crash.
#[derive(Default)]
struct Told {
    proposed: BTreeSet<String>,
    confirmed: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    votes: BTreeSet<(String, String)>,
    /// By window: the cap that its tally has set.
    tallies: BTreeMap<u64, Option<u64>>,
}

/// Everything that clients do at the same time, until the desk is gone.
#[derive(Clone)]
struct Crowd {
    http: Http,
    told: Arc<Mutex<Told>>,
    answers: watch::Sender<u64>,
}

impl Crowd {
    /// Asks, and counts the answer; `None` if the desk is gone.
    async fn ask(&self, who: &str, path: &str, body: Value) -> Option<(u16, Value)> {
        let post = (axum::http::Method::POST, path);
        let answer = self.http.try_send(who, post, Some(body)).await?;
        self.answers.send_modify(|count| *count += 1);
        Some((answer.status, answer.body))
    }

    fn note(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told.lock().unwrap());
    }

    async fn governor(self, who: &'static str, mut random: Random) -> Option<()> {
        loop {
            let (tier, text) = match random.below(4) {
                0 => (4, format!("cap {}", 1 + random.below(10))),
                other => (other * 2, "a change".to_owned()),
            };
            let draft = json!({ "tier": tier, "text": text });
            let (status, body) = self.ask(who, "/v1/proposals", draft).await?;
            if status == 201 {
                let id = body["id"].as_str().unwrap().to_owned();
                self.note(|told| told.proposed.extend([id.clone()]));
                let act = if random.below(3) == 0 { "cancel" } else { "confirm" };
                let path = format!("/v1/proposals/{id}/{act}");
                if self.ask(who, &path, json!({})).await?.0 == 200 {
                    self.note(|told| {
                        let acted =
                            if act == "cancel" { &mut told.cancelled } else { &mut told.confirmed };
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
                    if self.ask(who, &path, json!({ "vote": "yes" })).await?.0 == 200 {
                        self.note(|told| told.votes.extend([(id, who.to_owned())]));
                    }
                }
            }
        }
    }

    async fn host(self, mut round: u64) -> Option<()> {
        loop {
            round += 1;
            assert_eq!(self.ask("host", "/v1/rounds", json!({ "round": round })).await?.0, 200);
            let (status, tally) = self.ask("host", "/v1/tally", json!({})).await?;
            assert_eq!(status, 200, "{tally}");
            let window = tally["window"].as_u64().unwrap();
            let cap = tally["proposals_per_window"].as_u64();
            self.note(|told| told.tallies.extend([(window, cap)]));
        }
    }
}

#[tokio::test]
async fn killed_again_and_again_it_never_forgets_what_it_has_answered() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let told = Arc::new(Mutex::new(Told::default()));
    let mut random = Random(20_261_115);
    for cycle in 0..10 {
        // Also while it starts.
        Program::spawned(&scratch, ai, &[]).killed().await;
        let program = Program::started(&scratch, ai, &[]).await;
        let so_far = told.lock().unwrap().copy();
        check(&program.http, &so_far).await;
        let last = program.http.get("host", "/v1/window").await.ok()["rounds"]["last"].as_u64();
        let (answers, mut counted) = watch::channel(0);
        let crowd = Crowd { http: program.http.clone(), told: Arc::clone(&told), answers };
        let mut tasks = vec![tokio::spawn(crowd.clone().host(last.unwrap()))];
        for who in ["ada", "bob", "cy"] {
            tasks.push(tokio::spawn(crowd.clone().governor(who, Random(random.next()))));
        }
        let enough = 5 + random.below(60);
        let waiting = counted.wait_for(|count| *count >= enough);
        timeout(PATIENCE, waiting).await.expect("it in time").unwrap();
        program.killed().await;
        for task in tasks {
            assert_eq!(task.await.unwrap(), None, "cycle {cycle}");
        }
    }
    let program = Program::started(&scratch, ai, &[]).await;
    let told = told.lock().unwrap().copy();
    check(&program.http, &told).await;
    assert!(told.votes.len() > 10 && told.tallies.len() > 5 && told.cancelled.len() > 1);
}

/// That everything is as clients were told, and adds up.
async fn check(http: &Http, told: &Told) {
    let listed = http.get("ada", "/v1/proposals").await.ok();
    let listed = listed["proposals"].as_array().unwrap();
    let known: BTreeMap<&str, &Value> =
        listed.iter().map(|it| (it["id"].as_str().unwrap(), it)).collect();
    let status = |id: &str| known[id]["status"].as_str().unwrap();
    assert!(known.keys().all(|id| status(id) != "interpreting"));
    assert!(told.proposed.iter().all(|id| known.contains_key(id.as_str())));
    for id in &told.confirmed {
        assert!(
            matches!(status(id), "voting" | "passed" | "failed"),
            "{id}: {}",
            known[id.as_str()]
        );
    }
    for id in &told.cancelled {
        assert_eq!(status(id), "cancelled");
    }
    for (id, who) in &told.votes {
        assert_eq!(known[id.as_str()]["votes"][who], "yes");
    }
    let window = http.get("ada", "/v1/window").await.ok();
    let mut caps: BTreeMap<u64, u64> = BTreeMap::new();
    for it in window["closed"].as_array().unwrap().iter().chain([&window]) {
        let number = it["window"].as_u64().unwrap();
        let before = caps.insert(number, it["proposals_per_window"].as_u64().unwrap());
        assert_eq!(before, None, "window {number} was closed once");
    }
    for (number, cap) in &told.tallies {
        let expected = cap.unwrap_or(caps[number]);
        assert_eq!(caps[&(number + 1)], expected, "after the tally of window {number}: {caps:?}");
    }
    for who in ["ada", "bob", "cy"] {
        let left = http.left(who).await.0;
        assert_eq!(i64::try_from(left).unwrap(), http.sum(who).await, "{who}");
    }
}

impl Told {
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

/// Numbers that look random and are the same each time.
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
