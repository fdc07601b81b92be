//! Health and reflection, by ready-made services.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tidegate_proto::rls;
use tower_service::Service;

use super::body::Answer;
use super::health::Health;
use super::timely::Timely;
use crate::accept::Stopping;
use crate::daemon::SharedDaemon;

type Answering = Pin<Box<dyn Future<Output = Response<tonic::body::Body>> + Send>>;
type Handler = Box<dyn Fn(Request<Timely>) -> Answering + Send + Sync>;

/// Services besides the one that matters, by the beginnings of their paths.
pub(crate) struct Others {
    services: Vec<(&'static str, Handler)>,
    health: Arc<Health>,
    request_time: Duration,
}

impl Others {
    pub(crate) async fn new(daemon: SharedDaemon, stopping: Stopping) -> Self {
        let request_time = daemon.settings.bounds.request_time;
        let (reporter, service) = tonic_health::server::health_reporter();
        let health = Arc::new(Health::new(daemon, reporter, stopping).await);
        tokio::spawn(Arc::clone(&health).keep_telling());
        let v1 = reflection().build_v1();
        let v1alpha = reflection().build_v1alpha();
        let mut services = vec![(HEALTH, handler(service.max_decoding_message_size(MOST_BYTES)))];
        // Descriptors that a test has read can be read.
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

    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let path = request.uri().path();
        let service = self.services.iter().find(|(begin, _)| path.starts_with(begin));
        let Some((path, handler)) = service else {
            return super::failed(super::Status::Unimplemented, "there is no such method here");
        };
        if *path == HEALTH {
            self.health.tell().await;
        }
        // Nobody waits for the rest of a request for longer than this, also where questions follow.
        let asked = tokio::time::timeout(self.request_time, self.health.last_told());
        let asked = async move { asked.await.unwrap_or_default() };
        let answer = handler(request.map(|body| Timely::new(body, asked))).await;
        answer.map(|body| Answer::other(body, self.health.last_told()))
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
        Box::pin(async move { answered(service.call(request.map(tonic::body::Body::new)).await) })
    })
}

fn answered(
    answer: Result<Response<tonic::body::Body>, std::convert::Infallible>,
) -> Response<tonic::body::Body> {
    match answer {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.services.iter().map(|(path, _)| path)).finish()
    }
}

const HEALTH: &str = "/grpc.health.v1.Health/";

/// The largest message: the name of a service or of a file.
const MOST_BYTES: usize = 4 << 10;
