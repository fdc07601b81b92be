//! Requests with plain attributes in a domain whose rules read descriptors: they pass through the
//! adapter once, before they are planned.

use smallvec::SmallVec;
use tidegate_policy::Attributes;
use tidegate_policy::policy::DescriptorNames;

use super::ruleset::{Domain, Ruleset};
use crate::request::{AttributeSource, Request};

impl Domain {
    /// Whether its rules cannot read the requests as they are.
    #[inline(always)]
    pub(super) fn needs_descriptors(&self, requests: &[Request<'_>]) -> bool {
        self.reads_descriptors && any_has_own_names(requests)
    }
}

impl Ruleset {
    /// Calls a function with a request as the rules of its domain read it.
    pub(super) fn with_read<R>(
        &self,
        request: &Request<'_>,
        then: impl FnOnce(&Request<'_>) -> R,
    ) -> R {
        let requests = std::slice::from_ref(request);
        match self.domain(request.domain) {
            Some(domain) if domain.needs_descriptors(requests) => {
                with_descriptors(requests, |requests| then(&requests[0]))
            }
            _ => then(request),
        }
    }
}

/// Calls a function with the requests, in which plain attributes are the entries of a descriptor, in
/// their order.
#[cold]
pub(super) fn with_descriptors<R>(
    requests: &[Request<'_>],
    then: impl FnOnce(&[Request<'_>]) -> R,
) -> R {
    let names: Several<_> =
        requests.iter().map(|it| has_own_names(it).then(|| names(it))).collect();
    let attributes: Several<_> = (requests.iter().zip(&names))
        .map(|(request, names)| -> SmallVec<[(&str, &str); 8]> {
            let given = request.attributes.as_slice().iter().copied();
            match names {
                Some(names) => names.attributes(given, 0).collect(),
                None => given.collect(),
            }
        })
        .collect();
    let requests: Several<_> = (requests.iter().zip(&attributes))
        .map(|(request, attributes)| Request {
            attributes: Attributes::new(attributes),
            source: AttributeSource::Descriptor,
            ..*request
        })
        .collect();
    then(&requests)
}

#[cold]
fn any_has_own_names(requests: &[Request<'_>]) -> bool {
    requests.iter().any(has_own_names)
}

fn has_own_names(request: &Request<'_>) -> bool {
    request.source == AttributeSource::Plain
}

/// The names for plain attributes that are taken for the entries of a descriptor.
fn names(request: &Request<'_>) -> DescriptorNames {
    DescriptorNames::new(request.attributes.iter().map(|(name, _)| name))
}

type Several<T> = SmallVec<[T; 2]>;
