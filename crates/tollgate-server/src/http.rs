//! HTTP with JSON.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::accept::{Connection, Protocol};
use crate::body::Body;
use crate::daemon::SharedDaemon;

/// Serves HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Http {
    daemon: SharedDaemon,
}

impl Http {
    pub(crate) fn new(daemon: SharedDaemon) -> Self {
        Self { daemon }
    }
}

impl Protocol for Http {
    async fn serve(&self, mut connection: Connection) {
        let bounds = &self.daemon.settings.bounds;
        let service = service_fn(|request| answer(&self.daemon, request));
        let mut http = std::pin::pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(bounds.head_time)
                .max_buf_size(bounds.head_bytes)
                .serve_connection(TokioIo::new(connection.io), service)
        );
        let result = tokio::select! {
            result = &mut http => result,
            () = connection.stopping.wanted() => {
                http.as_mut().graceful_shutdown();
                http.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a request went wrong");
        }
        drop(connection.place);
    }
}

async fn answer(
    daemon: &SharedDaemon,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => Response::new(Full::from("ok\n")),
        (&Method::GET, "/healthcheck") => {
            let (status, body) = crate::rls::healthcheck(daemon);
            with_status(status, body.into())
        }
        (&Method::POST, "/json") => json(daemon, request).await,
        (&Method::POST, "/v1/check") => check(daemon, request).await,
        _ => status(StatusCode::NOT_FOUND),
    })
}

async fn check(daemon: &SharedDaemon, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), daemon.settings.bounds.body_bytes);
    if body.collect().await.is_err() {
        return status(StatusCode::PAYLOAD_TOO_LARGE);
    }
    match daemon.engine.check(&tollgate::Request::new("default", &[])).await {
        Ok(report) => {
            let body = serde_json::to_vec(&Body::new(&report)).unwrap_or_default();
            Response::new(Full::from(body))
        }
        Err(_) => status(StatusCode::UNPROCESSABLE_ENTITY),
    }
}

/// Envoy's rate limit service in JSON.
async fn json(daemon: &SharedDaemon, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), daemon.settings.bounds.body_bytes);
    let Ok(body) = body.collect().await else {
        return status(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let (status, body) = crate::rls::json(daemon, &body.to_bytes()).await;
    with_status(status, body)
}

fn with_status(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
