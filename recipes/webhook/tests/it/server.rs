//! A webhook with its agent and chat API.

use std::ffi::OsString;
use std::net::SocketAddr;

use axum::http::StatusCode;
use serde_json::Value;
use tidegate::{StoreEngine, Timestamp, clock::ManualClock};
use tidegate_listen::ListenSocket;
use tidegate_webhook::{MessageLimiter, Settings, Webhook, serve};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::http::{HttpResponse, SECRET, TIMEOUT, health, send, update};
use crate::stand_in::StandIn;

/// A running webhook, with its agent and its chat API.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    pub(crate) agent: StandIn,
    pub(crate) chat: StandIn,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

/// A webhook whose agent and chat API respond at once.
pub(crate) async fn started(variables: &[(&str, &str)]) -> Server {
    started_with(variables, StandIn::new().await, StandIn::new().await).await
}

pub(crate) async fn started_with(
    variables: &[(&str, &str)],
    agent: StandIn,
    chat: StandIn,
) -> Server {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let environment = environment(&agent, &chat);
    let variables = [variables, &as_strs(&environment)].concat();
    let find = |name: &str| variables.iter().find(|variable| variable.0 == name);
    let settings =
        Settings::from_env(|name| find(name).map(|variable| OsString::from(variable.1))).unwrap();
    let engine: StoreEngine =
        StoreEngine::builder(settings.policy.clone()).clock(clock.clone()).build().unwrap();
    let webhook = Webhook::new(&settings, MessageLimiter::new(engine)).unwrap();
    let socket = ListenSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, stopping) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let stop_requested = async { drop(stopping.await) };
        serve(socket, webhook.router(), stop_requested).await;
        webhook.finish().await;
    });
    Server { address, clock, agent, chat, stop: Some(stop), serving }
}

impl Server {
    pub(crate) async fn send(&self, update_id: i64, user: u64) -> HttpResponse {
        send(self.address, &update(update_id, user)).await
    }

    /// Waits until the health report fulfils a condition.
    pub(crate) async fn until(&self, is_so: impl Fn(&Value) -> bool) {
        let polled = async {
            while !is_so(&health(self.address).await) {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, polled).await.expect("the condition in time");
    }

    /// Requests a stop. The task ends when it has stopped.
    pub(crate) fn stop(&mut self) -> &mut JoinHandle<()> {
        if let Some(stop) = self.stop.take() {
            stop.send(()).unwrap();
        }
        &mut self.serving
    }
}

/// The environment of every webhook in these tests.
pub(crate) fn environment(agent: &StandIn, chat: &StandIn) -> Vec<(&'static str, String)> {
    vec![
        ("TELEGRAM_WEBHOOK_SECRET", SECRET.to_owned()),
        ("TELEGRAM_BOT_TOKEN", "123:token".to_owned()),
        ("TELEGRAM_API_BASE", chat.url()),
        ("AGENT_URL", agent.url() + "/agent"),
        ("RATE_LIMIT_STORE", "memory".to_owned()),
    ]
}

pub(crate) fn as_strs<'a>(variables: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A server that receives and never responds.
pub(crate) async fn silent() -> StandIn {
    StandIn::silent(StatusCode::OK).await
}

impl Server {
    /// A message sent alone reaches the agent, or else the chat API gets a reply.
    pub(crate) async fn expect(&mut self, update_id: i64, passes: bool) {
        let (expected, other) = if passes {
            (&mut self.agent, &mut self.chat)
        } else {
            (&mut self.chat, &mut self.agent)
        };
        let call = expected.next().await;
        if passes {
            assert_eq!(call.body["update_id"], update_id);
        }
        assert!(other.is_idle(), "message {update_id}");
    }
}
