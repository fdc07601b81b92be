use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Permit;
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
        Served { #[pin] body: B, ending: EndAction, left: BodyRemainder },
        Refused { text: Option<Bytes> },
    }
}

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyRemainder {
    /// So many bytes.
    Bytes(u64),
    Unknown,
    /// It has said that there is nothing more, and must not be asked again.
    Over,
}

/// What happens when a body has been sent, or is dropped.
pub(crate) enum EndAction {
    Nothing,
    /// The place is given back.
    Release {
        _place: Permit,
    },
    /// What the request really cost is charged.
    Settle(Box<dyn SettleAtEnd>),
    /// It is being charged.
    Settles(Later<()>),
}

/// Units that were set aside and wait for the end of the response. Dropping it settles too.
pub(crate) trait SettleAtEnd: Send {
    /// Charges what the request cost: at once, or in a while.
    fn settle(self: Box<Self>) -> Option<Later<()>>;
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

    pub(crate) const fn denied(text: Option<Bytes>) -> Self {
        Self { content: Content::Refused { text } }
    }
}

impl<B: Body<Data = Bytes>> GateBody<B> {
    /// A body with something to do at its end. Its response may say how long it is.
    ///
    /// Servers do not ask for what is not there: neither for a body that says at once that it is at its
    /// end, nor for more once as many bytes have come as were promised.
    pub(crate) fn ending(body: B, mut ending: EndAction, headers: &HeaderMap) -> Self {
        let said =
            headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let left =
            said.or(body.size_hint().exact()).map_or(BodyRemainder::Unknown, BodyRemainder::Bytes);
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
    /// Does what is to be done, now that the body is complete.
    fn reached(&mut self) {
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing | Self::Release { .. } => Self::Nothing,
            Self::Settle(settling) => settling.settle().map_or(Self::Nothing, Self::Settles),
            settles @ Self::Settles(_) => settles,
        };
    }

    /// Waits until that is done.
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
            ContentProjection::Refused { text } => {
                Poll::Ready(text.take().map(|text| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Served { body, ending, .. } => {
                matches!(ending, EndAction::Nothing) && body.is_end_stream()
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
