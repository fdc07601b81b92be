//! JSON bodies of requests, decoded strictly: a misspelt field is an error, never "unlimited".

use std::borrow::Cow;

use http::StatusCode;
use serde::de::DeserializeSeed;
use smallvec::SmallVec;
use tidegate::Request;
use tidegate::policy::{Rule, Scope};

use super::problem::RequestProblem;
use de::{ErrorLocation, JsonPath, ObjectForm};

mod de;

/// A field of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyField {
    Domain,
    Attributes,
    Cost,
    Peek,
    WaitMs,
    Reservation,
    Amount,
    Actual,
    Requests,
}

impl BodyField {
    const fn name(self) -> &'static str {
        match self {
            Self::Domain => "domain",
            Self::Attributes => "attributes",
            Self::Cost => "cost",
            Self::Peek => "peek",
            Self::WaitMs => "wait_ms",
            Self::Reservation => "reservation",
            Self::Amount => "amount",
            Self::Actual => "actual",
            Self::Requests => "requests",
        }
    }
}

/// The fields of `check`, and of each request of a batch.
pub(super) const CHECK: &[BodyField] =
    &[BodyField::Domain, BodyField::Attributes, BodyField::Cost, BodyField::Peek];
/// The fields of `check/batch`.
pub(super) const BATCH: &[BodyField] = &[BodyField::Requests];
/// The fields of `reserve` and `explain`.
pub(super) const RESERVE: &[BodyField] =
    &[BodyField::Domain, BodyField::Attributes, BodyField::Cost];
/// The fields of `usage`.
pub(super) const USAGE: &[BodyField] = &[BodyField::Domain, BodyField::Attributes];
/// The fields of `commit`.
pub(super) const COMMIT: &[BodyField] = &[BodyField::Actual];
/// No fields.
pub(super) const NOTHING: &[BodyField] = &[];
/// The fields of `refund`.
pub(super) const REFUND: &[BodyField] =
    &[BodyField::Reservation, BodyField::Domain, BodyField::Attributes, BodyField::Amount];
/// The fields of `acquire`.
pub(super) const ACQUIRE: &[BodyField] =
    &[BodyField::Domain, BodyField::Attributes, BodyField::Cost, BodyField::WaitMs];

/// A decoded request body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestBody<'b> {
    pub(super) domain: Option<Cow<'b, str>>,
    pub(super) attributes: BodyAttributes<'b>,
    pub(super) cost: Option<u64>,
    pub(super) peek: bool,
    pub(super) wait_ms: Option<u64>,
    pub(super) reservation: Option<Cow<'b, str>>,
    pub(super) amount: Option<u64>,
    pub(super) actual: Option<u64>,
    /// `None` if absent.
    pub(super) requests: Option<Vec<RequestBody<'b>>>,
}

/// Attributes as they are in a body.
type BodyAttributes<'b> = SmallVec<[(Cow<'b, str>, Cow<'b, str>); 4]>;

/// Attributes in the form of [`Request::new`].
pub(super) type AttributePairs<'a> = SmallVec<[(&'a str, &'a str); 8]>;

impl<'b> RequestBody<'b> {
    /// Decodes an object that may have these fields and no others.
    pub(super) fn read(
        body: &'b [u8],
        fields: &'static [BodyField],
        most_requests: usize,
    ) -> Result<Self, RequestProblem> {
        let errors = ErrorLocation::default();
        let mut text = serde_json::Deserializer::from_slice(body);
        let form = ObjectForm { fields, path: &JsonPath::Root, errors: &errors, most_requests };
        let mut body = Self::default();
        let read = form.seed(&mut body).deserialize(&mut text);
        read.and_then(|()| text.end()).map_err(|error| errors.problem(&error))?;
        Ok(body)
    }

    /// The same; an absent body is an empty object.
    pub(super) fn read_if_any(
        body: &'b [u8],
        fields: &'static [BodyField],
    ) -> Result<Self, RequestProblem> {
        if body.is_empty() { Ok(Self::default()) } else { Self::read(body, fields, 0) }
    }

    /// The attributes for [`Self::request`].
    pub(super) fn pairs(&self) -> AttributePairs<'_> {
        self.attributes.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    /// The domain, or the default one.
    pub(super) fn domain(&self) -> &str {
        self.domain.as_deref().unwrap_or(Rule::DEFAULT_DOMAIN)
    }

    /// What a client needs to have it decided.
    pub(super) const fn scope(&self) -> Scope {
        if self.peek { Scope::Read } else { Scope::Check }
    }

    /// The request to the engine.
    pub(super) fn request<'a>(&'a self, pairs: &'a [(&'a str, &'a str)]) -> Request<'a> {
        Request::new(self.domain(), pairs).cost(self.cost.unwrap_or(1))
    }
}

impl ErrorLocation {
    /// The problem of a decoding error.
    fn problem(&self, error: &serde_json::Error) -> RequestProblem {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let suffix = format!(" at line {line} column {column}");
        let text = text.strip_suffix(&suffix).unwrap_or(&text);
        let problem = if error.is_data() {
            RequestProblem::unprocessable(text).at(self.pointer().unwrap_or_default())
        } else {
            let detail = format!("not JSON: {text}, line {line}, column {column}");
            RequestProblem::new(StatusCode::BAD_REQUEST, detail)
        };
        RequestProblem { position: Some((line, column)), ..problem }
    }
}
