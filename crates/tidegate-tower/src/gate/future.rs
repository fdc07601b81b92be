use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{Admitted, AfterResponse, GateConfig, GateResult, SettleOutcome};
use crate::body::BoxFuture;
use crate::body::EndAction;
use crate::denial::insert_headers;
use crate::{Admission, GateBody};

pin_project! {
    /// The response of a [`Gate`](crate::Gate). Dropping it releases its holds.
    pub struct GateFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        stage: Stage<S, S::Future, B, S::Response>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, F, B, R> {
        Denied { response: Option<Response<Bytes>> },
        Deciding { gate_result: BoxFuture<(GateResult, Admission)>, pending: Option<PendingDecision<S, B>> },
        Readying { pending: Option<PendingDecision<S, B>>, admitted: Option<Admitted> },
        Serving { #[pin] future: F, admitted: Option<Admitted> },
        Settling { settling: BoxFuture<()>, response: Option<R> },
    }
}

/// A request that is being decided.
struct PendingDecision<S, B> {
    config: GateConfig,
    service: S,
    parts: Parts,
    body: B,
}

impl<S, B> GateFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn denied(response: Response<Bytes>) -> Self {
        Self { stage: Stage::Denied { response: Some(response) } }
    }

    pub(super) const fn serving(future: S::Future, admitted: Admitted) -> Self {
        Self { stage: Stage::Serving { future, admitted: Some(admitted) } }
    }

    pub(super) fn deciding(
        gate_result: BoxFuture<(GateResult, Admission)>,
        config: GateConfig,
        service: S,
        parts: Parts,
        body: B,
    ) -> Self {
        let pending = Some(PendingDecision { config, service, parts, body });
        Self { stage: Stage::Deciding { gate_result, pending } }
    }
}

impl<S, B, R> Future for GateFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<GateBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjection::Denied { response } => {
                    let response = response.take().expect(POLLED_AGAIN);
                    return Poll::Ready(Ok(response.map(GateBody::denied)));
                }
                StageProjection::Deciding { gate_result, pending } => {
                    let (gate_result, admission) = ready!(gate_result.as_mut().poll(context));
                    pending.take().expect(POLLED_AGAIN).next_stage(gate_result, admission)
                }
                StageProjection::Readying { pending, admitted } => {
                    let service = &mut pending.as_mut().expect(POLLED_AGAIN).service;
                    ready!(service.poll_ready(context))?;
                    let (mut pending, admitted) = (pending.take(), admitted.take());
                    let PendingDecision { service, parts, body, .. } =
                        pending.take().expect(POLLED_AGAIN);
                    let future = { service }.call(Request::from_parts(parts, body));
                    Stage::Serving { future, admitted }
                }
                StageProjection::Serving { future, admitted } => {
                    let result = ready!(future.poll(context));
                    let admitted = admitted.take().expect(POLLED_AGAIN);
                    match finish(result?, admitted) {
                        Finished::Now(response) => return Poll::Ready(Ok(response)),
                        Finished::Later(response, settling) => {
                            Stage::Settling { settling, response: Some(response) }
                        }
                    }
                }
                StageProjection::Settling { settling, response } => {
                    ready!(settling.as_mut().poll(context));
                    let response = response.take().expect(POLLED_AGAIN);
                    return Poll::Ready(Ok(response.map(GateBody::served)));
                }
            };
            stage.set(next);
        }
    }
}

impl<S, B> PendingDecision<S, B>
where
    S: Service<Request<B>>,
{
    /// The stage after a decision: the service must become ready for an admitted request.
    fn next_stage(
        mut self,
        gate_result: GateResult,
        admission: Admission,
    ) -> Stage<S, S::Future, B, S::Response> {
        admission.insert_into(&mut self.parts.extensions);
        match self.config.admit(gate_result, &mut self.parts) {
            Ok(admitted) => Stage::Readying { pending: Some(self), admitted: Some(admitted) },
            Err(denial) => {
                Stage::Denied { response: Some(self.config.respond(&denial, &self.parts)) }
            }
        }
    }
}

/// A response that is complete, or waits for a settlement.
enum Finished<R> {
    Now(Response<GateBody<R>>),
    Later(Response<R>, BoxFuture<()>),
}

/// Adds headers to a response, and releases or settles what it holds.
fn finish<R: Body<Data = Bytes>>(response: Response<R>, admitted: Admitted) -> Finished<R> {
    let (mut parts, body) = response.into_parts();
    insert_headers(&mut parts.headers, admitted.headers);
    let ending = match admitted.after {
        AfterResponse::Nothing => {
            return Finished::Now(Response::from_parts(parts, GateBody::served(body)));
        }
        AfterResponse::Release(permit) => EndAction::Release { _permit: permit },
        AfterResponse::Settle(reserved) => match reserved.settle(&parts) {
            SettleOutcome::Done => EndAction::Nothing,
            SettleOutcome::AtEnd(ending) => ending,
            SettleOutcome::Later(settling) => {
                return Finished::Later(Response::from_parts(parts, body), settling);
            }
        },
    };
    let body = GateBody::ending(body, ending, &parts.headers);
    Finished::Now(Response::from_parts(parts, body))
}

impl<S, B> fmt::Debug for GateFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateFuture").finish_non_exhaustive()
    }
}

const POLLED_AGAIN: &str = "a future must not be polled after it is ready";
