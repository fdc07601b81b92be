use std::fmt;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidegate::Wait;
use tidegate_proto::problem::{CONTENT_TYPE, Problem};

use crate::limits::{CAP, CAP_REACHED, COOLDOWN, TOKENS, TOKENS_PER_WINDOW};

/// Why a request to the desk failed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeskError {
    /// The governor's last proposal is too recent.
    Cooldown {
        /// The wait in the message.
        seconds: u64,
        /// The wait.
        wait: Option<Wait>,
    },
    /// The governor does not have enough tokens.
    Tokens {
        /// The governor's tokens.
        left: u64,
    },
    /// The governor has reached the cap of this window.
    Cap,
    /// The interpreter failed, or found the proposal invalid. Its tokens are released.
    NotInterpreted {
        /// The HTTP status.
        status: u16,
        /// The reason.
        reason: String,
        /// Whether the interpreter has answered.
        call: CallOutcome,
    },
    /// There is no such proposal.
    NoSuchProposal,
    /// The proposal's status does not allow it.
    Conflict(String),
    /// The caller may not do that.
    Forbidden(&'static str),
    /// The caller is not authenticated.
    Unauthorized,
    /// The request is invalid.
    Invalid {
        /// The HTTP status.
        status: u16,
        /// The reason.
        why: String,
    },
    /// The store accepts no writes.
    Outage,
}

/// Whether a call has reached the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// No: it leaves no trace, as if the proposal had not been submitted.
    NotReached,
    /// Yes, and it may have cost something, whatever became of it: the proposal counts as a submission.
    Reached,
}

impl DeskError {
    /// A request with an invalid value.
    pub(crate) fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid { status: 422, why: why.into() }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Cooldown { .. } | Self::Cap => 429,
            Self::Tokens { .. } => 402,
            Self::NotInterpreted { status, .. } | Self::Invalid { status, .. } => *status,
            Self::NoSuchProposal => 404,
            Self::Conflict(_) => 409,
            Self::Forbidden(_) => 403,
            Self::Unauthorized => 401,
            Self::Outage => 503,
        }
    }

    /// The rule that denied it, and the wait.
    fn limit(&self) -> Option<(&'static str, Option<Wait>)> {
        match self {
            Self::Cooldown { wait, .. } => Some((COOLDOWN, *wait)),
            Self::Tokens { .. } => Some((TOKENS, Some(Wait::Unknown))),
            Self::Cap => Some((CAP, Some(Wait::Unknown))),
            _ => None,
        }
    }
}

impl fmt::Display for DeskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cooldown { seconds, .. } => {
                write!(f, "Please wait {seconds} seconds before submitting another proposal.")
            }
            Self::Tokens { left } => write!(
                f,
                "You don't have enough PROPOSE tokens for this proposal: you have {left}. Every \
                 governance tally adds {TOKENS_PER_WINDOW}."
            ),
            Self::Cap => f.write_str(CAP_REACHED),
            Self::NotInterpreted { reason, call, .. } => {
                f.write_str("The proposal was not accepted and its tokens were released")?;
                if *call == CallOutcome::Reached {
                    f.write_str(", but it counts as a submission")?;
                }
                write!(f, ": {reason}.")
            }
            Self::NoSuchProposal => f.write_str("No such proposal."),
            Self::Conflict(why) | Self::Invalid { why, .. } => f.write_str(why),
            Self::Forbidden(why) => f.write_str(why),
            Self::Unauthorized => {
                f.write_str("Authenticate with `Authorization: Bearer` and your secret.")
            }
            Self::Outage => f.write_str("The desk cannot write to its disk. Try again later."),
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for DeskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for DeskError {}

impl IntoResponse for DeskError {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}

impl DeskError {
    /// The response, as a problem in JSON.
    pub(crate) fn to_response(&self) -> Response<Bytes> {
        let status = StatusCode::from_u16(self.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let detail = self.to_string();
        let problem = match self.limit() {
            Some((rule, wait)) => Problem {
                status: status.as_u16(),
                ..Problem::quota_exceeded(&detail, [rule].into_iter(), wait)
            },
            None if *self == Self::Outage => Problem::reduced_capacity(&detail),
            None => {
                Problem::plain(status.as_u16(), status.canonical_reason().unwrap_or(""), &detail)
            }
        };
        let mut response = Response::new(Bytes::from(problem.to_json()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if let Some(seconds) = self.limit().and_then(|(_, wait)| wait?.whole_secs()) {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if *self == Self::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
