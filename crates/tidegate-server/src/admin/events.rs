//! The stream of events that an open page of the dashboard reads.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tidegate_listen::ShutdownSignal;
use tokio::sync::mpsc;

use super::AdminError;
use super::listener::Login;
use crate::daemon::SharedDaemon;
use crate::http::response::HttpResponse;
use crate::traffic::Follower;

/// A response of the admin listener.
pub(super) type AdminHttpResponse = Response<AdminHttpBody>;

/// The body of a response: whole, or a stream of events.
#[derive(Debug)]
pub(super) enum AdminHttpBody {
    Whole(Full<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl AdminHttpBody {
    pub(super) const fn is_stream(&self) -> bool {
        matches!(self, Self::Events(_))
    }
}

/// A whole response as one of the admin listener.
pub(super) fn whole(response: HttpResponse) -> AdminHttpResponse {
    response.map(AdminHttpBody::Whole)
}

impl Body for AdminHttpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Events(events) => {
                events.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// The events from now on, until the client goes, its login ends, or the daemon stops.
pub(super) fn stream(
    daemon: &SharedDaemon,
    login: Login,
    shutdown: ShutdownSignal,
) -> Result<AdminHttpResponse, AdminError> {
    let Some(follower) = daemon.traffic.feed.follow() else {
        let detail = "too many pages of the dashboard are open";
        return Err(AdminError::new(503, "Service Unavailable", detail));
    };
    let (sender, events) = mpsc::channel(1);
    tokio::spawn(forward(SharedDaemon::clone(daemon), login, follower, sender, shutdown));
    let mut response = Response::new(AdminHttpBody::Events(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The connection has no time-out while it sends events, so it serves nothing else afterwards.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    // A proxy such as nginx would keep events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

async fn forward(
    daemon: SharedDaemon,
    login: Login,
    mut follower: Follower,
    sender: mpsc::Sender<Bytes>,
    mut shutdown: ShutdownSignal,
) {
    // Browsers show the stream as open only after its first bytes.
    let mut event = Some(Bytes::from_static(b"retry: 2000\n\n"));
    while let Some(bytes) = event {
        tokio::select! {
            sent = sender.send(bytes) => if sent.is_err() { return },
            () = shutdown.wanted() => return,
        }
        event = tokio::select! {
            next = follower.next() => next,
            () = sender.closed() => return,
            () = shutdown.wanted() => return,
        };
        if !login.is_open(&daemon) {
            return;
        }
    }
}
