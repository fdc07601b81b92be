//! Rate limits as [tower] layers: for axum, hyper and tonic.
//!
//! A limiter in axum:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tidegate::{Bucket, Limiter};
//! use tidegate_tower::{ClientIp, LimitLayer};
//!
//! // Ten requests per second and client, twenty at once.
//! let limiter = Limiter::new(Bucket::per_second(10).burst(20));
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(LimitLayer::new(limiter, ClientIp::peer()));
//! // axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
//! ```
//!
//! - [`LimitLayer`] applies one [`Limiter`](tidegate::Limiter) to a key of the request.
//! - [`Limits`] applies several at once, in one decision.
//! - [`PolicyLayer`] applies a domain of an [`Engine`](tidegate::Engine): it checks, or [settles
//!   later](PolicyLayer::settle), or limits the [requests in flight](PolicyLayer::slots).
//! - [`UpgradeGuard`] limits connection attempts before a WebSocket upgrade.
//! - Keys and attributes come from the [client's address](ClientIp), a [header](Header), a
//!   [path parameter](PathParam), an [`extension`], or a closure over the request's head.
//! - [`Admission`] gives a handler the decision, [`observe`](PolicyLayer::observe) gives it to
//!   metrics, and [`on_denial`](PolicyLayer::on_denial) replaces the response of a denied request.
//!
//! Allowed requests get rate-limit [headers](Dialect). Denied ones get a 429 with `Retry-After` and
//! a body of `application/problem+json`; a gRPC call gets `RESOURCE_EXHAUSTED` with `RetryInfo`,
//! `QuotaFailure` and pushback. A denied request does not reach the handler, and its body is not
//! read.
//!
//! [tower]: https://docs.rs/tower
#![forbid(unsafe_code)]

mod admission;
mod body;
mod denial;
mod gate;
mod limit;
mod limits;
mod options;
mod peer;
mod policy;
#[cfg(feature = "proxy-protocol")]
mod proxy_listener;
mod source;
mod upgrade;

pub use admission::{ActualCost, Admission, Permit};
pub use body::GateBody;
pub use denial::{Denial, DenialKind};
pub use gate::{Gate, GateFuture};
pub use limit::LimitLayer;
pub use limits::Limits;
pub use options::Outcome;
pub use peer::Peer;
pub use policy::{PolicyLayer, Settle, Unsettled};
#[cfg(feature = "proxy-protocol")]
pub use proxy_listener::{ProxyListener, ProxyStream};
pub use source::{
    Attribute, AttributeError, ClientIp, Header, KeySource, PathParam, Uri, attribute, extension,
    host, method, path, path_with_encoded_slashes,
};
pub use tidegate_proto::client::ForwardedHeader;
pub use tidegate_proto::headers::Dialect;
pub use upgrade::{GuardBuilder, GuardError, GuardLayer, UpgradeGuard};

/// The code of the guides, as doc tests.
#[cfg(all(doctest, feature = "axum", feature = "proxy-protocol"))]
mod guides {
    #[doc = include_str!("../../../docs/guides/axum.md")]
    struct Axum;

    #[doc = include_str!("../../../docs/guides/behind-a-proxy.md")]
    struct BehindAProxy;

    #[doc = include_str!("../../../docs/guides/moving-from-governor.md")]
    struct MovingFromGovernor;

    #[doc = include_str!("../../../docs/guides/websockets.md")]
    struct WebSockets;
}
