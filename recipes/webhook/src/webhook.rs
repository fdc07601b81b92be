//! The way of an update: authenticate, rate limit, dispatch.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::LengthLimitError;
use serde_json::json;
use tidegate::{Clock, MemoryStore, Store, SystemClock};
use tidegate_proto::problem::{self, Problem};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::access::Access;
use crate::client::{TrustError, client};
use crate::message_limiter::{Claimed, MessageLimiter};
use crate::outbox::{Bounds, CallTarget, Outbox};
use crate::settings::Settings;
use crate::update::{Message, message_of};

/// What stands between Telegram and the agent.
///
/// Clones are handles of the same one.
pub struct Webhook<S = MemoryStore, C = SystemClock> {
    parts: Arc<Parts<S, C>>,
}

struct Parts<S, C> {
    access: Access,
    limiter: MessageLimiter<S, C>,
    agent: Outbox,
    chat: Outbox,
    grace: Duration,
    /// Every message that is being decided about keeps a receiver.
    taking: watch::Sender<()>,
}

impl<S: Store, C: Clock + Send + Sync + 'static> Webhook<S, C> {
    /// A webhook with these settings, whose gate has the policy of the settings.
    pub fn new(settings: &Settings, limiter: MessageLimiter<S, C>) -> Result<Self, TrustError> {
        let send_message = settings.send_message();
        let client = client([&settings.agent_url, &send_message])?;
        let agent = CallTarget { name: "the agent", address: settings.agent_url.clone() };
        let agent_bounds = Bounds {
            calls: settings.agent_calls,
            queue: settings.agent_queue,
            longest: settings.agent_longest,
        };
        let chat = CallTarget { name: "the chat API", address: send_message };
        let chat_bounds =
            Bounds { calls: MAX_REPLIES, queue: REPLY_QUEUE, longest: settings.reply_longest };
        let parts = Parts {
            access: settings.access.clone(),
            limiter,
            agent: Outbox::new(agent, client.clone(), agent_bounds),
            chat: Outbox::new(chat, client, chat_bounds),
            grace: settings.grace,
            taking: watch::Sender::new(()),
        };
        Ok(Self { parts: Arc::new(parts) })
    }

    /// The routes: the webhook, and `GET /healthz`.
    pub fn router(&self) -> Router {
        let health = async |State(webhook): State<Self>| Json(webhook.health());
        Router::new()
            .route(PATH, post(receive))
            .route("/healthz", get(health))
            .with_state(self.clone())
    }

    /// Waits until the agent has answered to everything that was passed to it, for as long as the
    /// settings say. Call it when nobody can send updates any more.
    pub async fn finish(&self) {
        let Parts { agent, chat, grace, taking, .. } = &*self.parts;
        // Decisions take no time worth mentioning, unless the store hangs.
        let _ = timeout(*grace, taking.closed()).await;
        let (messages, replies) = tokio::join!(agent.drained(*grace), chat.drained(*grace));
        if messages + replies > 0 {
            tracing::error!(messages, replies, "stopped before these were delivered");
        }
    }

    fn health(&self) -> serde_json::Value {
        let Parts { agent, chat, .. } = &*self.parts;
        json!({ "ok": true, "agent": agent.health(), "replies": chat.health() })
    }

    /// A message of somebody who is welcome.
    async fn take(&self, message: Message, update: Bytes) -> Response {
        let Parts { limiter, agent, .. } = &*self.parts;
        let Message { user, update_id, .. } = message;
        let checked = limiter.check(&message).await;
        if !checked.allowed {
            tracing::info!(user, update_id, "rate limit reached");
            self.reply_denied(&message).await;
            return done();
        }
        let Some(room) = agent.permit().await else {
            // Telegram sends it again later. Until then its unit stays set aside.
            tracing::warn!(user, update_id, "not accepted: too many messages wait for the agent");
            let detail = "too many messages wait for the agent; send it again later";
            return problem(&Problem::reduced_capacity(detail));
        };
        let remaining = checked.remaining;
        match limiter.claim(checked).await {
            Claimed::First => {
                tracing::debug!(user, update_id, remaining, "passed to the agent");
                let mut call = agent.post(update);
                call.headers_mut().insert(IDEMPOTENCY_KEY, update_id.into());
                agent.call(room, call);
            }
            Claimed::Again => tracing::debug!(user, update_id, "has come before"),
        }
        done()
    }

    /// Tells the user, in the background: Telegram gets its answer whatever becomes of this.
    async fn reply_denied(&self, message: &Message) {
        let Parts { chat, .. } = &*self.parts;
        let Some(room) = chat.permit().await else {
            tracing::warn!(user = message.user, "not told of the limit: too many replies wait");
            return;
        };
        let text = json!({ "chat_id": message.chat, "text": TOO_MANY }).to_string();
        chat.call(room, chat.post(text.into()));
    }
}

/// One update, from the first look at it to the answer.
async fn receive<S, C>(
    State(webhook): State<Webhook<S, C>>,
    headers: HeaderMap,
    body: Body,
) -> Response
where
    S: Store,
    C: Clock + Send + Sync + 'static,
{
    let access = &webhook.parts.access;
    if !access.is_telegram(&headers) {
        let detail = "the header X-Telegram-Bot-Api-Secret-Token is missing or wrong";
        return plain(StatusCode::UNAUTHORIZED, detail);
    }
    let update = match read(body).await {
        Ok(update) => update,
        Err((status, detail)) => return plain(status, detail),
    };
    let message = match message_of(&update) {
        Ok(Some(message)) if access.is_welcome(message.user) => message,
        Ok(_) => return done(),
        Err(error) => return plain(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    // In a task of its own, so that it comes to its end although the other side may hang up:
    // nothing is charged that is not passed on.
    let is_taking = webhook.parts.taking.subscribe();
    let taken = tokio::spawn(async move {
        let answer = webhook.take(message, update).await;
        drop(is_taking);
        answer
    });
    let failed = |_| plain(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong; try again");
    taken.await.unwrap_or_else(failed)
}

/// The whole body, if it is not too long and comes in time.
async fn read(body: Body) -> Result<Bytes, (StatusCode, &'static str)> {
    match timeout(MAX_BODY_TIME, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.source().is_some_and(|error| error.is::<LengthLimitError>()) => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "an update has at most 1 MiB"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the update broke off")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the update did not come within 10 s")),
    }
}

/// What Telegram wants to hear: do not send it again.
fn done() -> Response {
    Json(json!({ "ok": true })).into_response()
}

fn plain(status: StatusCode, detail: &str) -> Response {
    problem(&Problem::plain(status.as_u16(), status.canonical_reason().unwrap_or(""), detail))
}

fn problem(problem: &Problem<'_>) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, problem::CONTENT_TYPE)], problem.to_json()).into_response()
}

impl<S, C> Clone for Webhook<S, C> {
    fn clone(&self) -> Self {
        Self { parts: Arc::clone(&self.parts) }
    }
}

impl<S: Store, C> fmt::Debug for Webhook<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { access, limiter, .. } = &*self.parts;
        f.debug_struct("Webhook")
            .field("access", access)
            .field("gate", limiter)
            .finish_non_exhaustive()
    }
}

/// Where Telegram sends updates to.
pub const PATH: &str = "/telegram/webhook";

/// What somebody is told who has reached the limit.
pub const TOO_MANY: &str = "You've reached the message limit. Please try again later.";

/// So that the agent, too, can tell when it gets the same update twice.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Far more than any update has.
const MAX_BODY_BYTES: usize = 1 << 20;

const MAX_BODY_TIME: Duration = Duration::from_secs(10);

/// How many replies are sent at a time, and how many more may wait. Telegram takes about 30 per
/// second.
const MAX_REPLIES: u64 = 16;
const REPLY_QUEUE: u64 = 1_000;
