use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Extensions;
use tidegate::Decision;

/// What was decided about a request, for its handler.
///
/// In axum it is an extractor; elsewhere it is among the request's extensions. Where several layers
/// have decided it is the innermost one's, with the place and the bill of the innermost that has one.
///
/// ```
/// use tidegate_tower::Admission;
///
/// async fn handler(admission: Admission) -> String {
///     match admission.decision() {
///         Some(decision) => format!("{} left", decision.remaining()),
///         None => "unlimited".to_owned(),
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Admission {
    pub(crate) decision: Option<Decision>,
    pub(crate) rule: Option<Box<str>>,
    pub(crate) permit: Option<Permit>,
    pub(crate) actual_cost: Option<ActualCost>,
    /// Whether it was refused, and is served only because refusals are watched, not enforced.
    pub(crate) is_watched_refusal: bool,
}

impl Admission {
    /// Puts it where the handler finds it. What an outer layer wants to know from the handler stays.
    pub(crate) fn show(mut self, extensions: &mut Extensions) {
        if let Some(outer) = extensions.get::<Self>() {
            self.permit = self.permit.or_else(|| outer.permit.clone());
            self.actual_cost = self.actual_cost.or_else(|| outer.actual_cost.clone());
        }
        extensions.insert(self);
    }

    /// The decision of the limit that tells most; `None` if no limit was asked.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// The rule that tells most, where a policy decided.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Whether the request was allowed. In shadow mode those who were not are served too.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        !self.is_watched_refusal
    }

    /// The place that the request has among those in flight, where places are limited.
    #[must_use]
    pub const fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref()
    }

    /// Where to write what the request really cost, where that is settled later.
    #[must_use]
    pub const fn actual_cost(&self) -> Option<&ActualCost> {
        self.actual_cost.as_ref()
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Admission {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// A place among those in flight. It is given back when the response has been sent and the handler
/// has dropped all its clones, so a handler can take it along: into a WebSocket that lives on, for
/// example.
#[derive(Clone)]
pub struct Permit {
    /// Given back on drop.
    _lease: Arc<dyn Any + Send + Sync>,
}

impl Permit {
    pub(crate) fn new(lease: impl Any + Send + Sync) -> Self {
        Self { _lease: Arc::new(lease) }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

/// What a request really cost, once its handler knows.
///
/// ```
/// use tidegate_tower::Admission;
///
/// async fn complete(admission: Admission) -> &'static str {
///     // … the call took 1 234 tokens …
///     if let Some(bill) = admission.bill() {
///         bill.set(1_234);
///     }
///     "done"
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ActualCost {
    actual: Arc<AtomicU64>,
}

impl ActualCost {
    pub(crate) fn new() -> Self {
        Self { actual: Arc::new(AtomicU64::new(UNSET)) }
    }

    /// Says what the request cost. The last word counts.
    pub fn set(&self, actual: u64) {
        self.actual.store(actual.min(UNSET - 1), Ordering::Release);
    }

    /// Takes back what was said.
    pub(crate) fn forget(&self) {
        self.actual.store(UNSET, Ordering::Release);
    }

    /// What was said.
    #[must_use]
    pub fn actual(&self) -> Option<u64> {
        Some(self.actual.load(Ordering::Acquire)).filter(|actual| *actual != UNSET)
    }
}

/// Nothing was said.
const UNSET: u64 = u64::MAX;
