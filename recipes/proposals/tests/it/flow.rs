//! From a proposal to its tally.

use std::time::Duration;

use serde_json::json;
use tidegate_proposals::Limits;

use crate::ai::Ai;
use crate::support::{Scratch, easy, settings, started};

#[tokio::test]
async fn whole_flow() {
    let scratch = Scratch::new();
    let mut settings = settings(&scratch, Ai::quick().await, easy());
    settings.interval = 2;
    let server = started(&settings).await;
    let http = &server.http;
    let proposal = http.propose("ada", 2, "three-point shots count four").await.ok();
    assert_eq!(proposal["status"], "interpreted");
    assert_eq!(proposal["interpretation"]["summary"], "three-point shots count four, as I see it");
    assert_eq!(proposal["governor"], "ada");
    let id = proposal["id"].as_str().unwrap();
    http.vote("bob", id, "yes")
        .await
        .denied(409, "The proposal cannot be voted on: it waits for its governor's confirmation.");
    let other = http.proposed("bob", 5, "games last an hour").await;
    for (who, id) in [("ada", id), ("bob", &other)] {
        assert_eq!(http.act(who, id, "confirm").await.ok()["status"], "voting");
    }
    for (who, first, second) in [("ada", "yes", "no"), ("bob", "yes", "no"), ("cy", "no", "yes")] {
        http.vote(who, id, first).await.ok();
        http.vote(who, &other, second).await.ok();
    }
    // Votes can change until the tally.
    http.vote("cy", id, "yes").await.ok();
    http.post("host", "/v1/tally", json!({}))
        .await
        .denied(409, "The window spans 2 rounds of the game; 0 of them were played.");
    let window = http.post("host", "/v1/rounds", json!({ "round": 41 })).await.ok();
    assert_eq!((&window["due"], &window["rounds"]["in_window"]), (&json!(false), &json!(1)));
    http.post("host", "/v1/rounds", json!({ "round": 41 })).await.ok();
    http.post("host", "/v1/rounds", json!({ "round": 43 }))
        .await
        .denied(409, "Round 43 does not follow round 41.");
    let window = http.post("host", "/v1/rounds", json!({ "round": 42 })).await.ok();
    assert_eq!((&window["due"], &window["window"]), (&json!(true), &json!(1)));
    let tally = http.post("host", "/v1/tally", json!({})).await.ok();
    assert_eq!(
        tally,
        json!({ "window": 1, "governors": 3, "proposals": [
            { "proposal": id, "yes": 3, "no": 0, "passed": true },
            { "proposal": other, "yes": 1, "no": 2, "passed": false },
        ] })
    );
    assert_eq!(
        (http.status(id).await.as_str(), http.status(&other).await.as_str()),
        ("passed", "failed")
    );
    let window = http.get("ada", "/v1/window").await.ok();
    assert_eq!(
        window,
        json!({ "window": 2, "proposals_per_window": 3, "interval": 2, "due": false,
            "rounds": { "last": 42, "in_window": 0 },
            "closed": [{ "window": 1, "proposals_per_window": 3 }] })
    );
    assert_eq!((http.left("ada").await, http.left("bob").await), ((3, 3), (2, 3)));
    http.vote("cy", id, "no").await.denied(409, "The proposal cannot be voted on: it has passed.");
}

#[tokio::test]
async fn cancel_releases_tokens_and_cap_but_not_the_cooldown() {
    let scratch = Scratch::new();
    let limits = Limits { proposals_per_window: 1, ..Limits::default() };
    let server = started(&settings(&scratch, Ai::quick().await, limits)).await;
    let http = &server.http;
    let id = http.proposed("ada", 5, "a change").await;
    assert_eq!(http.left("ada").await, (0, 0));
    let cancelled = http.act("ada", &id, "cancel").await.ok();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(cancelled["reason"], "cancelled by its governor");
    assert_eq!(http.left("ada").await, (2, 1));
    http.propose("ada", 1, "another")
        .await
        .denied(429, "Please wait 60 seconds before submitting another proposal.");
    for act in ["cancel", "confirm"] {
        assert_eq!(http.act("ada", &id, act).await.status, 409);
    }
    assert_eq!(http.left("ada").await, (2, 1), "nothing is released twice");
}

#[tokio::test]
async fn unconfirmed_proposal_expires() {
    let scratch = Scratch::new();
    let limits = Limits { confirm_within: Duration::from_secs(300), ..easy() };
    let server = started(&settings(&scratch, Ai::quick().await, limits)).await;
    let http = &server.http;
    let id = http.proposed("ada", 5, "a change").await;
    server.clock.advance(Duration::from_secs(299));
    assert_eq!((http.left("ada").await, http.status(&id).await.as_str()), ((0, 2), "interpreted"));
    server.clock.advance(Duration::from_secs(1));
    assert_eq!((http.left("ada").await, http.status(&id).await.as_str()), ((2, 3), "expired"));
    assert_eq!(http.act("ada", &id, "confirm").await.status, 409);
    assert_eq!(http.sum("ada").await, 2);
    let events = http.events("?governor=ada").await;
    let last = events.last().unwrap();
    assert_eq!(last["event"], "token.refunded");
    assert_eq!(last["reason"], "not confirmed in time");
}

#[tokio::test]
async fn confirmed_tokens_are_spent() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    let http = &server.http;
    let id = http.proposed("ada", 6, "a change").await;
    http.act("ada", &id, "confirm").await.ok();
    http.act("ada", &id, "cancel")
        .await
        .denied(409, "The proposal cannot be cancelled: it was confirmed and is being voted on.");
    http.act("ada", &id, "confirm")
        .await
        .denied(409, "The proposal cannot be confirmed: it was confirmed and is being voted on.");
    server.clock.advance(Duration::from_secs(100_000));
    assert_eq!((http.left("ada").await, http.status(&id).await.as_str()), ((0, 2), "voting"));
}

#[tokio::test]
async fn proposal_not_confirmed_by_the_tally_waits_for_the_next() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    let http = &server.http;
    let id = http.proposed("ada", 1, "a change").await;
    assert_eq!(http.next_window().await["proposals"], json!([]));
    assert_eq!(http.left("ada").await, (3, 3), "its token stays held; each window has its own cap");
    http.act("ada", &id, "confirm").await.ok();
    http.vote("ada", &id, "yes").await.ok();
    let tally = http.next_window().await;
    assert_eq!(tally["proposals"][0]["passed"], false, "one of three is no quorum");
    assert_eq!(tally["window"], 2);
}
