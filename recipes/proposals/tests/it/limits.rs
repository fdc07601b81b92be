//! Tokens, cap and cooldown: three limits, one decision.

use std::time::Duration;

use serde_json::json;
use tidegate::Timestamp;
use tidegate_proposals::Limits;

use crate::ai::Ai;
use crate::support::{Scratch, Server, easy, settings, started};

const CAP_REACHED: &str = "You've used all your proposals for this governance window. Your limit \
     resets after the next governance tally.";

fn no_tokens(left: u64) -> String {
    format!(
        "You don't have enough PROPOSE tokens for this proposal: you have {left}. Every \
         governance tally adds 2."
    )
}

async fn desk(limits: Limits) -> (Scratch, Server) {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, limits)).await;
    (scratch, server)
}

#[tokio::test]
async fn of_five_attempts_with_two_tokens_the_last_three_fail() {
    let (_scratch, server) = desk(easy()).await;
    for attempt in 0..5 {
        let response = server.http.propose("ada", 1, "more ice cream").await;
        if attempt < 2 {
            response.ok();
        } else {
            assert_eq!(response.body["violated-policies"], json!(["propose-tokens"]));
            assert_eq!(response.body["retry"], "unknown");
            assert!(!response.headers.contains_key("retry-after"));
            response.denied(402, &no_tokens(0));
        }
    }
    assert_eq!(server.http.left("ada").await, (0, 1));
    assert_eq!(server.http.left("bob").await, (2, 3), "each governor has separate tokens");
}

#[tokio::test]
async fn same_attempts_with_the_cooldown_and_more_than_a_minute_apart() {
    let (_scratch, server) = desk(Limits::default()).await;
    for attempt in 0..5 {
        let response = server.http.propose("ada", 1, "more ice cream").await;
        if attempt < 2 {
            drop(response.ok())
        } else {
            response.denied(402, &no_tokens(0))
        }
        server.clock.advance(Duration::from_secs(61));
    }
}

#[tokio::test]
async fn cap_of_one_denies_the_second_despite_tokens() {
    let (_scratch, server) = desk(Limits { proposals_per_window: 1, ..easy() }).await;
    let id = server.http.proposed("ada", 1, "more ice cream").await;
    server.http.propose("ada", 1, "even more").await.denied(429, CAP_REACHED);
    assert_eq!(server.http.left("ada").await, (1, 0));
    server.http.next_window().await;
    // The first one is not confirmed yet: its token stays held, but the new window has its own cap.
    assert_eq!(server.http.left("ada").await, (3, 1));
    server.http.proposed("ada", 1, "even more").await;
    server.http.propose("ada", 1, "and more").await.denied(429, CAP_REACHED);
    // Its governor cancels it, which returns the token and nothing to the cap.
    server.http.act("ada", &id, "cancel").await.ok();
    assert_eq!(server.http.left("ada").await, (3, 0));
}

#[tokio::test]
async fn cooldown_denies_until_a_minute_has_passed() {
    let (_scratch, server) = desk(Limits::default()).await;
    server.http.proposed("ada", 1, "more ice cream").await;
    let at_ms = |ms: u64| Timestamp::from_nanos((1_700_000_000_000 + ms) * 1_000_000);
    for (passed_ms, left) in [(0, 60), (1, 60), (1_000, 59), (58_999, 2), (59_000, 1), (59_999, 1)]
    {
        server.clock.set(at_ms(passed_ms));
        let response = server.http.propose("ada", 1, "even more").await;
        assert_eq!(response.headers["retry-after"], left.to_string(), "after {passed_ms} ms");
        let detail = format!("Please wait {left} seconds before submitting another proposal.");
        response.denied(429, &detail);
    }
    server.http.proposed("bob", 1, "less").await;
    server.clock.set(at_ms(60_000));
    server.http.proposed("ada", 1, "even more").await;
}

#[tokio::test]
async fn tiers_have_costs() {
    let (_scratch, server) = desk(Limits { proposals_per_window: 10, ..easy() }).await;
    for _ in 0..6 {
        server.http.next_window().await;
    }
    assert_eq!(server.http.left("ada").await, (14, 10));
    let mut left = 14;
    for (tier, price) in [(1, 1), (4, 1), (5, 2), (6, 2), (7, 3), (70, 3)] {
        server.http.proposed("ada", tier, "a change").await;
        left -= price;
        assert_eq!(server.http.left("ada").await.0, left, "tier {tier}");
    }
    server.http.propose("ada", 7, "another one").await.denied(402, &no_tokens(2));
    server.http.proposed("ada", 5, "a smaller one").await;
}

#[tokio::test]
async fn first_denial_is_reported_cooldown_then_tokens_then_cap() {
    let (_scratch, server) = desk(Limits { proposals_per_window: 1, ..Limits::default() }).await;
    server.http.proposed("ada", 5, "for all tokens").await;
    let again = async || server.http.propose("ada", 5, "again").await;
    let wait = "Please wait 60 seconds before submitting another proposal.";
    again().await.denied(429, wait);
    server.clock.advance(Duration::from_secs(60));
    again().await.denied(402, &no_tokens(0));
    // With tokens, the cap denies next.
    server.http.next_window().await;
    server.http.proposed("ada", 1, "a smaller one").await;
    server.clock.advance(Duration::from_secs(60));
    server.http.propose("ada", 1, "another one").await.denied(429, CAP_REACHED);
}

#[tokio::test]
async fn proposal_denied_by_one_limit_is_charged_by_none() {
    let (_scratch, server) = desk(Limits { proposals_per_window: 1, ..Limits::default() }).await;
    // Denied by the tokens: neither cap nor cooldown is charged.
    server.http.propose("ada", 7, "too dear").await.denied(402, &no_tokens(2));
    assert_eq!(server.http.left("ada").await, (2, 1));
    server.http.proposed("ada", 1, "cheaper").await;
    // Denied by the cooldown, and then by the cap: no token is spent, and no cooldown begins.
    assert_eq!(server.http.propose("ada", 1, "again").await.status, 429);
    server.clock.advance(Duration::from_secs(60));
    server.http.propose("ada", 1, "again").await.denied(429, CAP_REACHED);
    server.http.propose("ada", 1, "again").await.denied(429, CAP_REACHED);
    assert_eq!(server.http.left("ada").await, (1, 0));
}

#[tokio::test]
async fn closing_a_window_adds_two_tokens_and_resets_the_cap() {
    let (_scratch, server) = desk(Limits { proposals_per_window: 1, ..easy() }).await;
    let id = server.http.proposed("ada", 1, "a change").await;
    server.http.act("ada", &id, "confirm").await.ok();
    assert_eq!(server.http.left("ada").await, (1, 0));
    server.http.next_window().await;
    assert_eq!(server.http.left("ada").await, (3, 1), "unspent tokens stay, the cap is new");
    server.http.next_window().await;
    assert_eq!(server.http.left("ada").await, (5, 1));
    assert_eq!(server.http.left("cy").await, (6, 1), "also of a governor who never proposed");
    server.clock.advance(Duration::from_secs(1_000_000));
    assert_eq!(server.http.left("ada").await, (5, 1), "time alone adds nothing");
}

#[tokio::test]
async fn of_two_at_once_with_one_token_exactly_one_succeeds() {
    let (_scratch, server) = desk(easy()).await;
    server.http.proposed("ada", 1, "leaves one token").await;
    for _ in 0..20 {
        let (first, second) = tokio::join!(
            server.http.propose("ada", 1, "one"),
            server.http.propose("ada", 1, "two")
        );
        let mut both = [first, second];
        both.sort_by_key(|response| response.status);
        let [accepted, denied] = both;
        denied.denied(402, &no_tokens(0));
        let id = accepted.ok()["id"].as_str().unwrap().to_owned();
        server.http.act("ada", &id, "cancel").await.ok();
        assert_eq!(server.http.left("ada").await, (1, 2));
    }
}
