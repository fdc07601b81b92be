use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue};
use hyper::body::{Body, Frame, SizeHint};

use super::Data;
use crate::accept::Stopping;

/// The body of an answer.
pub(crate) enum Answer {
    /// One message, and that all went well.
    One(Option<Data>, Option<HeaderMap>),
    /// What a ready-made service says, for as long as the daemon does not stop.
    Other(tonic::body::Body, Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl Answer {
    pub(crate) fn one(message: Data) -> Self {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Self::One(Some(message), Some(trailers))
    }

    pub(crate) const fn empty() -> Self {
        Self::One(None, None)
    }

    pub(crate) fn other(body: tonic::body::Body, mut stopping: Stopping) -> Self {
        Self::Other(body, Box::pin(async move { stopping.wanted().await }))
    }
}

impl Body for Answer {
    type Data = Data;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, tonic::Status>>> {
        match self.get_mut() {
            Self::One(message, trailers) => Poll::Ready(match message.take() {
                Some(message) => Some(Ok(Frame::data(message))),
                None => trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            }),
            Self::Other(body, stopped) => match Pin::new(body).poll_frame(context) {
                Poll::Pending => stopped.as_mut().poll(context).map(|()| None),
                ready => ready,
            },
        }
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
