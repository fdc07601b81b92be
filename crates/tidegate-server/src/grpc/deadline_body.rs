use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// The body of a request that must arrive before a future completes.
pub(crate) struct DeadlineBody {
    body: Incoming,
    until: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl DeadlineBody {
    pub(crate) fn new(body: Incoming, until: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { body, until: Box::pin(until) }
    }
}

impl Body for DeadlineBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let gone = |error: hyper::Error| tonic::Status::cancelled(error.to_string());
            return Poll::Ready(frame.map(|frame| frame.map_err(gone)));
        }
        let late = || tonic::Status::deadline_exceeded("the request did not arrive in time");
        self.until.as_mut().poll(context).map(|()| Some(Err(late())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
