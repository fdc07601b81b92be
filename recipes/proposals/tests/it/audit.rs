//! The event log: append-only, and the sum of it is the balance.

use serde_json::{Value, json};

use crate::ai::Ai;
use crate::support::{Scratch, easy, settings, started};

fn brief(events: &[Value]) -> Vec<(String, i64, String)> {
    let brief = |event: &Value| {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        (text("event"), event["tokens"].as_i64().unwrap_or(0), text("reason"))
    };
    events.iter().map(brief).collect()
}

#[tokio::test]
async fn every_token_change_is_logged_with_its_reason() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    let http = &server.http;
    let first = http.proposed("ada", 5, "a change").await;
    http.act("ada", &first, "cancel").await.ok();
    let second = http.proposed("ada", 1, "a change").await;
    http.act("ada", &second, "confirm").await.ok();
    http.vote("ada", &second, "yes").await.ok();
    http.next_window().await;
    let expected = [
        ("token.regenerated", 2, "enrolled"),
        ("token.spent", -2, "proposed at tier 5"),
        ("token.refunded", 2, "cancelled by its governor"),
        ("token.spent", -1, "proposed at tier 1"),
        ("proposal.confirmed", 0, ""),
        ("vote.cast", 0, "yes"),
        ("token.regenerated", 2, "window 1 closed"),
    ];
    let expected: Vec<_> =
        expected.iter().map(|it| (it.0.to_owned(), it.1, it.2.to_owned())).collect();
    let events = http.events("?governor=ada").await;
    assert_eq!(brief(&events), expected);
    assert_eq!(events[1]["proposal"], json!(first));
    for (who, left) in [("ada", 3), ("bob", 4), ("cy", 4)] {
        assert_eq!(
            (http.left(who).await.0, http.sum(who).await),
            (left, i64::try_from(left).unwrap())
        );
    }
    let all = brief(&http.events("").await);
    for other in ["proposal.interpreted", "round.played", "proposal.failed", "window.tallied"] {
        assert!(all.iter().any(|event| event.0 == other), "{other}: {all:?}");
    }
}

#[tokio::test]
async fn pages_have_no_gap_or_overlap() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    let http = &server.http;
    for _ in 0..4 {
        http.next_window().await;
    }
    let whole = http.events("").await;
    let (mut paged, mut after) = (Vec::new(), 0);
    loop {
        let page = http.get("ada", &format!("/v1/audit?limit=2&after={after}")).await.ok();
        let events = page["events"].as_array().unwrap();
        assert!(events.len() <= 4, "events of one entry stay together");
        paged.extend(events.iter().cloned());
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(paged, whole);
}
