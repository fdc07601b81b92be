//! The call budget: three calls at a time, and a fair queue without a deadline.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidegate::durable::{EntryKind, Filter, Ledger};
use tidegate_proposals::{Governors, Limits};
use tokio::time::timeout;

use crate::ai::Ai;
use crate::support::{Http, PATIENCE, Scratch, Server, easy, settings, started};

async fn desk(limits: Limits) -> (Scratch, Ai, Server) {
    let (scratch, ai) = (Scratch::new(), Ai::slow().await);
    let mut settings = settings(&scratch, ai.address, limits);
    let many: Vec<String> = (0..12).map(|it| format!("g{it}:g{it}-secret")).collect();
    let list = format!("{},{}", crate::support::GOVERNORS, many.join(","));
    settings.governors = Governors::from_text(&list, "host-secret").unwrap();
    let server = started(&settings).await;
    (scratch, ai, server)
}

/// Hands in a proposal, and comes back when it is in line.
async fn in_line(http: &Http, who: &str) -> tokio::task::JoinHandle<crate::support::Answer> {
    let (asking, name) = (http.clone(), who.to_owned());
    let answer = tokio::spawn(async move { asking.propose(&name, 1, &name).await });
    http.until(who, "interpreting", 1).await;
    answer
}

#[tokio::test]
async fn of_ten_at_once_three_are_asked_at_a_time_in_the_order_in_which_they_came() {
    let (_scratch, mut ai, server) = desk(easy()).await;
    let mut answers = Vec::new();
    for number in 0..10 {
        answers.push(in_line(&server.http, &format!("g{number}")).await);
        // Once the proposal is seen, its turn in the line is a matter of the same task; the first
        // three are at the interpreter.
        if number < 3 {
            ai.until_in_flight(number + 1).await;
        }
    }
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(ai.next().await);
    }
    let mut order: Vec<String> = asked.iter().map(|call| call.text().to_owned()).collect();
    for left in (0..7).rev() {
        assert!(!ai.has_more_calls(), "never more than three");
        asked.remove(0).agree();
        let next = ai.next().await;
        order.push(next.text().to_owned());
        asked.push(next);
        assert_eq!(left + order.len(), 10);
    }
    for call in asked {
        call.agree();
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().ok()["status"], "interpreted");
    }
    let wanted: Vec<String> = (0..10).map(|number| format!("g{number}")).collect();
    assert_eq!(order[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    assert_eq!(order[3..], wanted[3..]);
    ai.until_in_flight(0).await;
}

/// How often the ledger says that something was set aside for longer.
fn renewals(scratch: &Scratch) -> usize {
    let entries = Ledger::open(scratch.store()).unwrap().entries(&Filter::new()).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().what == EntryKind::Renew).count()
}

#[tokio::test]
async fn waiting_has_no_deadline_and_keeps_the_tokens() {
    // Tokens would come back after 30 ms of this clock's time, were they not kept.
    let limits = Limits { calls: 1, confirm_within: Duration::from_millis(30), ..easy() };
    let (scratch, mut ai, server) = desk(limits).await;
    let first = in_line(&server.http, "g0").await;
    let second = in_line(&server.http, "g1").await;
    let call = ai.next().await;
    for _ in 0..5 {
        let before = renewals(&scratch);
        server.clock.advance(Duration::from_millis(20));
        let renewed = async {
            while renewals(&scratch) < before + 4 {
                // It goes on by itself.
                server.http.get("host", "/v1/window").await;
            }
        };
        timeout(PATIENCE, renewed).await.expect("it in time");
    }
    assert_eq!(server.http.left("g1").await, (1, 2));
    call.agree();
    ai.next().await.agree();
    for answer in [first, second] {
        answer.await.unwrap().ok();
    }
}

#[tokio::test]
async fn who_gives_up_frees_the_place_and_the_reservation() {
    let (_scratch, mut ai, server) = desk(Limits { calls: 1, ..easy() }).await;
    let http = &server.http;
    let first = in_line(http, "g0").await;
    let call = ai.next().await;
    let second = in_line(http, "g1").await;
    let third = in_line(http, "g2").await;
    // One gives up in the line.
    assert_eq!(http.left("g1").await, (1, 2));
    second.abort();
    http.until("g1", "cancelled", 1).await;
    assert_eq!((http.left("g1").await, http.sum("g1").await), ((2, 3), 2));
    // Another one while it is being interpreted: whoever is next moves up.
    first.abort();
    http.until("g0", "cancelled", 1).await;
    assert_eq!((http.left("g0").await, http.sum("g0").await), ((2, 3), 2));
    let next = ai.next().await;
    assert_eq!(next.text(), "g2");
    next.agree();
    third.await.unwrap().ok();
    drop(call);
    let events = http.events("?governor=g1").await;
    assert_eq!(events.last().unwrap()["reason"], "its governor did not wait for the interpreter");
}

#[tokio::test]
async fn what_cannot_be_interpreted_is_refunded_with_the_reason() {
    let (_scratch, mut ai, server) = desk(easy()).await;
    let http = &server.http;
    let ok = StatusCode::OK;
    let cases: [(StatusCode, Value, u16, &str); 7] = [
        (
            StatusCode::INTERNAL_SERVER_ERROR,
            Value::Null,
            502,
            "the interpreter answered 500 Internal Server Error",
        ),
        (ok, json!("what?"), 502, "the interpreter's answer cannot be understood: "),
        (ok, json!({ "tier": 4 }), 502, "the interpreter's answer cannot be understood: "),
        (
            ok,
            json!({ "tier": 5, "summary": "" }),
            422,
            "it is of tier 5, and was proposed as tier 4",
        ),
        (
            ok,
            json!({ "tier": 4, "summary": "", "proposals_per_window": 11 }),
            422,
            "proposals_per_window can be 1 to 10, not 11",
        ),
        (
            ok,
            json!({ "tier": 4, "summary": "", "proposals_per_window": 0 }),
            422,
            "proposals_per_window can be 1 to 10, not 0",
        ),
        (
            ok,
            json!({ "tier": 4, "summary": "x".repeat(5_000) }),
            502,
            "the interpreter's summary is longer than 4096 bytes",
        ),
    ];
    for (status, body, expected, reason) in cases {
        let (asking, answering) = (http.propose("ada", 4, "a change"), async {
            ai.next().await.answer(status, body);
        });
        let (answer, ()) = tokio::join!(asking, answering);
        assert_eq!(answer.status, expected, "{answer:?}");
        let told = format!("The proposal was not taken, and its tokens are back: {reason}");
        assert!(answer.detail().starts_with(&told), "{answer:?}");
        assert_eq!((http.left("ada").await, http.sum("ada").await), ((2, 3), 2));
        let events = http.events("?governor=ada").await;
        let last = events.last().unwrap();
        assert!(last["reason"].as_str().unwrap().starts_with(reason), "{last}");
        assert_eq!((&last["event"], &last["tokens"]), (&json!("token.refunded"), &json!(1)));
    }
    // A change of the cap is of tier 4 only.
    let (asking, answering) = (http.propose("ada", 1, "a change"), async {
        let answer = json!({ "tier": 1, "summary": "", "proposals_per_window": 5 });
        ai.next().await.answer(ok, answer);
    });
    let (answer, ()) = tokio::join!(asking, answering);
    assert!(answer.detail().ends_with("proposals_per_window is changed at tier 4 only."));
}

#[tokio::test]
async fn silence_and_absence_are_refunded() {
    let (_scratch, mut ai, server) =
        desk(Limits { answer_within: Duration::from_millis(5), ..easy() }).await;
    let answer = server.http.propose("ada", 1, "a change").await;
    answer.refused(
        504,
        "The proposal was not taken, and its tokens are back: the interpreter did not answer \
         within 5ms.",
    );
    drop(ai.next().await);
    assert_eq!(server.http.left("ada").await, (2, 3));
    // Nobody listens there.
    let scratch = Scratch::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = started(&settings(&scratch, free, easy())).await;
    let answer = server.http.propose("ada", 1, "a change").await;
    answer.refused(
        502,
        "The proposal was not taken, and its tokens are back: the interpreter cannot be reached.",
    );
    assert_eq!(server.http.left("ada").await, (2, 3));
}

#[tokio::test]
async fn a_full_queue_is_told_at_once_and_refunded() {
    let (_scratch, mut ai, server) = desk(Limits { calls: 1, queue: 1, ..easy() }).await;
    let first = in_line(&server.http, "g0").await;
    let call = ai.next().await;
    let second = in_line(&server.http, "g1").await;
    let answer = server.http.propose("g2", 1, "too many").await;
    assert_eq!(answer.status, 503);
    assert!(answer.detail().ends_with("too many proposals wait for the interpreter."));
    assert_eq!(server.http.left("g2").await, (2, 3));
    call.agree();
    ai.next().await.agree();
    for answer in [first, second] {
        answer.await.unwrap().ok();
    }
}

#[tokio::test]
async fn a_governor_may_cancel_while_it_is_interpreted() {
    let (_scratch, mut ai, server) = desk(easy()).await;
    let http = &server.http;
    let answer = in_line(http, "g0").await;
    let call = ai.next().await;
    let id = call.question["proposal"].as_str().unwrap().to_owned();
    http.act("g0", &id, "cancel").await.ok();
    call.agree();
    assert_eq!(answer.await.unwrap().status, 409);
    assert_eq!((http.left("g0").await, http.sum("g0").await), ((2, 3), 2));
    assert_eq!(http.status(&id).await, "cancelled");
}
