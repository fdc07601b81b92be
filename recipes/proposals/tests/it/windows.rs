//! Proposals that are open when a window closes: they take no room in the next one, and no window
//! confirms more than its cap.

use std::collections::BTreeMap;

use crate::ai::Ai;
use crate::program::Program;
use crate::support::{Http, Scratch};

const CAP_REACHED: &str = "You've used all your proposals for this governance window. Your limit \
     resets after the next governance tally.";

/// How many proposals of a governor were confirmed in each window, by the log.
async fn confirmed(http: &Http, who: &str) -> Vec<u64> {
    let (mut window, mut counts) = (1, BTreeMap::new());
    for event in http.events("?limit=10000").await {
        match event["event"].as_str().unwrap() {
            "window.tallied" => window += 1,
            "proposal.confirmed" if event["governor"] == who => {
                *counts.entry(window).or_insert(0) += 1;
            }
            _ => {}
        }
    }
    (1..=window).map(|window| counts.get(&window).copied().unwrap_or(0)).collect()
}

#[tokio::test]
async fn no_window_confirms_more_than_its_cap() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let cap = [("PROPOSALS_PER_WINDOW", "2")];
    let program = Program::started(&scratch, ai, &cap).await;
    let http = &program.http;
    let old = [http.proposed("ada", 1, "one").await, http.proposed("ada", 1, "two").await];
    http.propose("ada", 1, "three").await.denied(402, crate::windows::NO_TOKENS);
    http.next_window().await;
    // They take no room here.
    assert_eq!(http.left("ada").await, (2, 2));
    let new = [http.proposed("ada", 1, "three").await, http.proposed("ada", 1, "four").await];
    http.act("ada", &new[0], "confirm").await.ok();
    // The other one is still open, and its place is taken.
    http.act("ada", &old[0], "confirm").await.denied(429, CAP_REACHED);
    http.act("ada", &new[1], "confirm").await.ok();
    http.act("ada", &old[0], "confirm").await.denied(429, CAP_REACHED);
    assert_eq!(confirmed(http, "ada").await, [0, 2]);
    http.next_window().await;
    // It counts where it is confirmed, once, also after a crash.
    http.act("ada", &old[0], "confirm").await.ok();
    assert_eq!(http.act("ada", &old[0], "confirm").await.status, 409);
    assert_eq!(http.left("ada").await, (2, 1));
    program.killed().await;
    let program = Program::started(&scratch, ai, &cap).await;
    let http = &program.http;
    assert_eq!(http.left("ada").await, (2, 1));
    http.act("ada", &old[1], "confirm").await.ok();
    assert_eq!(http.left("ada").await, (2, 0));
    http.propose("ada", 1, "five").await.denied(429, CAP_REACHED);
    assert_eq!(confirmed(http, "ada").await, [0, 2, 2]);
    http.next_window().await;
    assert_eq!(http.left("ada").await, (4, 2));
    assert_eq!(http.sum("ada").await, 4);
}

const NO_TOKENS: &str = "You don't have enough PROPOSE tokens for this proposal: you have 0. Every \
     governance tally adds 2.";

#[tokio::test]
async fn cancelled_proposal_of_an_earlier_window_changes_no_cap() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let program = Program::started(&scratch, ai, &[("PROPOSALS_PER_WINDOW", "1")]).await;
    let http = &program.http;
    let old = http.proposed("bob", 2, "one").await;
    http.next_window().await;
    let new = http.proposed("bob", 2, "two").await;
    http.act("bob", &old, "cancel").await.ok();
    assert_eq!(http.left("bob").await, (3, 0));
    http.act("bob", &new, "cancel").await.ok();
    assert_eq!(http.left("bob").await, (4, 1));
    assert_eq!(http.act("bob", &old, "confirm").await.status, 409);
    assert_eq!(http.left("bob").await, (4, 1), "a failed confirmation takes no place");
}

#[tokio::test]
async fn concurrent_confirmations_of_earlier_proposals_stay_below_the_cap() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let program = Program::started(&scratch, ai, &[("PROPOSALS_PER_WINDOW", "3")]).await;
    let http = &program.http;
    let mut open = Vec::new();
    for _ in 0..3 {
        for _ in 0..2 {
            open.push(http.proposed("cy", 1, "a change").await);
        }
        http.next_window().await;
    }
    let confirm = |id: &String| {
        let (http, id) = (http.clone(), id.clone());
        tokio::spawn(async move { http.act("cy", &id, "confirm").await.status })
    };
    let mut statuses = Vec::new();
    let confirming: Vec<_> = open.iter().chain(&open).map(confirm).collect();
    for status in confirming {
        statuses.push(status.await.unwrap());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 3, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 409, 429].contains(status)), "{statuses:?}");
    assert_eq!((http.left("cy").await.1, confirmed(http, "cy").await), (0, vec![0, 0, 0, 3]));
}
