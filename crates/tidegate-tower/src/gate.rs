//! The service that every layer makes: a door decides, and who passes is served.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, response};
use http_body::Body;
use tidegate::policy::Mode;
use tower_service::Service;

pub use future::GateFuture;

use crate::body::EndAction;
use crate::denial::{Denial, GrpcType, Headers};
use crate::{Admission, Permit};

mod future;

/// Something that takes a while.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What decides about requests.
pub(crate) trait Decider: Send + Sync + 'static {
    /// Decides about a request by its head.
    fn decide(&self, parts: &mut Parts) -> GateDecision;
}

/// A ruling, now or later.
pub(crate) enum GateDecision {
    /// What the handler may know is among the request's extensions already.
    Now(GateResult),
    Later(Later<(GateResult, Admission)>),
}

/// What is done with a request: it passes, or it is refused.
pub(crate) type GateResult = Result<Admitted, Box<Denial>>;

/// What a request that passes takes along. Dropping it gives back what was set aside.
#[derive(Default)]
pub(crate) struct Admitted {
    pub(crate) headers: Headers,
    pub(crate) after: AfterResponse,
}

/// What is to be done when there is a response.
#[derive(Default)]
pub(crate) enum AfterResponse {
    #[default]
    Nothing,
    /// The place is given back when the body has been sent.
    Release(Permit),
    /// What was set aside is charged or given back.
    Settle(Box<dyn HeldUnits>),
}

/// Units that were set aside for a request. Dropping it gives them back, unless the handler has said
/// what to charge.
pub(crate) trait HeldUnits: Send {
    /// Charges them, gives them back, or leaves that to the end of the body.
    fn settle(self: Box<Self>, response: &response::Parts) -> SettleOutcome;
}

/// What became of units that were set aside.
pub(crate) enum SettleOutcome {
    Done,
    Later(Later<()>),
    AtEnd(EndAction),
}

/// What all layers have in common.
#[derive(Clone)]
pub(crate) struct GateConfig {
    pub(crate) decider: Arc<dyn Decider>,
    pub(crate) mode: Mode,
    pub(crate) skip: Option<Skip>,
    pub(crate) kind: GateKind,
}

/// What a gate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateKind {
    /// Requests of any kind: refusals are in the words of the request.
    Layer,
    /// Attempts to upgrade, which are HTTP and nothing else. The guard logs its refusals itself.
    Guard,
}

/// Which requests are not asked.
pub(crate) type Skip = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

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
        f.debug_struct("Gate").field("mode", &self.config.mode).finish_non_exhaustive()
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
        if self.config.skip.as_ref().is_some_and(|skip| skip(&parts)) {
            return GateFuture::serving(
                self.inner.call(Request::from_parts(parts, body)),
                Admitted::default(),
            );
        }
        match self.config.decider.decide(&mut parts) {
            GateDecision::Now(gate_result) => match self.config.admit(gate_result, &mut parts) {
                Ok(passage) => {
                    GateFuture::serving(self.inner.call(Request::from_parts(parts, body)), passage)
                }
                Err(denial) => {
                    self.forgo();
                    GateFuture::denied(denial, self.config.grpc_type(&parts))
                }
            },
            GateDecision::Later(gate_result) => {
                self.forgo();
                let service = self.inner.clone();
                GateFuture::deciding(gate_result, self.config.clone(), service, (parts, body))
            }
        }
    }
}

impl<S: Clone> Gate<S> {
    /// Does not call the service that is ready. It may have taken something to be so, a place among its
    /// own for example, which is given back with it.
    fn forgo(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl GateConfig {
    /// Who passes: those who may, and in shadow mode all.
    fn admit(&self, gate_result: GateResult, parts: &mut Parts) -> GateResult {
        let denial = match gate_result {
            Ok(passage) => return Ok(passage),
            Err(denial) => denial,
        };
        let rule = denial.rules.first().map(|rule| &**rule);
        if self.mode == Mode::Shadow {
            tracing::info!(rule, reason = &*denial.reason, "would be refused");
            watched(&denial).show(&mut parts.extensions);
            return Ok(Admitted::default());
        }
        if self.kind == GateKind::Layer {
            tracing::debug!(rule, reason = &*denial.reason, "refused");
        }
        Err(denial)
    }

    /// In which words of gRPC a refusal is told; `None` for those of HTTP.
    fn grpc_type(&self, parts: &Parts) -> Option<GrpcType> {
        if self.kind == GateKind::Layer { GrpcType::of(parts) } else { None }
    }
}

/// What the handler of a request may know that was refused, and is served all the same.
fn watched(denial: &Denial) -> Admission {
    Admission {
        decision: denial.decision,
        rule: denial.rules.first().cloned(),
        is_watched_refusal: true,
        ..Admission::default()
    }
}
