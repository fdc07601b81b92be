use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue};
use hyper::body::{Body, Frame, SizeHint};

use super::{Data, Status};

/// The body of a response.
pub(crate) enum ResponseBody {
    /// One message, and the trailers.
    One(Option<Data>, Option<HeaderMap>),
    /// The stream of a tonic service; at shutdown it ends as soon as it has nothing ready.
    Other(tonic::body::Body, Option<EndOfStream>),
}

type EndOfStream = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ResponseBody {
    pub(crate) fn one(message: Data) -> Self {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Self::One(Some(message), Some(trailers))
    }

    pub(crate) const fn empty() -> Self {
        Self::One(None, None)
    }

    /// The stream of a tonic service, until a future completes.
    pub(crate) fn other(
        body: tonic::body::Body,
        until: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self::Other(body, Some(Box::pin(until)))
    }

    /// The end of a stream at shutdown.
    fn stopped() -> Self {
        let mut trailers = HeaderMap::with_capacity(2);
        trailers.insert("grpc-status", HeaderValue::from(Status::Unavailable as u16));
        trailers.insert("grpc-message", HeaderValue::from_static("the daemon is shutting down"));
        Self::One(None, Some(trailers))
    }
}

impl Body for ResponseBody {
    type Data = Data;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, tonic::Status>>> {
        if let Self::Other(body, until) = &mut *self {
            // The end is polled first: then all frames from before it are ready.
            if until.as_mut().is_some_and(|until| until.as_mut().poll(context).is_ready()) {
                *until = None;
            }
            match Pin::new(body).poll_frame(context) {
                Poll::Pending if until.is_none() => *self = Self::stopped(),
                frame => return frame,
            }
        }
        let Self::One(message, trailers) = &mut *self else { return Poll::Pending };
        Poll::Ready(match message.take() {
            Some(message) => Some(Ok(Frame::data(message))),
            None => trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::One(message, trailers) => message.is_none() && trailers.is_none(),
            Self::Other(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::One(message, _) => {
                SizeHint::with_exact(message.as_ref().map_or(0, |message| message.len() as u64))
            }
            Self::Other(body, _) => body.size_hint(),
        }
    }
}
