//! Layers over a store whose decisions take time: they are returned when they are durable.

use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::get as route;
use http::{Request, StatusCode};
use tidegate::durable::FileOptions;
use tidegate::policy::Policy;
use tidegate::{Request as EngineRequest, StoreEngine, clock::ManualClock};
use tidegate_tower::{Admission, Header, PolicyLayer, Settle};
use tower::ServiceExt;

use crate::support::{TestResponse, get};

const POLICY: &str = r#"
    [[rule]]
    name  = "tokens"
    key   = ["team"]
    quota = { max = 1000, per = "day" }

    [[rule]]
    name   = "slots"
    domain = "calls"
    slots  = { max = 1, queue = 10, expires = "1m" }

    [[rule]]
    name   = "calls-a-day"
    domain = "calls"
    quota  = { max = 2, per = "day" }
"#;

/// An engine on disk, in a folder that is removed on drop.
struct OnDisk {
    engine: StoreEngine,
    path: PathBuf,
}

impl OnDisk {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-tower-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        let store = FileOptions::default().fill_ahead(4_096).open(&path).unwrap();
        let policy = Policy::from_toml(POLICY).unwrap();
        Self {
            engine: StoreEngine::builder(policy)
                .store(store)
                .clock(ManualClock::default())
                .build()
                .unwrap(),
            path,
        }
    }

    fn layer(&self) -> PolicyLayer {
        PolicyLayer::new(self.engine.clone(), "default")
            .unwrap()
            .attribute("team", Header::new("x-team"))
            .cost(|_| 400)
    }

    fn left(&self) -> u64 {
        let request = EngineRequest::new("default", &[("team", "red")]);
        self.engine.peek(&request).block().unwrap().remaining().unwrap()
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn red() -> Request<Body> {
    get("/", &[("x-team", "red")])
}

#[tokio::test]
async fn requests_are_decided_when_durable() {
    let disk = OnDisk::new("check");
    let app = Router::new().route("/", route(|| async { "done" })).layer(disk.layer());
    for (status, left) in [(200, "r=600"), (200, "r=200"), (429, "r=200")] {
        let response = TestResponse::of(app.clone().oneshot(red()).await.unwrap()).await;
        assert_eq!(response.status, status);
        assert!(response.header("ratelimit").unwrap().contains(left), "{response:?}");
    }
    assert_eq!(disk.left(), 200);
}

#[tokio::test]
async fn costs_are_settled_with_the_response() {
    let disk = OnDisk::new("settle");
    let layer = disk.layer().settle(|response| match response.status.is_success() {
        true => Settle::Commit(None),
        false => Settle::Cancel,
    });
    let handler = |admission: Admission, request: Request<Body>| async move {
        admission.actual_cost().unwrap().set(100);
        match request.uri().query() {
            None => "done".into_response(),
            Some(_) => StatusCode::BAD_GATEWAY.into_response(),
        }
    };
    let app = Router::new().route("/", route(handler)).layer(layer);
    assert_eq!(TestResponse::of(app.clone().oneshot(red()).await.unwrap()).await.status, 200);
    assert_eq!(disk.left(), 900);
    let failing = get("/?fail", &[("x-team", "red")]);
    assert_eq!(TestResponse::of(app.oneshot(failing).await.unwrap()).await.status, 502);
    assert_eq!(disk.left(), 900, "a failed request costs nothing");
}

#[tokio::test]
async fn actual_cost_is_charged_when_the_client_disconnects() {
    let disk = OnDisk::new("gone");
    let layer = disk.layer().settle(|_| Settle::Commit(None));
    let (cost_set, mut cost_was_set) = tokio::sync::mpsc::channel::<()>(1);
    let handler = |admission: Admission| async move {
        admission.actual_cost().unwrap().set(150);
        cost_set.send(()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let app = Router::new().route("/", route(handler)).layer(layer);
    let call = tokio::spawn(app.oneshot(red()));
    cost_was_set.recv().await.unwrap();
    assert_eq!(disk.left(), 600, "400 are held");
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(disk.left(), 850);
}

#[tokio::test]
async fn slots_are_acquired_with_the_charges_of_other_rules() {
    let disk = OnDisk::new("slots");
    let layer = PolicyLayer::new(disk.engine.clone(), "calls").unwrap().slots(None);
    let app = Router::new().route("/", route(|| async { "done" })).layer(layer);
    for status in [200, 200, 429] {
        let response = TestResponse::of(app.clone().oneshot(get("/", &[])).await.unwrap()).await;
        assert_eq!(response.status, status);
    }
}
