//! The settings that all layers share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tidegate::policy::Mode;
use tidegate::{Cooldown, Limiter};

use crate::Denial;

/// Requests that bypass the limit.
pub(crate) type Skip = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// Makes the response of a denied request.
pub(crate) type Respond = Arc<dyn Fn(&Denial, &Parts) -> Response<Bytes> + Send + Sync>;

/// Observes decisions.
pub(crate) type Observe = Arc<dyn Fn(&Outcome<'_>, &Parts) + Send + Sync>;

/// The settings that all layers share.
#[derive(Clone)]
pub(crate) struct GateOptions {
    pub(crate) mode: Mode,
    pub(crate) skip: Option<Skip>,
    pub(crate) respond: Option<Respond>,
    /// For requests over a limit alone, and not for gRPC calls.
    pub(crate) limited: Option<Respond>,
    pub(crate) observe: Option<Observe>,
    /// Log lines about a mistake in the set-up: one per second.
    pub(crate) mistakes: Arc<Limiter<(), Cooldown>>,
}

/// What a layer decided about a request.
///
/// Later versions may have more outcomes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// It reaches the service.
    Allowed,
    /// It does not reach the service.
    Denied(&'a Denial),
    /// It would be denied, but reaches the service: the layer is in [shadow](Mode::Shadow) mode.
    ShadowDenied(&'a Denial),
    /// It reaches the service without a decision: the layer [skips](crate::PolicyLayer::skip) it.
    Skipped,
}

impl GateOptions {
    pub(crate) fn is_skipped(&self, parts: &Parts) -> bool {
        let is_skipped = self.skip.as_ref().is_some_and(|skip| skip(parts));
        if is_skipped {
            self.observe(&Outcome::Skipped, parts);
        }
        is_skipped
    }

    pub(crate) fn observe(&self, outcome: &Outcome<'_>, parts: &Parts) {
        if let Some(observe) = &self.observe {
            observe(outcome, parts);
        }
    }
}

impl Default for GateOptions {
    fn default() -> Self {
        let cooldown = Cooldown::new(Duration::from_secs(1));
        Self {
            mode: Mode::Enforce,
            skip: None,
            respond: None,
            limited: None,
            observe: None,
            mistakes: Arc::new(Limiter::new(cooldown)),
        }
    }
}

impl fmt::Debug for GateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateOptions").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// The builder methods that all layers have, for a type with a field `options`.
macro_rules! option_methods {
    () => {
        /// Requests that bypass the layer. The last call counts.
        #[must_use]
        pub fn skip(mut self, is_skipped: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
            self.options.skip = Some(std::sync::Arc::new(is_skipped));
            self
        }

        /// Makes the response of every denied request, in place of the default one, which names the
        /// rules and the reason.
        ///
        /// ```
        /// use bytes::Bytes;
        /// use http::Response;
        /// # use std::net::IpAddr;
        /// # use tidegate::{Bucket, Limiter};
        /// # use tidegate_tower::{ClientIp, LimitLayer};
        /// # let limiter: Limiter<IpAddr> = Limiter::new(Bucket::per_second(10).burst(20));
        ///
        /// let layer = LimitLayer::new(limiter, ClientIp::peer()).on_denial(|denial, _| {
        ///     // Status and headers, such as Retry-After, without the description.
        ///     denial.response().map(|_| Bytes::from_static(b"Please slow down."))
        /// });
        /// ```
        #[must_use]
        pub fn on_denial(
            mut self,
            respond: impl Fn(&$crate::Denial, &Parts) -> http::Response<bytes::Bytes>
            + Send
            + Sync
            + 'static,
        ) -> Self {
            self.options.respond = Some(std::sync::Arc::new(respond));
            self
        }

        /// Makes the response of a request over a limit: anything that axum can respond with. It never
        /// runs for other denials (see [`DenialKind`](crate::DenialKind)), nor for gRPC calls.
        ///
        /// ```
        /// use axum::http::StatusCode;
        /// # use std::net::IpAddr;
        /// # use tidegate::{Bucket, Limiter};
        /// # use tidegate_tower::{ClientIp, LimitLayer};
        /// # let limiter: Limiter<IpAddr> = Limiter::new(Bucket::per_second(10).burst(20));
        ///
        /// let layer = LimitLayer::new(limiter, ClientIp::peer())
        ///     .on_limited(|_denial| (StatusCode::TOO_MANY_REQUESTS, "Please slow down."));
        /// ```
        ///
        /// `Retry-After` and the rate-limit headers are added where the response has none. A body that
        /// is not ready at once is not sent.
        #[cfg(feature = "axum")]
        #[must_use]
        pub fn on_limited<R: axum::response::IntoResponse>(
            mut self,
            respond: impl Fn(&$crate::Denial) -> R + Send + Sync + 'static,
        ) -> Self {
            self.options.limited = Some(std::sync::Arc::new(move |denial, _parts| {
                $crate::body::ready_response(respond(denial).into_response())
            }));
            self
        }

        /// Calls a function for every decision, before the request is served or denied: for
        /// metrics. It should not block.
        #[must_use]
        pub fn observe(
            mut self,
            observe: impl Fn(&$crate::Outcome<'_>, &Parts) + Send + Sync + 'static,
        ) -> Self {
            self.options.observe = Some(std::sync::Arc::new(observe));
            self
        }
    };
}

pub(crate) use option_methods;
