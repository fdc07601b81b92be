//! A restarted desk has the same state, apart from the cooldown.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::durable::FileOptions;
use tidegate::{Edit, StoreEngine};
use tidegate_proposals::{Governors, Limits, Note, ProposalTally, Tally};

use crate::ai::Ai;
use crate::support::{Http, Scratch, easy, settings, started, started_at};

async fn seen(http: &Http) -> Vec<Value> {
    let mut seen = Vec::new();
    for path in ["/v1/proposals", "/v1/window", "/v1/balances"] {
        seen.push(http.get("ada", path).await.ok());
    }
    seen
}

#[tokio::test]
async fn state_survives_a_restart() {
    let scratch = Scratch::new();
    let settings = settings(&scratch, Ai::quick().await, easy());
    let server = started(&settings).await;
    let http = &server.http;
    http.carried("ada", 4, "cap 5").await;
    http.next_window().await;
    http.proposed("ada", 1, "waits to be confirmed").await;
    let cancelled = http.proposed("bob", 5, "is cancelled").await;
    http.act("bob", &cancelled, "cancel").await.ok();
    let voting = http.proposed("cy", 2, "is voted on").await;
    http.act("cy", &voting, "confirm").await.ok();
    http.vote("ada", &voting, "no").await.ok();
    let before = seen(http).await;
    let events = http.events("").await;
    let clock = server.stopped().await;
    let server = started_at(&settings, clock).await;
    assert_eq!(seen(&server.http).await, before);
    assert_eq!(server.http.events("").await, events);
}

/// In an outage the engine undoes what it could not write, and says so in the ledger.
#[tokio::test]
async fn a_desk_restarts_after_an_outage() {
    let scratch = Scratch::new();
    let settings = settings(&scratch, Ai::quick().await, easy());
    let server = started(&settings).await;
    server.http.proposed("ada", 1, "before").await;
    let before = seen(&server.http).await;
    let away = settings.store.with_extension("away");
    std::fs::rename(&settings.store, &away).unwrap();
    assert_eq!(server.http.propose("ada", 1, "in the outage").await.status, 503);
    std::fs::rename(&away, &settings.store).unwrap();
    let mut is_back = false;
    while !is_back {
        let proposed = server.http.propose("bob", 1, "after").await;
        is_back = proposed.status != 503;
    }
    let clock = server.stopped().await;
    let ledger = tidegate::durable::Ledger::open(&settings.store).unwrap();
    let entries = ledger.entries(&tidegate::durable::Filter::new()).unwrap();
    assert!(entries.map(Result::unwrap).any(|entry| entry.cause.is_some()), "it was undone");
    let server = started_at(&settings, clock).await;
    assert_ne!(seen(&server.http).await, before);
}

#[tokio::test]
async fn cooldown_is_gone_after_a_restart() {
    let scratch = Scratch::new();
    let settings = settings(&scratch, Ai::quick().await, Limits::default());
    let server = started(&settings).await;
    server.http.proposed("ada", 1, "a change").await;
    assert_eq!(server.http.propose("ada", 1, "another").await.status, 429);
    let clock = server.stopped().await;
    let server = started_at(&settings, clock).await;
    server.http.proposed("ada", 1, "another").await;
}

#[tokio::test]
async fn expired_holds_are_released_and_the_rest_gets_the_full_time_again() {
    let scratch = Scratch::new();
    let settings = settings(&scratch, Ai::quick().await, easy());
    let server = started(&settings).await;
    let old = server.http.proposed("ada", 1, "a change").await;
    server.clock.advance(Duration::from_secs(590));
    let young = server.http.proposed("ada", 1, "a change").await;
    let clock = server.stopped().await;
    clock.advance(Duration::from_secs(10));
    let server = started_at(&settings, clock).await;
    let http = &server.http;
    assert_eq!((http.status(&old).await, http.left("ada").await.0), ("expired".into(), 1));
    server.clock.advance(Duration::from_secs(595));
    assert_eq!(http.status(&young).await, "interpreted");
    http.act("ada", &young, "confirm").await.ok();
    assert_eq!((http.left("ada").await.0, http.sum("ada").await), (1, 1));
}

#[tokio::test]
async fn new_governor_begins_with_two_tokens() {
    let scratch = Scratch::new();
    let mut settings = settings(&scratch, Ai::quick().await, easy());
    let server = started(&settings).await;
    server.http.next_window().await;
    let clock = server.stopped().await;
    settings.governors =
        Governors::from_text("ada:ada-secret,di:di-secret", "host-secret").unwrap();
    let server = started_at(&settings, clock).await;
    let http = &server.http;
    assert_eq!((http.left("di").await.0, http.sum("di").await), (2, 2));
    http.next_window().await;
    for (who, tokens) in [("ada", 6), ("di", 4)] {
        assert_eq!(
            (http.left(who).await.0, http.sum(who).await),
            (tokens, i64::try_from(tokens).unwrap())
        );
    }
    assert_eq!(
        http.get("bob", "/v1/balances").await.status,
        401,
        "a governor who is not listed is unauthenticated"
    );
}

/// How much of a tally is written when the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Upto {
    Votes,
    Rule,
    End,
}

#[tokio::test]
async fn interrupted_tally_is_finished_at_the_next_start() {
    for upto in [Upto::Votes, Upto::Rule, Upto::End] {
        let scratch = Scratch::new();
        let settings = settings(&scratch, Ai::quick().await, easy());
        let server = started(&settings).await;
        let id = server.http.carried("ada", 4, "cap 1").await;
        server.http.post("host", "/v1/rounds", json!({ "round": 1 })).await.ok();
        let clock = server.stopped().await;
        // The steps of a tally by hand, up to this point.
        let policy = settings.limits.policy().unwrap();
        let store = FileOptions::default().open(&settings.store).unwrap();
        let engine =
            StoreEngine::builder(policy).store(store).clock(clock.clone()).build().unwrap();
        let counted = ProposalTally { proposal: id.parse().unwrap(), yes: 3, no: 0, passed: true };
        let tally = Tally {
            window: 1,
            governors: 3,
            proposals: vec![counted],
            proposals_per_window: Some(1),
        };
        engine.note("proposals", &Note::Tallied(tally).to_text()).block().unwrap();
        if upto >= Upto::Rule {
            engine
                .edit("a test", Edit::rule(settings.limits.cap_rule(1).unwrap()))
                .block()
                .unwrap();
        }
        if upto >= Upto::End {
            let note = Note::WindowClosed { window: 1, proposals_per_window: 3, tokens: 2 };
            engine.close_round("proposals", &note.to_text()).block().unwrap();
        }
        drop(engine);
        for _ in 0..2 {
            let server = started_at(&settings, clock.clone()).await;
            let http = &server.http;
            let window = http.get("ada", "/v1/window").await.ok();
            let closed = json!([{ "window": 1, "proposals_per_window": 3 }]);
            assert_eq!((&window["window"], &window["closed"]), (&json!(2), &closed), "{upto:?}");
            assert_eq!(http.left("ada").await, (3, 1), "{upto:?}");
            assert_eq!(http.sum("ada").await, 3, "{upto:?}");
            assert_eq!(http.status(&id).await, "passed");
            server.stopped().await;
        }
    }
}
