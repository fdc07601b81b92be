//! The cap is governed: a vote changes it, from the next window on.

use serde_json::json;

use crate::ai::Ai;
use crate::support::{Scratch, easy, settings, started};

#[tokio::test]
async fn passed_proposal_changes_the_cap_from_the_next_window_on() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    let http = &server.http;
    http.next_window().await;
    http.carried("ada", 4, "cap 1").await;
    for _ in 0..2 {
        http.proposed("ada", 1, "the old cap is in force until the tally").await;
    }
    let tally = http.next_window().await;
    assert_eq!(tally["proposals_per_window"], 1);
    let window = http.get("ada", "/v1/window").await.ok();
    assert_eq!(window["proposals_per_window"], 1);
    assert_eq!(
        window["closed"],
        json!([
            { "window": 1, "proposals_per_window": 3 },
            { "window": 2, "proposals_per_window": 3 }
        ])
    );
    http.proposed("bob", 1, "the first").await;
    let response = http.propose("bob", 1, "the second").await;
    assert_eq!(response.status, 429, "{response:?}");
    assert_eq!(http.left("bob").await, (5, 0), "despite tokens");
    // And up again, to the maximum.
    http.carried("cy", 4, "cap 10").await;
    http.next_window().await;
    assert_eq!(http.left("cy").await, (7, 10));
    let events = http.events("").await;
    let changes = events.iter().filter(|event| event["event"] == "cap.changed").count();
    assert_eq!(changes, 2);
}

#[tokio::test]
async fn changing_the_cap_needs_a_supermajority() {
    let scratch = Scratch::new();
    let mut settings = settings(&scratch, Ai::quick().await, easy());
    let list = "ada:ada-secret,bob:bob-secret,cy:cy-secret,di:di-secret,ed:ed-secret";
    settings.governors = tidegate_proposals::Governors::from_text(list, "host-secret").unwrap();
    let server = started(&settings).await;
    let http = &server.http;
    let id = http.proposed("ada", 4, "cap 5").await;
    http.act("ada", &id, "confirm").await.ok();
    for (who, vote) in [("ada", "yes"), ("bob", "yes"), ("cy", "yes"), ("di", "no"), ("ed", "no")] {
        http.vote(who, &id, vote).await.ok();
    }
    let tally = http.next_window().await;
    assert_eq!(tally["proposals"][0]["passed"], false, "three of five are less than two thirds");
    assert_eq!(http.left("ada").await, (3, 3));
}

#[tokio::test]
async fn of_two_changes_the_one_confirmed_last_applies() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    let http = &server.http;
    http.carried("ada", 4, "cap 5").await;
    http.carried("bob", 4, "cap 7").await;
    assert_eq!(http.next_window().await["proposals_per_window"], 7);
    assert_eq!(http.left("cy").await, (4, 7));
}
