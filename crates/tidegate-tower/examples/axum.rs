//! A limiter in axum: three requests at once per client, then one a minute.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tidegate::{Bucket, Limiter};
use tidegate_tower::{ClientIp, LimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(Bucket::per_minute(1).burst(3));
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(LimitLayer::new(limiter, ClientIp::peer()).name("per-client"));
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
