//! gRPC: Envoy's rate limit service, health and reflection.
//!
//! The one method that matters is answered by hand, without a task or a box more than HTTP/2 needs;
//! all others go to ready-made services.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tollgate_proto::rls::{self, Message, RateLimitRequest};

use crate::accept::{Connection, Protocol};
use crate::daemon::SharedDaemon;
use crate::door::Door;
use crate::rls::Refused;
use body::Answer;
use message::{Bad, read_message, written};
use others::Others;
use preface::Prefaced;

mod body;
mod message;
mod others;
mod preface;

/// Serves gRPC over HTTP/2.
#[derive(Debug)]
pub(crate) struct Grpc {
    daemon: SharedDaemon,
    others: Arc<Others>,
}

impl Grpc {
    pub(crate) async fn new(daemon: SharedDaemon) -> Self {
        Self { daemon, others: Arc::new(Others::new().await) }
    }
}

impl Protocol for Grpc {
    async fn serve(&self, connection: Connection) {
        let Connection { io, mut stopping, place, .. } = connection;
        let bounds = self.daemon.settings.bounds;
        let begun = tokio::time::timeout(bounds.head_time, Prefaced::new(io));
        let io = tokio::select! {
            begun = begun => match begun {
                Ok(Ok(io)) => io,
                Ok(Err(_)) | Err(_) => {
                    self.daemon.metrics.door(Door::Grpc).malformed.add(1);
                    return;
                }
            },
            () = stopping.wanted() => return,
        };
        let asked = stopping.clone();
        let service = service_fn(|request: Request<Incoming>| {
            let (daemon, others) = (Arc::clone(&self.daemon), Arc::clone(&self.others));
            let stopping = asked.clone();
            async move {
                if request.uri().path() == rls::SHOULD_RATE_LIMIT {
                    return Ok::<_, Infallible>(should_rate_limit(&daemon, request).await);
                }
                Ok(others.answer(request, stopping).await)
            }
        });
        let mut http = std::pin::pin!(
            http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(MOST_STREAMS)
                .max_pending_accept_reset_streams(MOST_RESETS)
                .max_local_error_reset_streams(MOST_ERRORS)
                .initial_stream_window_size(STREAM_BYTES)
                .initial_connection_window_size(CONNECTION_BYTES)
                .max_send_buf_size(SEND_BYTES)
                .max_header_list_size(u32::try_from(bounds.head_bytes).unwrap_or(u32::MAX))
                .keep_alive_interval(bounds.idle_time)
                .keep_alive_timeout(bounds.write_time)
                .auto_date_header(false)
                .serve_connection(TokioIo::new(io), service)
        );
        let result = tokio::select! {
            result = &mut http => result,
            () = stopping.wanted() => {
                http.as_mut().graceful_shutdown();
                http.await
            }
        };
        if let Err(error) = result {
            self.daemon.metrics.door(Door::Grpc).malformed.add(1);
            tracing::debug!(%error, "a connection went wrong");
        }
        drop(place);
    }
}

async fn should_rate_limit(daemon: &SharedDaemon, request: Request<Incoming>) -> Response<Answer> {
    if let Some(refused) = refused_head(&request) {
        return refused;
    }
    let read = read_message(request.into_body(), MESSAGE_BYTES);
    let bytes = match tokio::time::timeout(daemon.settings.bounds.request_time, read).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(bad)) => return malformed(daemon, &bad),
        Err(_) => return malformed(daemon, &Bad::TooSlow),
    };
    let Ok(call) = RateLimitRequest::decode(bytes) else {
        return malformed(daemon, &Bad::NotAMessage);
    };
    let since = daemon.now();
    let answer = crate::rls::answer(daemon, Door::Grpc, &call).await;
    daemon.observe_durations(Door::Grpc, since, 1);
    match answer {
        Ok(answer) => {
            let mut response = Response::new(Answer::one(written(&answer)));
            response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
            response
        }
        Err(refused) => {
            let status = match &refused {
                Refused::Invalid(_) => Status::InvalidArgument,
                Refused::Outage(_) => Status::Unavailable,
            };
            failed(status, refused.message())
        }
    }
}

/// What is no call of gRPC.
fn refused_head(request: &Request<Incoming>) -> Option<Response<Answer>> {
    let is_grpc = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()));
    let status = match (request.method(), is_grpc) {
        (&Method::POST, true) => return None,
        (&Method::POST, false) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        _ => StatusCode::METHOD_NOT_ALLOWED,
    };
    let mut response = Response::new(Answer::empty());
    *response.status_mut() = status;
    Some(response)
}

fn malformed(daemon: &SharedDaemon, bad: &Bad) -> Response<Answer> {
    daemon.metrics.door(Door::Grpc).malformed.add(1);
    let status = match bad {
        Bad::TooLarge => Status::ResourceExhausted,
        Bad::Compressed => Status::Unimplemented,
        Bad::TooSlow => Status::DeadlineExceeded,
        Bad::NotAMessage | Bad::Gone => Status::InvalidArgument,
    };
    failed(status, &bad.to_string())
}

/// The codes of gRPC that are used here.
#[derive(Clone, Copy, Debug)]
enum Status {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
}

/// An answer that is nothing but an error.
fn failed(status: Status, message: &str) -> Response<Answer> {
    let mut response = Response::new(Answer::empty());
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    headers.insert("grpc-status", HeaderValue::from(status as u16));
    let message = HeaderValue::try_from(message::percent_encoded(message));
    headers.extend(
        message.ok().map(|message| (http::HeaderName::from_static("grpc-message"), message)),
    );
    response
}

/// What all bodies are made of.
type Data = Bytes;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The most calls at a time on one connection.
const MOST_STREAMS: u32 = 1_024;
/// The most calls that may be taken back before they were looked at.
const MOST_RESETS: usize = 64;
/// The most calls that may be wrong before the connection is.
const MOST_ERRORS: usize = 64;
/// The largest message: every descriptor that a call may have, with the longest headers that Envoy takes.
const MESSAGE_BYTES: usize = 4 << 20;
const STREAM_BYTES: u32 = 64 << 10;
const CONNECTION_BYTES: u32 = 1 << 20;
const SEND_BYTES: usize = 64 << 10;
