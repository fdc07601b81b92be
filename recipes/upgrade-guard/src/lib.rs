//! A WebSocket service behind a guard: floods of connection attempts are denied before memory is
//! spent on them.
//!
//! - [`guarded`] puts a guard in front of any axum routes, and adds a health check;
//! - [`echo`] is a WebSocket service to try it with;
//! - [`serve_within`] serves routes with bounds on connections, and a reserve for the health check;
//! - [`GuardArgs`] are the guard's command line settings.
#![forbid(unsafe_code)]

mod echo;
mod serve;
mod settings;

use std::net::IpAddr;

use axum::Router;
use axum::routing::get;
use tidegate::clock::Clock;
use tidegate_tower::{ClientIp, UpgradeGuard};

pub use echo::echo;
pub use serve::serve_within;
pub use settings::GuardArgs;

/// Routes behind a guard, and `GET /healthz`, which is not limited.
///
/// ```
/// use axum::{Router, routing::any};
/// use tidegate_tower::{ClientIp, UpgradeGuard};
///
/// let service: Router = Router::new().route("/ws", any(|| async { "any WebSocket service" }));
/// let app = tidegate_upgrade_guard::guarded(service, &UpgradeGuard::default(), ClientIp::peer());
/// ```
pub fn guarded<C>(routes: Router, guard: &UpgradeGuard<IpAddr, C>, client: ClientIp) -> Router
where
    C: Clock + Send + Sync + 'static,
{
    routes
        .route_layer(guard.layer(client))
        .merge(Router::new().route("/healthz", get(|| async { "ok\n" })))
}

/// The code of the guide, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/replace-an-upgrade-guard.md")]
struct Guide;
