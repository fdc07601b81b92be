//! Health and reflection, by ready-made services.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::{Request, Response};
use hyper::body::Incoming;
use tollgate_proto::rls;
use tonic_health::ServingStatus;
use tower_service::Service;

use super::body::Answer;
use crate::accept::Stopping;

type Answering = Pin<Box<dyn Future<Output = Response<tonic::body::Body>> + Send>>;
type Handler = Box<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;

/// Services besides the one that matters, by the beginnings of their paths.
pub(crate) struct Others {
    services: Vec<(&'static str, Handler)>,
}

impl Others {
    pub(crate) async fn new() -> Self {
        let v1 = reflection().build_v1();
        let v1alpha = reflection().build_v1alpha();
        let mut services = vec![("/grpc.health.v1.Health/", health().await)];
        // Descriptors that a test has read can be read.
        services.extend(v1.ok().map(|it| ("/grpc.reflection.v1.ServerReflection/", handler(it))));
        let alpha = "/grpc.reflection.v1alpha.ServerReflection/";
        services.extend(v1alpha.ok().map(|it| (alpha, handler(it))));
        Self { services }
    }

    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        stopping: Stopping,
    ) -> Response<Answer> {
        let path = request.uri().path();
        let service = self.services.iter().find(|(begin, _)| path.starts_with(begin));
        match service {
            Some((_, handler)) => handler(request).await.map(|body| Answer::other(body, stopping)),
            None => super::failed(super::Status::Unimplemented, "there is no such method here"),
        }
    }
}

/// Tells of the whole server, of `ratelimit` as envoyproxy/ratelimit does, and of the service.
async fn health() -> Handler {
    let (reporter, service) = tonic_health::server::health_reporter();
    for name in ["", "ratelimit", rls::SERVICE] {
        reporter.set_service_status(name, ServingStatus::Serving).await;
    }
    handler(service)
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
