//! The service behind every layer: a decider decides, allowed requests reach the inner service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, response};
use http_body::Body;
use tidegate::policy::Mode;
use tower_service::Service;

pub use future::GateFuture;

use crate::body::BoxFuture;
use crate::body::EndAction;
use crate::denial::{Denial, DenialKind, GrpcType, Headers};
use crate::options::GateOptions;
use crate::{Admission, Outcome, Permit};

mod future;

/// Decides about requests.
pub(crate) trait Decider: Send + Sync + 'static {
    /// Decides by the head of a request.
    fn decide(&self, parts: &mut Parts) -> GateDecision;
}

/// A decision, now or later.
pub(crate) enum GateDecision {
    /// The admission is already in the request's extensions.
    Now(GateResult),
    Later(BoxFuture<(GateResult, Admission)>),
}

/// The outcome for a request: admitted or denied.
pub(crate) type GateResult = Result<Admitted, Box<Denial>>;

/// What an admitted request carries. Dropping it releases its holds.
#[derive(Default)]
pub(crate) struct Admitted {
    pub(crate) headers: Headers,
    pub(crate) after: AfterResponse,
}

/// What happens when there is a response.
#[derive(Default)]
pub(crate) enum AfterResponse {
    #[default]
    Nothing,
    /// Releases the permit when the body has been sent.
    Release(Permit),
    /// Commits or cancels the held units.
    Settle(Box<dyn HeldUnits>),
}

/// Units held for a request. Dropping it cancels the hold, unless the handler has set the actual
/// cost.
pub(crate) trait HeldUnits: Send {
    /// Commits them, cancels them, or leaves that to the end of the body.
    fn settle(self: Box<Self>, response: &response::Parts) -> SettleOutcome;
}

/// What happened to held units.
pub(crate) enum SettleOutcome {
    Done,
    Later(BoxFuture<()>),
    AtEnd(EndAction),
}

/// What a gate does.
#[derive(Clone)]
pub(crate) struct GateConfig {
    pub(crate) decider: Arc<dyn Decider>,
    pub(crate) options: GateOptions,
    pub(crate) kind: GateKind,
}

/// The use of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateKind {
    /// Requests of any kind: a denial has the protocol of its request.
    Layer,
    /// Upgrade attempts, which are always HTTP. The guard logs its denials itself.
    Guard,
}

/// A service behind a limit: see [`LimitLayer`](crate::LimitLayer),
/// [`PolicyLayer`](crate::PolicyLayer) and [`UpgradeGuard`](crate::UpgradeGuard).
#[derive(Clone)]
pub struct Gate<S> {
    inner: S,
    config: GateConfig,
}

impl<S> Gate<S> {
    pub(crate) const fn new(inner: S, config: GateConfig) -> Self {
        Self { inner, config }
    }
}

impl<S> fmt::Debug for Gate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("options", &self.config.options).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for Gate<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data = Bytes>,
{
    type Response = Response<crate::GateBody<R>>;
    type Error = S::Error;
    type Future = GateFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> GateFuture<S, B> {
        let (mut parts, body) = request.into_parts();
        if self.config.options.is_skipped(&parts) {
            return GateFuture::serving(
                self.inner.call(Request::from_parts(parts, body)),
                Admitted::default(),
            );
        }
        match self.config.decider.decide(&mut parts) {
            GateDecision::Now(gate_result) => match self.config.admit(gate_result, &mut parts) {
                Ok(admitted) => {
                    GateFuture::serving(self.inner.call(Request::from_parts(parts, body)), admitted)
                }
                Err(denial) => {
                    self.discard_ready_service();
                    GateFuture::denied(self.config.respond(&denial, &parts))
                }
            },
            GateDecision::Later(gate_result) => {
                self.discard_ready_service();
                let service = self.inner.clone();
                GateFuture::deciding(gate_result, self.config.clone(), service, parts, body)
            }
        }
    }
}

impl<S: Clone> Gate<S> {
    /// Drops the ready service without calling it. To become ready it may have acquired a resource,
    /// such as a permit of its own, which is released with it.
    fn discard_ready_service(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl GateConfig {
    /// Lets allowed requests pass; in shadow mode, all.
    fn admit(&self, gate_result: GateResult, parts: &mut Parts) -> GateResult {
        let denial = match gate_result {
            Ok(admitted) => {
                self.options.observe(&Outcome::Allowed, parts);
                return Ok(admitted);
            }
            Err(denial) => denial,
        };
        let rule = denial.rules.first().map(tidegate::policy::RuleId::name);
        if denial.kind == DenialKind::Misconfigured && self.options.mistakes.allow(&()) {
            tracing::error!(rule, reason = &*denial.reason, "the layer is misconfigured");
        }
        if self.options.mode == Mode::Shadow {
            tracing::info!(rule, reason = &*denial.reason, "would be denied");
            self.options.observe(&Outcome::ShadowDenied(&denial), parts);
            shadow_admission(&denial).insert_into(&mut parts.extensions);
            return Ok(Admitted::default());
        }
        if self.kind == GateKind::Layer {
            tracing::debug!(rule, reason = &*denial.reason, "denied");
        }
        self.options.observe(&Outcome::Denied(&denial), parts);
        Err(denial)
    }

    /// The response of a denied request: the caller's, or that of the request's protocol.
    fn respond(&self, denial: &Denial, parts: &Parts) -> Response<Bytes> {
        if let Some(respond) = &self.options.respond {
            return respond(denial, parts);
        }
        let grpc = if self.kind == GateKind::Layer { GrpcType::of(parts) } else { None };
        let limited = &self.options.limited;
        match (grpc, limited) {
            (Some(content_type), _) => denial.grpc_response(content_type),
            (None, Some(limited)) if denial.kind == DenialKind::LimitExceeded => {
                denial.with_headers(limited(denial, parts))
            }
            (None, _) => denial.response(),
        }
    }
}

/// The admission of a request that was denied, but is served in shadow mode.
fn shadow_admission(denial: &Denial) -> Admission {
    Admission {
        decision: denial.decision,
        rule: denial.rules.first().cloned(),
        is_shadow_denial: true,
        ..Admission::default()
    }
}
