//! Desks and their clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, header};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::{Value, json};
use tidegate::{Timestamp, clock::ManualClock};
use tidegate_listen::ListenSocket;
use tidegate_proposals::{
    Client, ConnectionLimits, Desk, Governors, Limits, Settings, client, serve,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than any step takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const GOVERNORS: &str = "ada:ada-secret,bob:bob-secret,cy:cy-secret";

/// A temporary folder, removed on drop.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-proposals-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A desk on its own port, with a manual clock.
pub(crate) struct Server {
    pub(crate) http: Http,
    pub(crate) clock: ManualClock,
    pub(crate) desk: Desk,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

/// No cooldown, a window of one round.
pub(crate) fn easy() -> Limits {
    Limits { cooldown: None, ..Limits::default() }
}

pub(crate) fn settings(scratch: &Scratch, ai: SocketAddr, limits: Limits) -> Settings {
    Settings {
        store: scratch.store(),
        governors: Governors::from_text(GOVERNORS, "host-secret").unwrap(),
        interpreter: format!("http://{ai}/interpret").parse().unwrap(),
        interval: 1,
        limits,
    }
}

pub(crate) async fn started(settings: &Settings) -> Server {
    started_at(settings, ManualClock::new(Timestamp::from_secs(1_700_000_000))).await
}

pub(crate) async fn started_at(settings: &Settings, clock: ManualClock) -> Server {
    let desk = Desk::open_with_clock(settings, Arc::new(clock.clone())).unwrap();
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, stopping) = oneshot::channel::<()>();
    let router = desk.router();
    let limits = ConnectionLimits { all: 2_048, per_address: 1_024 };
    let serving = tokio::spawn(async move {
        serve(socket, router, limits, async { drop(stopping.await) }).await;
    });
    Server { http: Http::new(address), clock, desk, stop: Some(stop), serving }
}

impl Server {
    /// Stops it, so that the folder is free.
    pub(crate) async fn stopped(self) -> ManualClock {
        let Self { http, clock, desk, stop, serving } = self;
        drop(http);
        desk.close();
        drop(stop);
        serving.await.unwrap();
        desk.finish(TIMEOUT).await;
        clock
    }
}

/// A client of a desk.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    client: Client,
}

/// A response of the desk.
#[derive(Debug)]
pub(crate) struct DeskResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl DeskResponse {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(matches!(self.status, 200 | 201), "{self:?}");
        self.body
    }

    pub(crate) fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn denied(self, status: u16, detail: &str) {
        assert_eq!((self.status, self.detail()), (status, detail), "{self:?}");
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
    }
}

impl Http {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let client = client(&format!("http://{address}").parse().unwrap()).unwrap();
        Self { address, client }
    }

    /// One request; `None` if the desk is gone.
    pub(crate) async fn try_send(
        &self,
        who: &str,
        (method, path): (Method, &str),
        body: Option<Value>,
    ) -> Option<DeskResponse> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header(header::AUTHORIZATION, format!("Bearer {who}-secret"))
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let exchange = async {
            let response = self.client.request(request).await.ok()?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = response.into_body().collect().await.ok()?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            Some(DeskResponse { status, headers, body })
        };
        timeout(TIMEOUT, exchange).await.expect("a response in time")
    }

    pub(crate) async fn get(&self, who: &str, path: &str) -> DeskResponse {
        self.try_send(who, (Method::GET, path), None).await.unwrap()
    }

    pub(crate) async fn post(&self, who: &str, path: &str, body: Value) -> DeskResponse {
        self.try_send(who, (Method::POST, path), Some(body)).await.unwrap()
    }

    pub(crate) async fn propose(&self, who: &str, tier: u64, text: &str) -> DeskResponse {
        self.post(who, "/v1/proposals", json!({ "tier": tier, "text": text })).await
    }

    /// Submits a proposal that is accepted; returns its id.
    pub(crate) async fn proposed(&self, who: &str, tier: u64, text: &str) -> String {
        let proposal = self.propose(who, tier, text).await.ok();
        assert_eq!(proposal["status"], "interpreted");
        proposal["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn act(&self, who: &str, id: &str, act: &str) -> DeskResponse {
        self.post(who, &format!("/v1/proposals/{id}/{act}"), json!({})).await
    }

    pub(crate) async fn vote(&self, who: &str, id: &str, vote: &str) -> DeskResponse {
        self.post(who, &format!("/v1/proposals/{id}/vote"), json!({ "vote": vote })).await
    }

    /// Plays the next round, and closes the window.
    pub(crate) async fn next_window(&self) -> Value {
        let last = self.get("host", "/v1/window").await.ok()["rounds"]["last"].as_u64().unwrap();
        self.post("host", "/v1/rounds", json!({ "round": last + 1 })).await.ok();
        self.post("host", "/v1/tally", json!({})).await.ok()
    }

    /// Submits a proposal, and lets all vote for it.
    pub(crate) async fn carried(&self, who: &str, tier: u64, text: &str) -> String {
        let id = self.proposed(who, tier, text).await;
        self.act(who, &id, "confirm").await.ok();
        for governor in ["ada", "bob", "cy"] {
            self.vote(governor, &id, "yes").await.ok();
        }
        id
    }

    /// Tokens and proposals that a governor has left.
    pub(crate) async fn left(&self, who: &str) -> (u64, u64) {
        let balances = self.get(who, "/v1/balances").await.ok();
        let list = balances["balances"].as_array().unwrap().clone();
        let own = list.into_iter().find(|it| it["governor"] == who).unwrap();
        (own["tokens"].as_u64().unwrap(), own["proposals_left"].as_u64().unwrap())
    }

    /// The sum of all events of a governor.
    pub(crate) async fn sum(&self, who: &str) -> i64 {
        let events = self.events(&format!("?governor={who}")).await;
        events.iter().filter_map(|event| event["tokens"].as_i64()).sum()
    }

    pub(crate) async fn events(&self, query: &str) -> Vec<Value> {
        let audit = self.get("host", &format!("/v1/audit{query}")).await.ok();
        audit["events"].as_array().unwrap().clone()
    }

    pub(crate) async fn status(&self, id: &str) -> String {
        self.status_by("ada", id).await
    }

    /// The status of a proposal, as a governor sees it.
    pub(crate) async fn status_by(&self, who: &str, id: &str) -> String {
        let proposal = self.get(who, &format!("/v1/proposals/{id}")).await.ok();
        proposal["status"].as_str().unwrap().to_owned()
    }

    /// Waits until a proposal of a governor has this status.
    pub(crate) async fn until(&self, who: &str, status: &str, count: usize) {
        let waiting = async {
            loop {
                let listed = self.get(who, &format!("/v1/proposals?status={status}")).await.ok();
                let listed = listed["proposals"].as_array().unwrap().clone();
                if listed.iter().filter(|it| it["governor"] == who).count() == count {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, waiting).await.expect("the status in time");
    }
}
