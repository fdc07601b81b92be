//! A slot belongs to the call of the AI: clients that hang up, and cancellations, free none.

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::ai::{Ai, Call};
use crate::program::Program;
use crate::support::{DeskResponse, Http, Scratch};

/// Governors `g0` to `g8`.
fn nine() -> String {
    let list: Vec<String> = (0..9).map(|it| format!("g{it}:g{it}-secret")).collect();
    list.join(",")
}

async fn desk(calls: &str) -> (Scratch, Ai, Program) {
    let (scratch, ai) = (Scratch::new(), Ai::slow().await);
    let settings = [("INTERPRETER_CALLS", calls), ("PROPOSALS_GOVERNORS", &nine())];
    let program = Program::started(&scratch, ai.address, &settings).await;
    (scratch, ai, program)
}

/// The proposals of a governor with this status.
async fn listed(http: &Http, who: &str, status: &str) -> Vec<Value> {
    let path = format!("/v1/proposals?status={status}&governor={who}");
    http.get(who, &path).await.ok()["proposals"].as_array().unwrap().clone()
}

fn id_of(proposal: &Value) -> String {
    proposal["id"].as_str().unwrap().to_owned()
}

/// Submits a proposal, and returns when it is listed.
async fn submitted(http: &Http, who: &str) -> JoinHandle<DeskResponse> {
    let (client, name) = (http.clone(), who.to_owned());
    let open = listed(http, who, "interpreting").await.len();
    let response = tokio::spawn(async move { client.propose(&name, 1, &name).await });
    http.until(who, "interpreting", open + 1).await;
    response
}

#[tokio::test]
async fn clients_that_hang_up_free_no_slot_and_can_still_confirm() {
    let (_scratch, mut ai, program) = desk("2").await;
    let http = &program.http;
    for number in 0..9 {
        submitted(http, &format!("g{number}")).await.abort();
    }
    let mut calls: Vec<Call> = vec![ai.next().await, ai.next().await];
    for left in (0..7).rev() {
        ai.until_in_flight(2).await;
        assert!(!ai.has_more_calls(), "{left} more have to wait");
        calls.remove(0).agree();
        calls.push(ai.next().await);
    }
    calls.into_iter().for_each(Call::agree);
    ai.until_in_flight(0).await;
    assert!(!ai.has_more_calls(), "one call each");
    for number in 0..9 {
        let who = format!("g{number}");
        http.until(&who, "interpreted", 1).await;
        assert_eq!((http.left(&who).await, http.sum(&who).await), ((1, 2), 1));
        let id = id_of(&listed(http, &who, "interpreted").await[0]);
        assert_eq!(http.act(&who, &id, "confirm").await.ok()["status"], "voting");
    }
}

#[tokio::test]
async fn cancelled_proposals_leave_the_queue() {
    let (_scratch, mut ai, program) = desk("1").await;
    let http = &program.http;
    let first = submitted(http, "g0").await;
    let call = ai.next().await;
    for round in 0..25 {
        let queued = [submitted(http, "g1").await, submitted(http, "g1").await];
        assert_eq!(http.left("g1").await, (0, 1), "both tokens are held");
        for proposal in listed(http, "g1", "interpreting").await {
            let cancelled = http.act("g1", &id_of(&proposal), "cancel").await.ok();
            assert_eq!(cancelled["reason"], "cancelled by its governor", "round {round}");
        }
        for response in queued {
            // The client need not wait for the queue.
            assert_eq!(response.await.unwrap().status, 409);
        }
        assert_eq!((http.left("g1").await, http.sum("g1").await), ((2, 3), 2));
    }
    let last = submitted(http, "g2").await;
    call.agree();
    let next = ai.next().await;
    assert_eq!(next.text(), "g2", "none of the cancelled ones is interpreted");
    next.agree();
    for response in [first, last] {
        response.await.unwrap().ok();
    }
    ai.until_in_flight(0).await;
    assert!(!ai.has_more_calls());
}

#[tokio::test]
async fn cancelled_call_keeps_its_slot_until_it_ends() {
    let (_scratch, mut ai, program) = desk("1").await;
    let http = &program.http;
    let first = submitted(http, "g0").await;
    let call = ai.next().await;
    let id = id_of(&listed(http, "g0", "interpreting").await[0]);
    http.act("g0", &id, "cancel").await.ok();
    assert_eq!(http.left("g0").await, (2, 3));
    // The next proposals wait, of any governor.
    let waiting = [submitted(http, "g0").await, submitted(http, "g1").await];
    assert!(!ai.has_more_calls());
    ai.until_in_flight(1).await;
    call.agree();
    assert_eq!(first.await.unwrap().status, 409);
    assert_eq!(http.status_by("g1", &id).await, "cancelled");
    for response in waiting {
        ai.next().await.agree();
        response.await.unwrap().ok();
    }
}
