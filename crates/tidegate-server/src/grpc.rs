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
use tidegate_proto::rls::{self, Message, RateLimitRequest};

use crate::accept::{Connection, Protocol, ShutdownSignal};
use crate::daemon::SharedDaemon;
use crate::listener::Listener;
use crate::rls::RlsError;
use body::ResponseBody;
use health_reflection::AuxiliaryServices;
use message::{MessageBudget, MessageError, read_message, written};
use preface::PrefacedStream;
use write_stall::{TrackedBody, WriteProgress};

mod body;
mod deadline_body;
mod health;
mod health_reflection;
mod message;
mod preface;
mod write_stall;

/// Serves gRPC over HTTP/2.
#[derive(Debug)]
pub(crate) struct Grpc {
    shared: Arc<GrpcContext>,
}

/// What all calls share.
#[derive(Debug)]
struct GrpcContext {
    daemon: SharedDaemon,
    room: MessageBudget,
    others: AuxiliaryServices,
}

impl Grpc {
    pub(crate) async fn new(daemon: SharedDaemon, shutdown: ShutdownSignal) -> Self {
        let others = AuxiliaryServices::new(Arc::clone(&daemon), shutdown).await;
        Self {
            shared: Arc::new(GrpcContext { daemon, room: MessageBudget::new(ROOM_BYTES), others }),
        }
    }
}

impl Protocol for Grpc {
    async fn serve(&self, connection: Connection) {
        let Connection { io, mut shutdown, permit, .. } = connection;
        let daemon = &self.shared.daemon;
        let bounds = daemon.settings.bounds;
        let (writes, responses) =
            (Arc::new(WriteProgress::default()), Arc::new(WriteProgress::default()));
        let begun = PrefacedStream::new(io, Arc::clone(&writes));
        let begun = tokio::time::timeout(bounds.head_time, begun);
        let io = tokio::select! {
            begun = begun => match begun {
                Ok(Ok(io)) => io,
                Ok(Err(_)) | Err(_) => {
                    daemon.metrics.listener(Listener::Grpc).malformed.add(1);
                    return;
                }
            },
            () = shutdown.wanted() => return,
        };
        let service = service_fn(|request: Request<Incoming>| {
            let (shared, responses) = (Arc::clone(&self.shared), Arc::clone(&responses));
            async move {
                Ok::<_, Infallible>(if request.uri().path() == rls::SHOULD_RATE_LIMIT {
                    let response = should_rate_limit(&shared, request).await;
                    response.map(|body| TrackedBody::now(body, responses))
                } else {
                    shared.others.handle(request).await.map(TrackedBody::at_leisure)
                })
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
            () = shutdown.wanted() => {
                http.as_mut().graceful_shutdown();
                http.await
            }
            () = responses.ignored_for(bounds.write_time) => Ok(()),
            () = writes.ignored_for(bounds.write_time) => Ok(()),
        };
        if let Err(error) = result {
            daemon.metrics.listener(Listener::Grpc).malformed.add(1);
            tracing::debug!(%error, "a connection went wrong");
        }
        drop(permit);
    }
}

async fn should_rate_limit(
    shared: &GrpcContext,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let GrpcContext { daemon, room, .. } = shared;
    if let Some(refused) = refused_head(&request) {
        return refused;
    }
    let read = read_message(request.into_body(), MESSAGE_BYTES, room);
    let read = match tokio::time::timeout(daemon.settings.bounds.request_time, read).await {
        Ok(Ok(read)) => read,
        Ok(Err(bad)) => return malformed(daemon, bad),
        Err(_) => return malformed(daemon, MessageError::TooSlow),
    };
    // What is small in bytes could be large in memory.
    if !read.is_small() && rls::count_parts(&read.bytes) > MOST_PARTS {
        return malformed(daemon, MessageError::TooLarge);
    }
    let Ok(call) = RateLimitRequest::decode(read.bytes.clone()) else {
        return malformed(daemon, MessageError::NotAMessage);
    };
    let since = daemon.now();
    let response = crate::rls::handle(daemon, Listener::Grpc, &call).await;
    daemon.observe_durations(Listener::Grpc, since, 1);
    match response {
        Ok(response) => {
            let mut response = Response::new(ResponseBody::one(written(&response)));
            response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
            response
        }
        Err(refused) => {
            let status = match &refused {
                RlsError::Invalid(_) => Status::InvalidArgument,
                RlsError::Outage(_) => Status::Unavailable,
            };
            failed(status, refused.message())
        }
    }
}

/// What is no call of gRPC.
fn refused_head(request: &Request<Incoming>) -> Option<Response<ResponseBody>> {
    let is_grpc = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()));
    let status = match (request.method(), is_grpc) {
        (&Method::POST, true) => return None,
        (&Method::POST, false) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        _ => StatusCode::METHOD_NOT_ALLOWED,
    };
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = status;
    Some(response)
}

fn malformed(daemon: &SharedDaemon, bad: MessageError) -> Response<ResponseBody> {
    daemon.metrics.listener(Listener::Grpc).malformed.add(1);
    let status = match bad {
        MessageError::TooLarge => Status::ResourceExhausted,
        MessageError::Compressed => Status::Unimplemented,
        MessageError::TooSlow => Status::DeadlineExceeded,
        MessageError::NotAMessage | MessageError::Gone => Status::InvalidArgument,
    };
    let mut response = failed(status, &bad.to_string());
    if bad == MessageError::Compressed {
        response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
    response
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
fn failed(status: Status, message: &str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
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
/// The most descriptors and entries in a message of some length.
const MOST_PARTS: usize = 2_048;
/// How much of messages may be there at a time beyond what is small.
const ROOM_BYTES: usize = 32 << 20;
/// What a call may send before it is read.
const STREAM_BYTES: u32 = 16 << 10;
/// Calls that wait for room must not keep those from going on that have it.
const CONNECTION_BYTES: u32 = STREAM_BYTES * MOST_STREAMS;
const SEND_BYTES: usize = 64 << 10;
