use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Permit;

pin_project! {
    /// The response body of a gate: the service's own, or the body of a denial.
    pub struct GateBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[project = ContentProjection]
    enum Content<B> {
        Served { #[pin] body: B, ending: EndAction, left: BodyRemainder },
        Denied { text: Option<Bytes> },
    }
}

/// A response with the bytes of its body, as far as they are ready at once.
#[cfg(feature = "axum")]
pub(crate) fn ready_response(response: http::Response<axum::body::Body>) -> http::Response<Bytes> {
    let (parts, mut body) = response.into_parts();
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut bytes = Vec::new();
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
        bytes.extend(frame.into_data().unwrap_or_default());
    }
    http::Response::from_parts(parts, bytes.into())
}

/// How much of a body is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyRemainder {
    /// This many bytes.
    Bytes(u64),
    Unknown,
    /// The end was reached; it must not be polled again.
    Over,
}

/// What happens when a body has been sent or is dropped.
pub(crate) enum EndAction {
    Nothing,
    /// Releases the permit.
    Release {
        _permit: Permit,
    },
    /// Charges the actual cost.
    Settle(Box<dyn SettleAtEnd>),
    /// The charge is in progress.
    Settles(BoxFuture<()>),
}

/// Held units that are settled at the end of the response, or when dropped.
pub(crate) trait SettleAtEnd: Send {
    /// Keeps the units on hold while the body is sent.
    fn keep(&mut self);

    /// Charges the actual cost, at once or later.
    fn settle(self: Box<Self>) -> Option<BoxFuture<()>>;
}

impl<B> GateBody<B> {
    pub(crate) const fn served(body: B) -> Self {
        Self {
            content: Content::Served {
                body,
                ending: EndAction::Nothing,
                left: BodyRemainder::Unknown,
            },
        }
    }

    pub(crate) fn denied(text: Bytes) -> Self {
        Self { content: Content::Denied { text: Some(text).filter(|text| !text.is_empty()) } }
    }
}

impl<B: Body<Data = Bytes>> GateBody<B> {
    /// A body with an action at its end. The headers may state its length.
    ///
    /// Servers poll no further than needed: neither a body that is at its end at once, nor one that
    /// has sent as many bytes as its length.
    pub(crate) fn ending(body: B, mut ending: EndAction, headers: &HeaderMap) -> Self {
        let stated =
            headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let left = stated
            .or(body.size_hint().exact())
            .map_or(BodyRemainder::Unknown, BodyRemainder::Bytes);
        if left == BodyRemainder::Bytes(0) || body.is_end_stream() {
            ending.reached();
        }
        Self { content: Content::Served { body, ending, left } }
    }
}

impl BodyRemainder {
    fn after(self, frame: &Frame<Bytes>) -> Self {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self {
            Self::Bytes(left) => Self::Bytes(left.saturating_sub(length)),
            other => other,
        }
    }
}

impl EndAction {
    /// Runs the action, now that the body is complete.
    fn reached(&mut self) {
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing | Self::Release { .. } => Self::Nothing,
            Self::Settle(settling) => settling.settle().map_or(Self::Nothing, Self::Settles),
            settles @ Self::Settles(_) => settles,
        };
    }

    /// Waits until the action is complete.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.reached();
        if let Self::Settles(later) = self {
            ready!(later.as_mut().poll(context));
            *self = Self::Nothing;
        }
        Poll::Ready(())
    }
}

impl<B: Body<Data = Bytes>> Body for GateBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().content.project() {
            ContentProjection::Served { mut body, ending, left } => {
                if *left != BodyRemainder::Over {
                    if let EndAction::Settle(settling) = ending {
                        settling.keep();
                    }
                    if let Some(frame) = ready!(body.as_mut().poll_frame(context)) {
                        if let Ok(frame) = &frame {
                            *left = left.after(frame);
                            let is_last = frame.is_trailers() || body.is_end_stream();
                            if is_last || *left == BodyRemainder::Bytes(0) {
                                ending.reached();
                            }
                        }
                        return Poll::Ready(Some(frame));
                    }
                    *left = BodyRemainder::Over;
                }
                ready!(ending.poll_end(context));
                Poll::Ready(None)
            }
            ContentProjection::Denied { text } => {
                Poll::Ready(text.take().map(|text| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Served { body, ending, .. } => {
                matches!(ending, EndAction::Nothing) && body.is_end_stream()
            }
            Content::Denied { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Served { body, .. } => body.size_hint(),
            Content::Denied { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}

impl<B> fmt::Debug for GateBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.content {
            Content::Served { .. } => "served",
            Content::Denied { .. } => "denied",
        };
        f.debug_struct("GateBody").field("content", &kind).finish_non_exhaustive()
    }
}

/// A boxed future.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
