//! Bytes on a real connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::{any, get as route};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use tidegate::Request as EngineRequest;
use tidegate_tower::{ClientIp, Header, PolicyLayer, Settle, UpgradeGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{TestEngine, engine, get, send};

const TOKENS: &str = r#"
    [[rule]]
    name  = "tokens"
    key   = ["team"]
    quota = { max = 1000, per = "day" }

    [[rule]]
    name   = "slots"
    domain = "slots"
    slots  = { max = 5, queue = 0 }
"#;

/// Serves routes, and returns the whole response to a request.
async fn response(app: Router, request: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async { axum::serve(listener, service).await });
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("{request} HTTP/1.1\r\nHost: x\r\nx-team: red\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    server.abort();
    response.to_ascii_lowercase()
}

fn left(engine: &TestEngine) -> u64 {
    let report = engine.peek(&EngineRequest::new("default", &[("team", "red")])).block().unwrap();
    report.remaining().unwrap()
}

fn routes() -> Router {
    let chunked =
        || async { Body::from_stream(tokio_stream::iter([Ok::<_, Infallible>("chunk")])) };
    Router::new()
        .route("/text", route(|| async { "hello" }))
        .route("/empty", route(|| async {}))
        .route("/chunked", route(chunked))
        .route("/204", route(|| async { StatusCode::NO_CONTENT }))
        .route("/304", route(|| async { StatusCode::NOT_MODIFIED }))
        .route("/101", any(|| async { StatusCode::SWITCHING_PROTOCOLS.into_response() }))
}

#[tokio::test]
async fn complete_response_is_charged_whatever_its_length() {
    let requests =
        ["GET /text", "GET /empty", "GET /chunked", "GET /204", "HEAD /text", "HEAD /chunked"];
    for request in requests {
        let (engine, _) = engine(TOKENS);
        let layer = PolicyLayer::new(engine.clone(), "default")
            .unwrap()
            .attribute("team", Header::new("x-team"))
            .cost(|_| 400)
            .settle(|_| Settle::AtEnd);
        response(routes().layer(layer), request).await;
        assert_eq!(left(&engine), 600, "{request}");
    }
}

#[tokio::test]
async fn responses_are_the_same_as_without_a_layer() {
    for path in ["/text", "/empty", "/chunked", "/204", "/304"] {
        let (engine, _) = engine(TOKENS);
        let slots = PolicyLayer::new(engine.clone(), "slots")
            .unwrap()
            .dialect(tidegate_tower::Dialect::None)
            .slots(None);
        let request = format!("GET {path}");
        let without_date = |response: String| {
            let lines = response.lines().filter(|line| !line.starts_with("date:"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let plain = without_date(response(routes(), &request).await);
        let gated = without_date(response(routes().layer(slots), &request).await);
        assert_eq!(gated, plain, "{path}");
    }
}

#[tokio::test]
async fn body_at_its_end_reports_it() {
    let (engine, _) = engine(TOKENS);
    let empty =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let settled = PolicyLayer::new(engine.clone(), "default")
        .unwrap()
        .attribute("team", Header::new("x-team"))
        .settle(|_| Settle::AtEnd);
    let response = settled.layer(empty).oneshot(get("/", &[("x-team", "red")])).await.unwrap();
    assert!(response.body().is_end_stream());
    assert_eq!(left(&engine), 999);
    let slotted = PolicyLayer::new(engine, "slots").unwrap().slots(None);
    let response = slotted.layer(empty).oneshot(get("/", &[])).await.unwrap();
    assert!(response.body().is_end_stream());
}

#[tokio::test]
async fn only_grpc_calls_get_grpc_responses() {
    let (engine, _) = engine(TOKENS);
    let layer = PolicyLayer::new(engine, "default").unwrap();
    let layer = layer.attribute("team", Header::new("x-team"));
    let response = async |method: &Method, version: Version, content_type: &str| {
        let hello = service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::new(Body::from(Bytes::new())))
        });
        let request = Request::builder().method(method).version(version);
        let request = request.header("content-type", content_type).body(Body::empty()).unwrap();
        let response = send(&layer, &hello, request).await;
        (response.status, response.header("content-type").unwrap().to_owned())
    };
    let (post, http2) = (&Method::POST, Version::HTTP_2);
    for grpc in
        ["application/grpc", "application/grpc+proto", "Application/GRPC", "application/grpc;x=y"]
    {
        assert_eq!(response(post, http2, grpc).await, (200, grpc.to_owned()));
        assert_eq!(response(post, Version::HTTP_11, grpc).await.0, 400);
        assert_eq!(response(&Method::GET, http2, grpc).await.0, 400);
    }
    for web in ["application/grpc-web+proto", "application/grpc-web-text"] {
        assert_eq!(response(post, Version::HTTP_11, web).await, (200, web.to_owned()));
    }
    for other in ["application/grpcx", "application/json", "application/grp"] {
        assert_eq!(response(post, http2, other).await.0, 400, "{other}");
    }
    // An attempt to upgrade is HTTP, whatever its content type.
    let guard = UpgradeGuard::new(
        tidegate::Rate::one_every(Duration::from_secs(6)),
        1,
        Duration::from_secs(300),
    );
    let guard = guard.unwrap().layer(ClientIp::peer());
    let hello = crate::support::Hello::default();
    let mut request = get("/", &[("content-type", "application/grpc")]);
    (*request.method_mut(), *request.version_mut()) = (Method::POST, Version::HTTP_2);
    assert_eq!(send(&guard, &hello, request).await.status, 429);
}
