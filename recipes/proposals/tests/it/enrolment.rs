//! Governors who are enrolled while the desk runs.

use serde_json::{Value, json};

use crate::ai::Ai;
use crate::program::Program;
use crate::support::{DeskResponse, Http, Scratch};

/// The secret of a test's governor is the name and `-secret`.
const DI: &str = "di-of-the-north";

async fn enrol(http: &Http, who: &str, name: &str, secret: &str) -> DeskResponse {
    http.post(who, "/v1/governors", json!({ "governor": name, "secret": secret })).await
}

#[tokio::test]
async fn enrolled_governor_has_tokens_at_once_and_from_every_window_after() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let program = Program::started(&scratch, ai, &[]).await;
    let http = &program.http;
    http.next_window().await;
    assert_eq!(http.get(DI, "/v1/window").await.status, 401);
    let secret = format!("{DI}-secret");
    let enrolled = enrol(http, "host", DI, &secret).await;
    assert_eq!(enrolled.status, 201, "{enrolled:?}");
    assert_eq!((&enrolled.body["governor"], &enrolled.body["tokens"]), (&json!(DI), &json!(2)));
    assert_eq!(enrol(http, "host", DI, &secret).await.status, 200, "again changes nothing");
    assert_eq!((http.left(DI).await, http.sum(DI).await), ((2, 3), 2));
    // Requests nothing, and gets the tokens of two windows, also over a crash.
    http.next_window().await;
    program.killed().await;
    let program = Program::started(&scratch, ai, &[]).await;
    let http = &program.http;
    http.next_window().await;
    assert_eq!((http.left(DI).await, http.sum(DI).await), ((6, 3), 6));
    assert_eq!((http.left("ada").await.0, http.sum("ada").await), (8, 8));
    // A full member: proposes, and is counted among the voters.
    let id = http.proposed(DI, 7, "a change").await;
    http.act(DI, &id, "confirm").await.ok();
    http.vote(DI, &id, "yes").await.ok();
    let tally = http.next_window().await;
    assert_eq!((&tally["governors"], &tally["proposals"][0]["passed"]), (&json!(4), &json!(false)));
    assert_eq!(http.left(DI).await.0, 5);
    let secrets = std::fs::read_dir(scratch.store()).unwrap().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
    });
    assert!(!secrets, "only the digest of a secret is stored");
}

#[tokio::test]
async fn invalid_enrolments_change_nothing() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let program = Program::started(&scratch, ai, &[]).await;
    let http = &program.http;
    let balances = || async { http.get("host", "/v1/balances").await.ok() };
    let before: Value = balances().await;
    let long = "a-long-enough-secret";
    enrol(http, "ada", "di", long).await.denied(403, "Only the game itself may do that.");
    for (name, secret, status) in [
        ("", long, 422),
        ("d i", long, 422),
        ("di", "too-short", 422),
        ("di", "has a space in the middle", 422),
        ("ada", long, 409),
    ] {
        let response = enrol(http, "host", name, secret).await;
        assert_eq!(response.status, status, "{name:?} {secret:?}: {response:?}");
    }
    let array = http.post("host", "/v1/governors", json!(["di", long])).await;
    assert_eq!(array.status, 422);
    assert_eq!(balances().await, before);
    enrol(http, "host", "di", long).await.ok();
    let taken = enrol(http, "host", "ed", long).await;
    taken.denied(422, "`ed` has a secret that is in use: choose another one.");
}

#[tokio::test]
async fn client_enrols_a_governor() {
    let (scratch, ai) = (Scratch::new(), Ai::quick().await);
    let program = Program::started(&scratch, ai, &[]).await;
    let arguments = ["enrol", "di", "--governor-secret", "a-long-enough-secret"];
    let printed = program.prints("host", &arguments).await;
    assert_eq!(printed, "di  2 tokens  3 of 3 proposals left\n");
    let listed = program.prints("ada", &["proposals", "--governor", "di"]).await;
    assert_eq!(listed, "");
}
