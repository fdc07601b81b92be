//! gRPC calls, by a real client to a real server.

use std::time::Duration;

use tidegate::{Limiter, Window, clock::ManualClock};
use tidegate_tower::{ClientIp, LimitLayer, PolicyLayer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use crate::support::engine;

/// A health server behind a layer, and its client.
async fn health<L>(layer: L) -> HealthClient<Channel>
where
    L: tower_layer::Layer<tonic::service::Routes> + Clone + Send + 'static,
    L::Service: tower::Service<
            http::Request<tonic::body::Body>,
            Response = http::Response<tidegate_tower::GateBody<tonic::body::Body>>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, service) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

#[tokio::test]
async fn denied_call_is_resource_exhausted_with_details() {
    let clock = ManualClock::default();
    let window = Window::new(1, Duration::from_secs(10));
    let limiter = Limiter::builder(window).clock(clock.clone()).build().unwrap();
    let mut client = health(LimitLayer::new(limiter, ClientIp::peer()).name("health-checks")).await;
    let request = HealthCheckRequest { service: String::new() };
    let allowed = client.check(request.clone()).await.unwrap();
    let header = allowed.metadata().get("ratelimit").unwrap();
    assert_eq!(header.to_str().unwrap(), r#""health-checks";r=0;t=10"#);
    clock.advance(Duration::from_nanos(1_500_000_001));

    let status = client.check(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "too many requests: retry later");
    let details = status.get_error_details();
    let retry = details.retry_info().unwrap().retry_delay.unwrap();
    assert_eq!(retry, Duration::from_nanos(8_499_999_999));
    let violation = &details.quota_failure().unwrap().violations[0];
    assert_eq!((&*violation.subject, &*violation.description), ("health-checks", status.message()));
    let info = details.error_info().unwrap();
    assert_eq!((&*info.reason, &*info.domain), ("RATE_LIMITED", "tidegate"));
    assert_eq!(info.metadata.get("rule").map(String::as_str), Some("health-checks"));
    let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert_eq!(pushback.to_str().unwrap(), "8500");

    clock.advance(Duration::from_secs(9));
    assert!(client.check(request).await.is_ok(), "the connection still works");
}

#[tokio::test]
async fn policy_denies_calls_by_path() {
    let (engine, _) = engine(
        r#"
        [[rule]]
        name   = "checks"
        match  = { path = "/grpc.health.v1.Health/Check" }
        key    = ["ip"]
        window = { max = 1, per = "10s" }
        deny   = "höchstens einmal: 100 %"
        "#,
    );
    let layer = PolicyLayer::new(engine, "default").unwrap().usual_attributes(ClientIp::peer());
    let mut client = health(layer).await;
    let request = HealthCheckRequest { service: String::new() };
    client.check(request.clone()).await.unwrap();
    let status = client.check(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "höchstens einmal: 100 %");
    assert_eq!(status.get_error_details().quota_failure().unwrap().violations[0].subject, "checks");
    assert!(client.watch(request).await.is_ok());
}
