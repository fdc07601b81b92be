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

use crate::body::Ending;
use crate::refusal::{GrpcType, Headers, Refusal};
use crate::{Admission, Place};

mod future;

/// Something that takes a while.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What decides about requests.
pub(crate) trait Door: Send + Sync + 'static {
    /// Decides about a request by its head.
    fn rule(&self, parts: &mut Parts) -> Ruled;
}

/// A ruling, now or later.
pub(crate) enum Ruled {
    /// What the handler may know is among the request's extensions already.
    Now(Ruling),
    Later(Later<(Ruling, Admission)>),
}

/// What is done with a request: it passes, or it is refused.
pub(crate) type Ruling = Result<Passage, Box<Refusal>>;

/// What a request that passes takes along. Dropping it gives back what was set aside.
#[derive(Default)]
pub(crate) struct Passage {
    pub(crate) headers: Headers,
    pub(crate) after: After,
}

/// What is to be done when there is a response.
#[derive(Default)]
pub(crate) enum After {
    #[default]
    Nothing,
    /// The place is given back when the body has been sent.
    Release(Place),
    /// What was set aside is charged or given back.
    Settle(Box<dyn Reserved>),
}

/// Units that were set aside for a request. Dropping it gives them back, unless the handler has said
/// what to charge.
pub(crate) trait Reserved: Send {
    /// Charges them, gives them back, or leaves that to the end of the body.
    fn settle(self: Box<Self>, response: &response::Parts) -> Settled;
}

/// What became of units that were set aside.
pub(crate) enum Settled {
    Done,
    Later(Later<()>),
    AtEnd(Ending),
}

/// What all layers have in common.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) door: Arc<dyn Door>,
    pub(crate) mode: Mode,
    pub(crate) skip: Option<Skip>,
    pub(crate) kind: Kind,
}

/// What a gate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    terms: Terms,
}

impl<S> Gate<S> {
    pub(crate) const fn new(inner: S, terms: Terms) -> Self {
        Self { inner, terms }
    }
}

impl<S> fmt::Debug for Gate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("mode", &self.terms.mode).finish_non_exhaustive()
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
        if self.terms.skip.as_ref().is_some_and(|skip| skip(&parts)) {
            return GateFuture::serving(
                self.inner.call(Request::from_parts(parts, body)),
                Passage::default(),
            );
        }
        match self.terms.door.rule(&mut parts) {
            Ruled::Now(ruling) => match self.terms.admit(ruling, &mut parts) {
                Ok(passage) => {
                    GateFuture::serving(self.inner.call(Request::from_parts(parts, body)), passage)
                }
                Err(refusal) => {
                    self.forgo();
                    GateFuture::refused(refusal, self.terms.grpc_type(&parts))
                }
            },
            Ruled::Later(ruling) => {
                self.forgo();
                let service = self.inner.clone();
                GateFuture::deciding(ruling, self.terms.clone(), service, (parts, body))
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

impl Terms {
    /// Who passes: those who may, and in shadow mode all.
    fn admit(&self, ruling: Ruling, parts: &mut Parts) -> Ruling {
        let refusal = match ruling {
            Ok(passage) => return Ok(passage),
            Err(refusal) => refusal,
        };
        let rule = refusal.rules.first().map(|rule| &**rule);
        if self.mode == Mode::Shadow {
            tracing::info!(rule, reason = &*refusal.reason, "would be refused");
            watched(&refusal).show(&mut parts.extensions);
            return Ok(Passage::default());
        }
        if self.kind == Kind::Layer {
            tracing::debug!(rule, reason = &*refusal.reason, "refused");
        }
        Err(refusal)
    }

    /// In which words of gRPC a refusal is told; `None` for those of HTTP.
    fn grpc_type(&self, parts: &Parts) -> Option<GrpcType> {
        if self.kind == Kind::Layer { GrpcType::of(parts) } else { None }
    }
}

/// What the handler of a request may know that was refused, and is served all the same.
fn watched(refusal: &Refusal) -> Admission {
    Admission {
        decision: refusal.decision,
        rule: refusal.rules.first().cloned(),
        is_watched_refusal: true,
        ..Admission::default()
    }
}
