use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Place;
use crate::gate::Later;

pin_project! {
    /// The body of a response that has passed a gate: the service's own, or why it was refused.
    pub struct GateBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[project = ContentProjection]
    enum Content<B> {
        Served { #[pin] body: B, ending: Ending },
        Refused { text: Option<Bytes> },
    }
}

/// What happens when a body has been sent, or is dropped.
pub(crate) enum Ending {
    Nothing,
    /// The place is given back.
    Release {
        _place: Place,
    },
    /// What the request really cost is charged.
    Settle(Box<dyn Settling>),
    /// It is being charged.
    Settles(Later<()>),
}

/// Units that were set aside and wait for the end of the response. Dropping it settles too.
pub(crate) trait Settling: Send {
    /// Charges what the request cost: at once, or in a while.
    fn settle(self: Box<Self>) -> Option<Later<()>>;
}

impl<B> GateBody<B> {
    pub(crate) const fn served(body: B, ending: Ending) -> Self {
        Self { content: Content::Served { body, ending } }
    }

    pub(crate) const fn refused(text: Option<Bytes>) -> Self {
        Self { content: Content::Refused { text } }
    }
}

impl Ending {
    /// Goes on ending, now that the body is complete.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match std::mem::replace(self, Self::Nothing) {
                Self::Nothing | Self::Release { .. } => return Poll::Ready(()),
                Self::Settle(settling) => match settling.settle() {
                    Some(later) => *self = Self::Settles(later),
                    None => return Poll::Ready(()),
                },
                Self::Settles(mut later) => {
                    if later.as_mut().poll(context).is_pending() {
                        *self = Self::Settles(later);
                        return Poll::Pending;
                    }
                }
            }
        }
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
            ContentProjection::Served { body, ending } => match ready!(body.poll_frame(context)) {
                Some(frame) => Poll::Ready(Some(frame)),
                None => {
                    ready!(ending.poll_end(context));
                    Poll::Ready(None)
                }
            },
            ContentProjection::Refused { text } => {
                Poll::Ready(text.take().map(|text| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Served { body, ending } => {
                matches!(ending, Ending::Nothing) && body.is_end_stream()
            }
            Content::Refused { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Served { body, .. } => body.size_hint(),
            Content::Refused { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}

impl<B> fmt::Debug for GateBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.content {
            Content::Served { .. } => "served",
            Content::Refused { .. } => "refused",
        };
        f.debug_struct("GateBody").field("content", &kind).finish_non_exhaustive()
    }
}
