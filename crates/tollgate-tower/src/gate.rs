//! The service that every layer makes: a door decides, and who passes is served.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response, response};
use tollgate::policy::Mode;
use tower_service::Service;

pub use future::GateFuture;

use crate::body::Ending;
use crate::refusal::{Headers, Refusal, is_grpc};
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
                Err(refusal) => GateFuture::refused(refusal, is_grpc(&parts)),
            },
            Ruled::Later(ruling) => {
                // The service that is ready goes along; the one that stays has to become so anew.
                let another = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, another);
                GateFuture::deciding(ruling, self.terms.clone(), ready, (parts, body))
            }
        }
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
            parts.extensions.insert(watched(&refusal));
            Ok(Passage::default())
        } else {
            tracing::debug!(rule, reason = &*refusal.reason, "refused");
            Err(refusal)
        }
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
