//! Health and reflection, by services of tonic.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tidegate_proto::rls;
use tower_service::Service;

use super::body::ResponseBody;
use super::deadline_body::DeadlineBody;
use super::health::Health;
use crate::daemon::SharedDaemon;
use tidegate_listen::ShutdownSignal;

type HandlerFuture = Pin<Box<dyn Future<Output = Response<tonic::body::Body>> + Send>>;
type Handler = Box<dyn Fn(Request<DeadlineBody>) -> HandlerFuture + Send + Sync>;

/// Services besides the rate limit service, by the prefixes of their paths.
pub(crate) struct AuxiliaryServices {
    services: Vec<(&'static str, Handler)>,
    health: Arc<Health>,
    request_time: Duration,
}

impl AuxiliaryServices {
    pub(crate) async fn new(daemon: SharedDaemon, shutdown: ShutdownSignal) -> Self {
        let request_time = daemon.settings.bounds.request_time;
        let (reporter, service) = tonic_health::server::health_reporter();
        let health = Arc::new(Health::new(daemon, reporter, shutdown).await);
        tokio::spawn(Arc::clone(&health).keep_publishing());
        let v1 = reflection().build_v1();
        let v1alpha = reflection().build_v1alpha();
        let mut services = vec![(HEALTH, handler(service.max_decoding_message_size(MOST_BYTES)))];
        // Cannot fail: a test has parsed these descriptors.
        services.extend(v1.ok().map(|it| {
            let service = it.max_decoding_message_size(MOST_BYTES);
            ("/grpc.reflection.v1.ServerReflection/", handler(service))
        }));
        services.extend(v1alpha.ok().map(|it| {
            let service = it.max_decoding_message_size(MOST_BYTES);
            ("/grpc.reflection.v1alpha.ServerReflection/", handler(service))
        }));
        Self { services, health, request_time }
    }

    pub(crate) async fn handle(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let path = request.uri().path();
        let service = self.services.iter().find(|(begin, _)| path.starts_with(begin));
        let Some((path, handler)) = service else {
            return super::failed(super::Status::Unimplemented, "no such method");
        };
        if *path == HEALTH {
            self.health.publish().await;
        }
        // The time-out of a request, also of each message in a stream.
        let pending = tokio::time::timeout(self.request_time, self.health.last_published());
        let pending = async move { pending.await.unwrap_or_default() };
        let outcome = handler(request.map(|body| DeadlineBody::new(body, pending))).await;
        outcome.map(|body| ResponseBody::other(body, self.health.last_published()))
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(rls::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn handler<S>(service: S) -> Handler
where
    S: Service<
            Request<tonic::body::Body>,
            Response = Response<tonic::body::Body>,
            Error = std::convert::Infallible,
        > + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
{
    Box::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move { infallible(service.call(request.map(tonic::body::Body::new)).await) })
    })
}

fn infallible(
    outcome: Result<Response<tonic::body::Body>, std::convert::Infallible>,
) -> Response<tonic::body::Body> {
    match outcome {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl fmt::Debug for AuxiliaryServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.services.iter().map(|(path, _)| path)).finish()
    }
}

const HEALTH: &str = "/grpc.health.v1.Health/";

/// The largest message: the name of a service or of a file.
const MOST_BYTES: usize = 4 << 10;
