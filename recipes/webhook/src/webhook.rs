//! The steps for an update: authenticate, rate limit, dispatch.

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
use tidegate::durable::OpenError;
use tidegate_proto::problem::{self, Problem};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::accepted::{AcceptedLedger, AcceptedMessage, MessageId, open_messages};
use crate::access::Access;
use crate::client::{TrustError, client};
use crate::message_limiter::{Claimed, MessageLimiter};
use crate::outbox::{Bounds, CallPermit, CallTarget, Outbox, WhenUnreachable};
use crate::settings::Settings;
use crate::update::{Message, message_of};

/// The webhook between Telegram and the agent.
///
/// Clones are handles of the same webhook.
pub struct Webhook {
    parts: Arc<Parts>,
}

struct Parts {
    access: Access,
    limiter: MessageLimiter,
    agent: Outbox,
    chat: Outbox,
    /// Where accepted messages are recorded; `None` in memory.
    ledger: Option<AcceptedLedger>,
    grace: Duration,
    /// Every message that is being decided holds a receiver.
    deciding: watch::Sender<()>,
}

impl Webhook {
    /// A webhook with these settings; the limiter has their policy.
    ///
    /// Accepted messages are in memory: the end of the process loses those that were not dispatched.
    pub fn new(settings: &Settings, limiter: MessageLimiter) -> Result<Self, TrustError> {
        Self::with(settings, limiter, None)
    }

    fn with(
        settings: &Settings,
        limiter: MessageLimiter,
        ledger: Option<AcceptedLedger>,
    ) -> Result<Self, TrustError> {
        let send_message = settings.send_message();
        let client = client([&settings.agent_url, &send_message])?;
        let agent = CallTarget { name: "the agent", address: settings.agent_url.clone() };
        let agent_bounds = Bounds {
            calls: settings.agent_calls,
            queue: settings.agent_queue,
            bytes: settings.agent_queue_bytes,
            longest: settings.agent_longest,
        };
        let chat = CallTarget { name: "the chat API", address: send_message };
        let chat_bounds = Bounds {
            calls: MAX_REPLIES,
            queue: REPLY_QUEUE,
            bytes: MAX_REPLY_BYTES,
            longest: settings.reply_longest,
        };
        let parts = Parts {
            access: settings.access.clone(),
            limiter,
            agent: Outbox::new((agent, client.clone()), agent_bounds, WhenUnreachable::Repeat),
            chat: Outbox::new((chat, client), chat_bounds, WhenUnreachable::Fail),
            ledger,
            grace: settings.grace,
            deciding: watch::Sender::new(()),
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

    /// Waits until all calls of the agent have ended, at most for the grace period. Call it when no
    /// more updates can arrive.
    pub async fn finish(&self) {
        let Parts { agent, chat, grace, deciding, .. } = &*self.parts;
        // Decisions are immediate, unless the store hangs.
        let _ = timeout(*grace, deciding.closed()).await;
        let (messages, replies) = tokio::join!(agent.drained(*grace), chat.drained(*grace));
        if messages + replies > 0 {
            let is_recorded = self.parts.ledger.is_some();
            let next = if is_recorded { "the next start sends them" } else { "they are lost" };
            tracing::error!(messages, replies, "stopped before all were delivered: {next}");
        }
    }

    fn health(&self) -> serde_json::Value {
        let Parts { agent, chat, .. } = &*self.parts;
        json!({ "ok": true, "agent": agent.health(), "replies": chat.health() })
    }

    /// Handles a message of an allowed user.
    async fn handle(&self, message: Message, update: Bytes) -> Response {
        let Parts { limiter, agent, .. } = &*self.parts;
        let Message { user, update_id, .. } = message;
        let checked = limiter.check(&message).await;
        if !checked.allowed {
            if limiter.is_first_denial(&message).await {
                tracing::info!(user, update_id, "rate limit reached");
                self.reply_denied(&message).await;
            }
            return done();
        }
        let Some(room) = agent.permit(update.len()).await else {
            if limiter.is_claimed(&checked).await {
                return done();
            }
            limiter.release(checked).await;
            tracing::warn!(user, update_id, "message not accepted: the agent's queue is full");
            let detail = "the agent's queue is full; resend later";
            return problem(&Problem::reduced_capacity(detail));
        };
        let remaining = checked.remaining;
        let id = MessageId::from(&message);
        let claimed = match str::from_utf8(&update) {
            Ok(text) => limiter.claim_noting(checked, &id.accepted(text)).await,
            Err(_) => {
                limiter.release(checked).await;
                return plain(StatusCode::BAD_REQUEST, "the update is not UTF-8");
            }
        };
        match claimed {
            Claimed::First => {
                tracing::debug!(user, update_id, remaining, "accepted");
                self.dispatch(Some(room), AcceptedMessage { id, update }).await;
            }
            Claimed::Again => tracing::debug!(user, update_id, "duplicate update"),
            Claimed::Released => {
                let detail = "the message was released meanwhile; resend it";
                return problem(&Problem::reduced_capacity(detail));
            }
        }
        done()
    }

    /// Sends an accepted message to the agent, in the background, and records the response.
    async fn dispatch(&self, room: Option<CallPermit>, message: AcceptedMessage) {
        let Parts { agent, ledger, .. } = &*self.parts;
        let AcceptedMessage { id, update } = message;
        let mut call = agent.post(update);
        call.headers_mut().insert(IDEMPOTENCY_KEY, id.update_id.into());
        let ledger = ledger.clone();
        let answered = async move {
            if let Some(ledger) = ledger {
                ledger.answered(id).await;
            }
        };
        agent.call(room, call, answered).await;
    }

    /// Replies to the user in the background: Telegram gets its response whatever happens to the
    /// reply.
    async fn reply_denied(&self, message: &Message) {
        let Parts { chat, .. } = &*self.parts;
        let text = json!({ "chat_id": message.chat, "text": TOO_MANY }).to_string();
        let Some(room) = chat.permit(text.len()).await else {
            tracing::warn!(
                user = message.user,
                "reply about the limit dropped: too many are queued"
            );
            return;
        };
        chat.call(Some(room), chat.post(text.into()), async {}).await;
    }
}

impl Webhook {
    /// A webhook whose accepted messages are in the ledger of the limiter's engine. It sends those
    /// to the agent that were accepted before and have no response yet, in their order.
    ///
    /// They are queued when this returns, ahead of new ones.
    pub async fn resume(settings: &Settings, limiter: MessageLimiter) -> Result<Self, ResumeError> {
        let open = open_messages(limiter.engine()).map_err(ResumeError::Ledger)?;
        let ledger = AcceptedLedger::new(limiter.engine().clone());
        let webhook = Self::with(settings, limiter, Some(ledger)).map_err(ResumeError::Trust)?;
        if !open.is_empty() {
            tracing::info!(messages = open.len(), "sending what was accepted before the restart");
        }
        for message in open {
            // Accepted is accepted, also where the settings allow fewer now.
            let room = webhook.parts.agent.permit(message.update.len()).await;
            webhook.dispatch(room, message).await;
        }
        Ok(webhook)
    }
}

/// Why a webhook cannot continue.
#[non_exhaustive]
pub enum ResumeError {
    /// The ledger cannot be read.
    Ledger(OpenError),
    /// The system's certificates cannot be read.
    Trust(TrustError),
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ledger(error) => write!(f, "RATE_LIMIT_STORE: {error}"),
            Self::Trust(error) => error.fmt(f),
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ResumeError {}

/// Handles one update.
async fn receive(State(webhook): State<Webhook>, headers: HeaderMap, body: Body) -> Response {
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
        Ok(Some(message)) if access.is_allowed(message.user) => message,
        Ok(_) => return done(),
        Err(error) => return plain(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    // In a separate task, so that it completes even if the peer disconnects: nothing is charged
    // without being dispatched.
    let guard = webhook.parts.deciding.subscribe();
    let decided = tokio::spawn(async move {
        let response = webhook.handle(message, update).await;
        drop(guard);
        response
    });
    let failed = |_| plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error; try again");
    decided.await.unwrap_or_else(failed)
}

/// The whole body, if it is not too long and arrives in time.
async fn read(body: Body) -> Result<Bytes, (StatusCode, &'static str)> {
    match timeout(MAX_BODY_TIME, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.source().is_some_and(|error| error.is::<LengthLimitError>()) => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "an update has at most 512 KiB"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the update is incomplete")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the update did not arrive within 10 s")),
    }
}

/// The response that keeps Telegram from resending.
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

impl Clone for Webhook {
    fn clone(&self) -> Self {
        Self { parts: Arc::clone(&self.parts) }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { access, limiter, .. } = &*self.parts;
        f.debug_struct("Webhook")
            .field("access", access)
            .field("limiter", limiter)
            .finish_non_exhaustive()
    }
}

/// The path that Telegram sends updates to.
pub const PATH: &str = "/telegram/webhook";

/// The reply to a user who has reached the limit.
pub const TOO_MANY: &str = "You've reached the message limit. Please try again later.";

/// Lets the agent detect duplicates of an update, too.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Far more than any update needs. It has to fit into an entry of the ledger.
pub(crate) const MAX_BODY_BYTES: usize = 512 << 10;

const MAX_BODY_TIME: Duration = Duration::from_secs(10);

/// How many replies are sent concurrently, and how many more may be queued. Telegram accepts about
/// 30 per second.
const MAX_REPLIES: u64 = 16;
const REPLY_QUEUE: u64 = 1_000;
const MAX_REPLY_BYTES: u64 = 4 << 20;
