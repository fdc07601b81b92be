//! The bodies of requests and responses, which track the phase of their connection.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

use super::timeouts::{ConnectionPhase, PhaseTracker};
use super::{BoxError, ServiceError};
use crate::byte_budget::BudgetKind;

/// The body of a request. The connection is closed if it does not arrive in time.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    tracker: Arc<PhaseTracker>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, tracker: Arc<PhaseTracker>) -> Self {
        let is_whole = body.is_end_stream();
        tracker.enter(if is_whole { ConnectionPhase::Deciding } else { ConnectionPhase::Body });
        Self { body, tracker }
    }

    fn end(&self) {
        if self.tracker.phase() == ConnectionPhase::Body {
            self.tracker.enter(ConnectionPhase::Deciding);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.end();
    }
}

/// The body of a response. Its connection is busy until it has been sent.
pub struct ResponseBody {
    body: UnsyncBoxBody<Bytes, ServiceError>,
    tracker: Arc<PhaseTracker>,
}

impl PhaseTracker {
    /// The response, with a body that tracks the phase.
    pub(super) fn response<B>(self: Arc<Self>, response: Response<B>) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.release_received();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.enter(ConnectionPhase::Upgraded);
        } else {
            // The handler may have kept the request's body.
            self.enter(ConnectionPhase::Deciding);
        }
        response.map(|body| ResponseBody {
            body: body.map_err(ServiceError::new).boxed_unsync(),
            tracker: self,
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ServiceError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ServiceError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.tracker.permit().charge(BudgetKind::Unsent, data.len());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.tracker.phase() == ConnectionPhase::Deciding {
            self.tracker.enter(ConnectionPhase::Writing);
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}
