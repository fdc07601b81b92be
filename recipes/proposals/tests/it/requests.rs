//! Authentication, authorisation and invalid requests.

use axum::http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ai::Ai;
use crate::support::{Scratch, easy, settings, started};

#[tokio::test]
async fn callers_need_a_secret() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    let http = &server.http;
    let body = json!({ "tier": 1, "text": "a change", "governor": "ada" });
    for who in ["unknown", "", "ada:ada"] {
        let response = http.post(who, "/v1/proposals", body.clone()).await;
        assert_eq!(response.headers["www-authenticate"], "Bearer");
        response.denied(401, "Authenticate with `Authorization: Bearer` and your secret.");
        assert_eq!(http.get(who, "/v1/balances").await.status, 401);
    }
    // A name in the body is not trusted either.
    assert_eq!(http.post("bob", "/v1/proposals", body).await.status, 422);
    let id = http.proposed("ada", 1, "a change").await;
    for act in ["confirm", "cancel"] {
        http.act("bob", &id, act).await.denied(403, "The proposal belongs to another governor.");
    }
    http.act("host", &id, "confirm").await.denied(403, "Only governors may do that.");
    for path in ["/v1/rounds", "/v1/tally"] {
        let response = http.post("ada", path, json!({ "round": 1 })).await;
        response.denied(403, "Only the game itself may do that.");
    }
}

#[tokio::test]
async fn invalid_requests_are_errors_and_cost_nothing() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    let http = &server.http;
    let propose = async |body: Value| http.post("ada", "/v1/proposals", body).await.status;
    for bad in [
        json!({}),
        json!([]),
        json!([1, "a change"]),
        json!("a change"),
        json!(null),
        json!({ "tier": 0, "text": "a change" }),
        json!({ "tier": -1, "text": "a change" }),
        json!({ "tier": 1.5, "text": "a change" }),
        json!({ "tier": "1", "text": "a change" }),
        json!({ "tier": 1, "text": " " }),
        json!({ "tier": 1, "text": "x".repeat(4_097) }),
        json!({ "tier": 1 }),
    ] {
        assert_eq!(propose(bad.clone()).await, 422, "{bad}");
    }
    assert_eq!(propose(json!({ "tier": 1, "text": "x".repeat(40_000) })).await, 413);
    assert_eq!(http.left("ada").await, (2, 3));
    let unknown = "0".repeat(32);
    for id in [unknown.as_str(), "x", "%20"] {
        assert_eq!(http.act("ada", id, "confirm").await.status, 404);
        assert_eq!(http.vote("ada", id, "yes").await.status, 404);
    }
    assert_eq!(http.vote("ada", &unknown, "maybe").await.status, 422);
    let array = http.post("ada", &format!("/v1/proposals/{unknown}/vote"), json!(["yes"])).await;
    assert_eq!(array.status, 422);
    let array = http.post("host", "/v1/rounds", json!([1])).await;
    array
        .denied(422, "Invalid body: invalid type: sequence, expected an object at line 1 column 0");
    assert_eq!(http.get("ada", "/v1/audit?limit=x").await.status, 422);
    assert_eq!(http.get("ada", "/v1/proposals?status=odd").await.status, 422);
    assert_eq!(http.get("ada", "/v1/nothing").await.status, 404);
    let response = http.try_send("ada", (Method::DELETE, "/v1/tally"), None).await.unwrap();
    assert_eq!(response.status, 405);
    assert_eq!(http.get("unknown", "/healthz").await.ok(), json!({ "ok": true }));
    assert_eq!(http.post("host", "/v1/rounds", json!({ "round": 0 })).await.status, 422);
}

#[tokio::test]
async fn garbage_affects_no_other() {
    let scratch = Scratch::new();
    let server = started(&settings(&scratch, Ai::quick().await, easy())).await;
    for bytes in [&b"\0\xff\r\n\r\n"[..], b"POST /v1/proposals HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.http.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response).await;
    }
    server.http.proposed("ada", 1, "a change").await;
}
