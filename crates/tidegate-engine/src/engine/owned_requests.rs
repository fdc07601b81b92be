//! Requests that outlive the call that they came with.

use smallvec::SmallVec;

use crate::hold_id::Owner;
use crate::request::Request;
use crate::request_limit::RequestLimit;
use tidegate_policy::Attributes;

/// Requests that outlive the call that they came with.
#[derive(Clone, Debug)]
pub(super) struct OwnedRequests(SmallVec<[OwnedRequest; 1]>);

#[derive(Clone, Debug)]
struct OwnedRequest {
    /// Its texts, one after the other: the domain, the attributes, the idempotency key, the note.
    text: Box<str>,
    /// Where each of them ends.
    ends: SmallVec<[usize; 6]>,
    attributes: usize,
    /// How many of its attributes have no position.
    unordered: usize,
    number: usize,
    has_idempotency_key: bool,
    has_note: bool,
    owner: Option<Owner>,
    cost: u64,
    request_limit: Option<RequestLimit>,
}

impl OwnedRequest {
    fn new(request: &Request<'_>) -> Self {
        let texts = || {
            let attributes = request.attributes.as_slice().iter();
            let texts = [request.domain].into_iter();
            let texts = texts.chain(attributes.flat_map(|(name, value)| [*name, *value]));
            texts.chain(request.idempotency_key).chain(request.note)
        };
        let mut text = String::with_capacity(texts().map(str::len).sum());
        let ends = texts().map(|it| {
            text.push_str(it);
            text.len()
        });
        Self {
            ends: ends.collect(),
            text: text.into_boxed_str(),
            attributes: request.attributes.as_slice().len(),
            unordered: request.attributes.unordered(),
            number: request.attributes.number(),
            has_idempotency_key: request.idempotency_key.is_some(),
            has_note: request.note.is_some(),
            owner: request.owner,
            cost: request.cost,
            request_limit: request.request_limit.copied(),
        }
    }

    /// Its texts.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.text[begin..*end])
    }

    /// Its attributes.
    fn attributes(&self) -> Vec<(&str, &str)> {
        let mut texts = self.texts().skip(1);
        (0..self.attributes).filter_map(|_| Some((texts.next()?, texts.next()?))).collect()
    }

    /// The request, with attributes that are in a list.
    fn request<'r>(&'r self, attributes: &'r [(&'r str, &'r str)]) -> Request<'r> {
        let mut rest = self.texts().skip(1 + 2 * self.attributes);
        Request {
            prepared: None,
            domain: self.texts().next().unwrap_or_default(),
            attributes: Attributes::new(attributes)
                .with_unordered(self.unordered)
                .with_number(self.number),
            cost: self.cost,
            idempotency_key: if self.has_idempotency_key { rest.next() } else { None },
            note: if self.has_note { rest.next() } else { None },
            owner: self.owner,
            request_limit: self.request_limit.as_ref(),
        }
    }
}

impl OwnedRequests {
    pub(super) fn new(requests: &[Request<'_>]) -> Self {
        Self(requests.iter().map(OwnedRequest::new).collect())
    }

    /// Calls a function with the requests.
    pub(super) fn with<R>(&self, then: impl FnOnce(&[Request<'_>]) -> R) -> R {
        let attributes: Vec<_> = self.0.iter().map(OwnedRequest::attributes).collect();
        let requests = self.0.iter().zip(&attributes);
        let requests: Vec<Request<'_>> = requests.map(|(it, list)| it.request(list)).collect();
        then(&requests)
    }
}
