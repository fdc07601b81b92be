//! gRPC: Envoy's rate limit service, health and reflection.
//!
//! `ShouldRateLimit` is implemented by hand, without a task or a box more than HTTP/2 needs; all
//! other methods go to services of tonic.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidegate_proto::grpc::percent_encoded;
use tidegate_proto::rls::{self, Message, RateLimitRequest};

use crate::access::{AccessDenial, ConnectionAccess, Principal};
use crate::daemon::SharedDaemon;
use crate::http::credentials::{SecretHeaders, secret};
use crate::listener::Listener;
use crate::rls::RlsError;
use body::ResponseBody;
use calls::Calls;
use health_reflection::AuxiliaryServices;
use message::{LargeCalls, MessageBudget, MessageError, framed, read_message};
use preface::PrefacedStream;
use tidegate_listen::{Connection, PeerId, Permit, Protocol, ShutdownSignal};
use write_stall::{TrackedBody, WriteProgress};

mod body;
mod calls;
mod deadline_body;
mod frame_heads;
mod health;
mod health_reflection;
mod message;
mod preface;
mod stream_bytes;
mod write_stall;

/// The protocol of the gRPC listener: HTTP/2.
#[derive(Debug)]
pub(crate) struct Grpc {
    shared: Arc<GrpcContext>,
}

/// The context of all calls.
#[derive(Debug)]
struct GrpcContext {
    daemon: SharedDaemon,
    room: MessageBudget,
    others: AuxiliaryServices,
}

impl Grpc {
    pub(crate) async fn new(daemon: SharedDaemon, shutdown: ShutdownSignal) -> Self {
        let others = AuxiliaryServices::new(Arc::clone(&daemon), shutdown).await;
        // A part of the budget for everything that is received, so that a client with many large
        // messages waits, and is not closed.
        let room_bytes = (daemon.settings.bounds.received_bytes / 4).max(MESSAGE_BYTES);
        let room = MessageBudget::new(room_bytes.min(ROOM_BYTES_MAX));
        Self { shared: Arc::new(GrpcContext { daemon, room, others }) }
    }
}

impl Protocol for Grpc {
    async fn serve(&self, connection: Connection) {
        let Connection { io, peer, mut shutdown, permit, certificate, .. } = connection;
        let daemon = &self.shared.daemon;
        let access = daemon.access.connect(permit.state(), certificate.as_ref());
        let bounds = daemon.settings.bounds;
        let (writes, responses) =
            (Arc::new(WriteProgress::default()), Arc::new(WriteProgress::default()));
        let preface = PrefacedStream::new(io, Arc::clone(&writes), Arc::clone(&permit));
        let io = tokio::select! {
            stream = tokio::time::timeout(bounds.head_time, preface) => match stream {
                Ok(Ok(io)) => io,
                Ok(Err(_)) | Err(_) => {
                    daemon.metrics.listener(Listener::Grpc).malformed.add(1);
                    return;
                }
            },
            () = shutdown.wanted() => return,
        };
        let (calls, large) = (Arc::new(Calls::default()), Arc::new(LargeCalls::default()));
        let service = service_fn(|request: Request<Incoming>| {
            let shared = Arc::clone(&self.shared);
            let (call, permit) = (calls.begin(), Arc::clone(&permit));
            let (large, responses) = (Arc::clone(&large), Arc::clone(&responses));
            // A future is copied several times on its way into a task, so it begins with little.
            let begun = begin(&shared, &access, peer, request);
            async move {
                let (response, is_tracked) = respond(&shared, &permit, &large, peer, begun).await;
                Ok::<_, Infallible>(response.map(|body| match is_tracked {
                    true => TrackedBody::tracked(body, call, permit, responses),
                    false => TrackedBody::untracked(body, call, permit),
                }))
            }
        });
        let mut http = pin!(
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
            () = calls.idle_for(bounds.idle_time) => {
                http.as_mut().graceful_shutdown();
                tokio::time::timeout(bounds.write_time, http).await.unwrap_or(Ok(()))
            }
            () = responses.stalled_for(bounds.write_time) => Ok(()),
            () = writes.stalled_for(bounds.write_time) => Ok(()),
        };
        if let Err(error) = result {
            daemon.metrics.listener(Listener::Grpc).malformed.add(1);
            tracing::debug!(listener = "grpc", %error, "connection failed");
        }
    }
}

/// A call whose head was read.
enum BegunCall {
    /// `ShouldRateLimit`, with its body.
    Limit(Principal, Incoming),
    /// It is answered already.
    Rejected(Box<Response<ResponseBody>>),
    /// Another method.
    Other(Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>),
}

/// Reads the head of a call.
fn begin(
    shared: &Arc<GrpcContext>,
    access: &ConnectionAccess,
    peer: PeerId,
    request: Request<Incoming>,
) -> BegunCall {
    let daemon = &shared.daemon;
    let is_limit = request.uri().path() == rls::SHOULD_RATE_LIMIT;
    if is_limit && let Some(rejection) = reject_head(&request) {
        return BegunCall::Rejected(Box::new(rejection));
    }
    if is_limit {
        return match principal(daemon, access, request.headers()) {
            Ok(principal) => BegunCall::Limit(principal, request.into_body()),
            Err(denial) => BegunCall::Rejected(Box::new(denied(daemon, peer, &denial))),
        };
    }
    match admit_other(daemon, access, &request) {
        Ok(()) => {
            let shared = Arc::clone(shared);
            BegunCall::Other(Box::pin(async move { shared.others.handle(request).await }))
        }
        Err(denial) => {
            let response = denied(daemon, peer, &denial);
            BegunCall::Other(Box::pin(std::future::ready(response)))
        }
    }
}

/// The response to a call, and whether its client has to read it in time.
async fn respond(
    shared: &GrpcContext,
    permit: &Permit,
    large: &LargeCalls,
    peer: PeerId,
    begun: BegunCall,
) -> (Response<ResponseBody>, bool) {
    match begun {
        BegunCall::Limit(principal, body) => {
            (should_rate_limit(shared, permit, large, principal, peer, body).await, true)
        }
        BegunCall::Rejected(response) => (*response, true),
        // It may be a stream.
        BegunCall::Other(response) => (response.await, false),
    }
}

async fn should_rate_limit(
    shared: &GrpcContext,
    permit: &Permit,
    large: &LargeCalls,
    principal: Principal,
    peer: PeerId,
    body: Incoming,
) -> Response<ResponseBody> {
    let GrpcContext { daemon, room, .. } = shared;
    let read = {
        let read = pin!(read_message(body, MESSAGE_BYTES, room, large, permit.state()));
        within(daemon.settings.bounds.request_time, read).await
    };
    let read = match read {
        Some(Ok(read)) => read,
        Some(Err(error)) => return malformed(daemon, error),
        None => return malformed(daemon, MessageError::TooSlow),
    };
    // A message that is small in bytes can be large in memory.
    if !read.is_small() && rls::count_parts(&read.bytes) > crate::rls::MOST_PARTS {
        return malformed(daemon, MessageError::TooLarge);
    }
    let Ok(call) = RateLimitRequest::decode(read.bytes.clone()) else {
        return malformed(daemon, MessageError::NotAMessage);
    };
    permit.begin_request();
    let since = daemon.now();
    let response = crate::rls::handle(daemon, Listener::Grpc, &principal, &call).await;
    permit.end_request();
    daemon.observe_durations(Listener::Grpc, since, 1);
    match response {
        Ok(response) => {
            let mut response = Response::new(ResponseBody::one(framed(&response)));
            response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
            response
        }
        Err(error) => {
            let status = match &error {
                RlsError::Invalid(_) => Status::InvalidArgument,
                RlsError::Outage(_) => Status::Unavailable,
                RlsError::Denied(denial) => return denied(daemon, peer, denial),
            };
            failed(status, &error.to_string())
        }
    }
}

/// The output of a future; `None` if it takes longer than this. A future that is ready at once
/// needs no timer.
async fn within<F: Future>(time: Duration, mut future: Pin<&mut F>) -> Option<F::Output> {
    let at_once = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    match at_once {
        Poll::Ready(output) => Some(output),
        Poll::Pending => Box::pin(tokio::time::timeout(time, future)).await.ok(),
    }
}

/// Who the client of a call is, by its metadata or its certificate.
fn principal(
    daemon: &SharedDaemon,
    access: &ConnectionAccess,
    metadata: &HeaderMap,
) -> Result<Principal, AccessDenial> {
    let secret = match daemon.access.needs_tokens() {
        true => secret(metadata, SecretHeaders::Both)?,
        false => None,
    };
    let principal = daemon.access.authenticate(access, secret, daemon.wall())?;
    principal.charge(1)?;
    Ok(principal)
}

/// Health needs no token, everything else does.
fn admit_other(
    daemon: &SharedDaemon,
    access: &ConnectionAccess,
    request: &Request<Incoming>,
) -> Result<(), AccessDenial> {
    if request.uri().path().starts_with("/grpc.health.v1.Health/") {
        return Ok(());
    }
    principal(daemon, access, request.headers()).map(drop)
}

/// The response to a client that may not do what it requested.
fn denied(daemon: &SharedDaemon, peer: PeerId, denial: &AccessDenial) -> Response<ResponseBody> {
    daemon.access.note(Listener::Grpc, peer, denial);
    let status = match denial {
        denial if denial.is_unauthenticated() => Status::Unauthenticated,
        AccessDenial::Ambiguous(_) => Status::InvalidArgument,
        AccessDenial::Limit(_) => Status::ResourceExhausted,
        _ => Status::PermissionDenied,
    };
    failed(status, &denial.to_string())
}

/// The response to a request that is no call of gRPC.
fn reject_head(request: &Request<Incoming>) -> Option<Response<ResponseBody>> {
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

fn malformed(daemon: &SharedDaemon, error: MessageError) -> Response<ResponseBody> {
    daemon.metrics.listener(Listener::Grpc).malformed.add(1);
    let status = match error {
        MessageError::TooLarge => Status::ResourceExhausted,
        MessageError::Compressed => Status::Unimplemented,
        MessageError::TooSlow => Status::DeadlineExceeded,
        MessageError::NotAMessage | MessageError::Gone => Status::InvalidArgument,
    };
    let mut response = failed(status, &error.to_string());
    if error == MessageError::Compressed {
        response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    }
    response
}

/// The status codes of gRPC in use.
#[derive(Clone, Copy, Debug)]
enum Status {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// A response with an error and no message.
fn failed(status: Status, message: &str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    headers.insert("grpc-status", HeaderValue::from(status as u16));
    let message = HeaderValue::try_from(percent_encoded(message));
    headers.extend(
        message.ok().map(|message| (http::HeaderName::from_static("grpc-message"), message)),
    );
    response
}

/// The data of all bodies.
type Data = Bytes;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The most calls at a time on one connection.
const MOST_STREAMS: u32 = 1_024;
/// The most streams that may be reset before they are accepted.
const MOST_RESETS: usize = 64;
/// The most streams that may fail before the connection is closed.
const MOST_ERRORS: usize = 64;
/// The largest message: all descriptors that a call may have, with the longest headers that Envoy
/// accepts.
const MESSAGE_BYTES: usize = 4 << 20;
/// The most bytes of messages at a time, small ones not counted.
const ROOM_BYTES_MAX: usize = 32 << 20;
/// The window of a stream: bytes that a call may send before it is read.
const STREAM_BYTES: u32 = 16 << 10;
/// Calls that wait for the message budget must not block calls that have it.
const CONNECTION_BYTES: u32 = STREAM_BYTES * MOST_STREAMS;
const SEND_BYTES: usize = 64 << 10;
