//! The cooldown begins with the submission, and stays if the AI was called.

use axum::http::StatusCode;
use serde_json::json;

use crate::ai::Ai;
use crate::program::Program;
use crate::support::{GOVERNORS, Scratch};

async fn desk(more: &[(&str, &str)]) -> (Scratch, Ai, Program) {
    let (scratch, ai) = (Scratch::new(), Ai::slow().await);
    let settings = [&[("PROPOSALS_COOLDOWN", "2h"), ("PROPOSALS_PER_WINDOW", "10")], more].concat();
    let program = Program::started(&scratch, ai.address, &settings).await;
    (scratch, ai, program)
}

async fn is_cooling(program: &Program, who: &str) -> bool {
    let balances = program.http.get(who, "/v1/balances").await.ok();
    let list = balances["balances"].as_array().unwrap().clone();
    let own = list.into_iter().find(|it| it["governor"] == who).unwrap();
    own["cooldown_ms"].as_u64().unwrap() > 0
}

#[tokio::test]
async fn call_without_an_answer_leaves_its_cooldown() {
    let (_scratch, mut ai, program) = desk(&[("INTERPRETER_TIMEOUT", "900ms")]).await;
    let http = &program.http;
    let failures = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE];
    for (who, status) in ["ada", "bob"].into_iter().zip(failures) {
        let answer = async { ai.next().await.respond(status, json!(null)) };
        let (response, ()) = tokio::join!(http.propose(who, 1, "a change"), answer);
        assert_eq!(response.status, 502, "{response:?}");
        assert!(is_cooling(&program, who).await);
    }
    // One that does not respond in time.
    let response = http.propose("cy", 1, "a change").await;
    assert_eq!((response.status, http.left("cy").await), (504, (2, 9)));
    drop(ai.next().await);
    assert!(is_cooling(&program, "cy").await);
    assert_eq!(http.propose("ada", 1, "another").await.status, 429);
}

#[tokio::test]
async fn submission_without_a_connection_leaves_no_cooldown() {
    let scratch = Scratch::new();
    // Nothing listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let program = Program::started(&scratch, free, &[("PROPOSALS_COOLDOWN", "2h")]).await;
    for _ in 0..2 {
        assert_eq!(program.http.propose("ada", 1, "a change").await.status, 502);
        assert!(!is_cooling(&program, "ada").await);
    }
    assert_eq!(program.http.left("ada").await, (2, 3));
}

#[tokio::test]
async fn submission_that_ends_before_its_call_leaves_no_cooldown() {
    let settings = [("INTERPRETER_CALLS", "1"), ("INTERPRETER_QUEUE", "1")];
    let (_scratch, mut ai, program) = desk(&settings).await;
    let http = &program.http;
    let propose = |who: &'static str| {
        let http = http.clone();
        tokio::spawn(async move { http.propose(who, 1, "a change").await })
    };
    let first = propose("ada");
    let call = ai.next().await;
    // Cancelled while it is queued.
    let second = propose("bob");
    http.until("bob", "interpreting", 1).await;
    assert!(is_cooling(&program, "bob").await, "it begins with the submission");
    let queued = http.get("bob", "/v1/proposals?governor=bob").await.ok();
    let id = queued["proposals"][0]["id"].as_str().unwrap().to_owned();
    http.act("bob", &id, "cancel").await.ok();
    assert_eq!(second.await.unwrap().status, 409);
    assert!(!is_cooling(&program, "bob").await);
    // Denied because the queue is full.
    let second = propose("bob");
    http.until("bob", "interpreting", 1).await;
    assert_eq!(http.propose("cy", 1, "too many").await.status, 503);
    assert!(!is_cooling(&program, "cy").await);
    call.agree();
    ai.next().await.agree();
    for response in [first, second] {
        response.await.unwrap().ok();
    }
}

#[tokio::test]
async fn cooldown_stays_after_a_call_whatever_becomes_of_the_proposal() {
    let governors = format!("{GOVERNORS},dee:dee-secret");
    let (_scratch, mut ai, program) = desk(&[("PROPOSALS_GOVERNORS", &governors)]).await;
    let http = &program.http;
    let propose = |who: &'static str| {
        let http = http.clone();
        tokio::spawn(async move { http.propose(who, 1, "a change").await })
    };
    // Cancelled by its governor during the call.
    let cancelled = propose("ada");
    let call = ai.next().await;
    http.act("ada", call.body["proposal"].as_str().unwrap(), "cancel").await.ok();
    call.agree();
    assert_eq!(cancelled.await.unwrap().status, 409);
    // Found invalid by the interpreter.
    let invalid = propose("bob");
    ai.next().await.respond(StatusCode::OK, json!({ "tier": 7, "summary": "more than that" }));
    assert_eq!(invalid.await.unwrap().status, 422);
    // Answered with nonsense.
    let nonsense = propose("dee");
    ai.next().await.respond(StatusCode::OK, json!("nonsense"));
    assert_eq!(nonsense.await.unwrap().status, 502);
    // Its client has hung up.
    propose("cy").abort();
    let hung_up = propose("cy");
    let call = ai.next().await;
    hung_up.abort();
    call.agree();
    http.until("cy", "interpreted", 1).await;
    for who in ["ada", "bob", "cy", "dee"] {
        let denied = http.propose(who, 1, "another").await;
        assert_eq!(denied.status, 429, "{denied:?}");
        let prefix = "Please wait 7200 seconds before";
        assert!(denied.detail().starts_with(&prefix[..11]), "{denied:?}");
    }
    for who in ["ada", "bob", "dee"] {
        assert_eq!(http.left(who).await.0, 2, "tokens of {who} are back");
    }
}
