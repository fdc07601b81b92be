//! A limiter behind a proxy: two requests at once per client, whichever proxy forwards them.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tidegate::{Bucket, Limiter};
use tidegate_tower::{ClientIp, LimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(Bucket::per_minute(1).burst(2));
    let client = ClientIp::behind(["127.0.0.1", "10.0.0.0/8"])?;
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(LimitLayer::new(limiter, client));
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
