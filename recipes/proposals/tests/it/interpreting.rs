//! The call budget: three calls at a time, and a fair queue without a deadline.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidegate::durable::{EntryKind, Filter, Ledger};
use tidegate_proposals::{Governors, Limits};
use tokio::time::timeout;

use crate::ai::Ai;
use crate::support::{Http, Scratch, Server, TIMEOUT, easy, settings, started, started_at};

async fn desk(limits: Limits) -> (Scratch, Ai, Server) {
    let (scratch, ai) = (Scratch::new(), Ai::slow().await);
    let mut settings = settings(&scratch, ai.address, limits);
    let many: Vec<String> = (0..12).map(|it| format!("g{it}:g{it}-secret")).collect();
    let list = format!("{},{}", crate::support::GOVERNORS, many.join(","));
    settings.governors = Governors::from_text(&list, "host-secret").unwrap();
    let server = started(&settings).await;
    (scratch, ai, server)
}

/// Submits a proposal, and returns when it is queued.
async fn queued(http: &Http, who: &str) -> tokio::task::JoinHandle<crate::support::DeskResponse> {
    let (client, name) = (http.clone(), who.to_owned());
    let response = tokio::spawn(async move { client.propose(&name, 1, &name).await });
    http.until(who, "interpreting", 1).await;
    response
}

#[tokio::test]
async fn three_of_ten_calls_are_in_flight_in_order_of_arrival() {
    let (_scratch, mut ai, server) = desk(easy()).await;
    let mut responses = Vec::new();
    for number in 0..10 {
        responses.push(queued(&server.http, &format!("g{number}")).await);
        // Once the proposal is listed, the same task queues it; the first three are at the
        // interpreter.
        if number < 3 {
            ai.until_in_flight(number + 1).await;
        }
    }
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(ai.next().await);
    }
    let mut order: Vec<String> = calls.iter().map(|call| call.text().to_owned()).collect();
    for left in (0..7).rev() {
        assert!(!ai.has_more_calls(), "at most three");
        calls.remove(0).agree();
        let next = ai.next().await;
        order.push(next.text().to_owned());
        calls.push(next);
        assert_eq!(left + order.len(), 10);
    }
    for call in calls {
        call.agree();
    }
    for response in responses {
        assert_eq!(response.await.unwrap().ok()["status"], "interpreted");
    }
    let wanted: Vec<String> = (0..10).map(|number| format!("g{number}")).collect();
    assert_eq!(order[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    assert_eq!(order[3..], wanted[3..]);
    ai.until_in_flight(0).await;
}

/// How often the ledger records a renewed hold.
fn renewals(scratch: &Scratch) -> usize {
    let entries = Ledger::open(scratch.store()).unwrap().entries(&Filter::new()).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().what == EntryKind::Renew).count()
}

#[tokio::test]
async fn queued_proposal_has_no_deadline_and_keeps_its_tokens() {
    // Without renewal the tokens would be released after 30 ms of this clock's time.
    let limits = Limits { calls: 1, confirm_within: Duration::from_millis(30), ..easy() };
    let (scratch, mut ai, server) = desk(limits).await;
    let first = queued(&server.http, "g0").await;
    let second = queued(&server.http, "g1").await;
    let call = ai.next().await;
    for _ in 0..5 {
        let before = renewals(&scratch);
        server.clock.advance(Duration::from_millis(20));
        let renewed = async {
            while renewals(&scratch) < before + 4 {
                // The renewal runs by itself.
                server.http.get("host", "/v1/window").await;
            }
        };
        timeout(TIMEOUT, renewed).await.expect("the renewal in time");
    }
    assert_eq!(server.http.left("g1").await, (1, 2));
    call.agree();
    ai.next().await.agree();
    for response in [first, second] {
        response.await.unwrap().ok();
    }
}

#[tokio::test]
async fn failed_interpretation_is_refunded_with_the_reason() {
    let (_scratch, mut ai, server) = desk(easy()).await;
    let http = &server.http;
    let ok = StatusCode::OK;
    let cases: [(StatusCode, Value, u16, &str); 7] = [
        (
            StatusCode::INTERNAL_SERVER_ERROR,
            Value::Null,
            502,
            "the interpreter responded with 500 Internal Server Error",
        ),
        (ok, json!("what?"), 502, "the interpreter's response is invalid: "),
        (ok, json!({ "tier": 4 }), 502, "the interpreter's response is invalid: "),
        (ok, json!({ "tier": 5, "summary": "" }), 422, "it has tier 5, but was proposed as tier 4"),
        (
            ok,
            json!({ "tier": 4, "summary": "", "proposals_per_window": 11 }),
            422,
            "proposals_per_window must be 1 to 10, not 11",
        ),
        (
            ok,
            json!({ "tier": 4, "summary": "", "proposals_per_window": 0 }),
            422,
            "proposals_per_window must be 1 to 10, not 0",
        ),
        (
            ok,
            json!({ "tier": 4, "summary": "x".repeat(5_000) }),
            502,
            "the interpreter's summary is longer than 4096 bytes",
        ),
    ];
    for (number, (status, body, expected, reason)) in cases.into_iter().enumerate() {
        let who = &format!("g{number}");
        let (calling, responding) = (http.propose(who, 4, "a change"), async {
            ai.next().await.respond(status, body);
        });
        let (response, ()) = tokio::join!(calling, responding);
        assert_eq!(response.status, expected, "{response:?}");
        // The call may have cost something, whatever came back.
        let released = "The proposal was not accepted and its tokens were released";
        let detail = format!("{released}, but it counts as a submission: {reason}");
        assert!(response.detail().starts_with(&detail), "{response:?}");
        assert_eq!((http.left(who).await, http.sum(who).await), ((2, 2), 2));
        let events = http.events(&format!("?governor={who}")).await;
        let last = events.last().unwrap();
        assert!(last["reason"].as_str().unwrap().starts_with(reason), "{last}");
        assert_eq!((&last["event"], &last["tokens"]), (&json!("token.refunded"), &json!(1)));
    }
    // Only tier 4 can change the cap.
    let (calling, responding) = (http.propose("ada", 1, "a change"), async {
        let body = json!({ "tier": 1, "summary": "", "proposals_per_window": 5 });
        ai.next().await.respond(ok, body);
    });
    let (response, ()) = tokio::join!(calling, responding);
    assert!(response.detail().ends_with("only tier 4 can change proposals_per_window."));
}

#[tokio::test]
async fn interpreter_that_answers_nonsense_is_called_as_often_as_the_cap_allows() {
    let (scratch, mut ai) = (Scratch::new(), Ai::slow().await);
    let settings = settings(&scratch, ai.address, easy());
    let server = started(&settings).await;
    let (nonsense, too_long) = (json!("what?"), json!("x".repeat(70_000)));
    for (number, (status, body, reason)) in [
        (StatusCode::OK, nonsense, "the interpreter's response is invalid: "),
        (StatusCode::OK, too_long, "the interpreter's response is longer than 65536 bytes."),
        (StatusCode::NOT_FOUND, json!({}), "the interpreter responded with 404 Not Found."),
    ]
    .into_iter()
    .enumerate()
    {
        let (calling, responding) = (server.http.propose("ada", 5, "a change"), async {
            ai.next().await.respond(status, body);
        });
        let (response, ()) = tokio::join!(calling, responding);
        assert_eq!(response.status, 502, "{response:?}");
        assert!(response.detail().contains(reason), "{response:?}");
        let left = 2 - number as u64;
        assert_eq!((server.http.left("ada").await, server.http.sum("ada").await), ((2, left), 2));
    }
    assert_eq!(server.http.propose("ada", 1, "once more").await.status, 429);
    assert!(!ai.has_more_calls(), "a denied proposal is no call");
    // What was used stays used after a restart, until the window closes.
    let clock = server.stopped().await;
    let server = started_at(&settings, clock).await;
    assert_eq!((server.http.left("ada").await, server.http.sum("ada").await), ((2, 0), 2));
    let listed = server.http.get("ada", "/v1/proposals?status=cancelled").await.ok();
    assert_eq!(listed["proposals"].as_array().unwrap().len(), 3);
    server.http.next_window().await;
    assert_eq!((server.http.left("ada").await, server.http.sum("ada").await), ((4, 3), 4));
}

#[tokio::test]
async fn unresponsive_and_unreachable_interpreter_is_refunded() {
    let (_scratch, mut ai, server) =
        desk(Limits { call_timeout: Duration::from_millis(5), ..easy() }).await;
    let response = server.http.propose("ada", 1, "a change").await;
    response.denied(
        504,
        "The proposal was not accepted and its tokens were released, but it counts as a submission: the \
         interpreter did not respond within 5ms.",
    );
    drop(ai.next().await);
    assert_eq!(server.http.left("ada").await, (2, 2));
    // Nothing listens there.
    let scratch = Scratch::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = started(&settings(&scratch, free, easy())).await;
    let response = server.http.propose("ada", 1, "a change").await;
    response.denied(
        502,
        "The proposal was not accepted and its tokens were released: the interpreter cannot be reached.",
    );
    assert_eq!(server.http.left("ada").await, (2, 3));
}

#[tokio::test]
async fn full_queue_is_reported_at_once_and_refunded() {
    let (_scratch, mut ai, server) = desk(Limits { calls: 1, queue: 1, ..easy() }).await;
    let first = queued(&server.http, "g0").await;
    let call = ai.next().await;
    let second = queued(&server.http, "g1").await;
    let response = server.http.propose("g2", 1, "too many").await;
    assert_eq!(response.status, 503);
    assert!(response.detail().ends_with("the interpreter's queue is full."));
    assert_eq!(server.http.left("g2").await, (2, 3));
    call.agree();
    ai.next().await.agree();
    for response in [first, second] {
        response.await.unwrap().ok();
    }
}

#[tokio::test]
async fn governor_may_cancel_during_the_interpretation() {
    let (_scratch, mut ai, server) = desk(easy()).await;
    let http = &server.http;
    let response = queued(http, "g0").await;
    let call = ai.next().await;
    let id = call.body["proposal"].as_str().unwrap().to_owned();
    http.act("g0", &id, "cancel").await.ok();
    call.agree();
    assert_eq!(response.await.unwrap().status, 409);
    assert_eq!((http.left("g0").await, http.sum("g0").await), ((2, 3), 2));
    assert_eq!(http.status(&id).await, "cancelled");
}

/// The hold of a cancelled proposal cannot be renewed, which must not end its call.
#[tokio::test]
async fn call_of_a_cancelled_proposal_keeps_its_slot_beyond_the_next_renewal() {
    let limits = Limits { calls: 1, confirm_within: Duration::from_millis(30), ..easy() };
    let (scratch, mut ai, server) = desk(limits).await;
    let http = &server.http;
    let first = queued(http, "g0").await;
    let call = ai.next().await;
    let second = queued(http, "g1").await;
    http.act("g0", call.body["proposal"].as_str().unwrap(), "cancel").await.ok();
    // Both are renewed every 10 ms of the runtime's time, as far as they are held.
    let before = renewals(&scratch);
    while renewals(&scratch) < before + 5 {
        http.get("host", "/v1/window").await;
    }
    ai.until_in_flight(1).await;
    assert!(!ai.has_more_calls(), "the slot is taken");
    call.agree();
    assert_eq!(first.await.unwrap().status, 409);
    ai.next().await.agree();
    second.await.unwrap().ok();
}
