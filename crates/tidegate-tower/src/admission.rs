use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Extensions;
use tidegate::Decision;
use tidegate::policy::RuleId;

/// The decision about a request, for its handler.
///
/// In axum it is an extractor; elsewhere it is in the request's extensions. With several layers it
/// is the decision of the innermost, with the permit and the actual cost of the innermost that has
/// one.
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
    pub(crate) rule: Option<RuleId>,
    pub(crate) permit: Option<Permit>,
    pub(crate) actual_cost: Option<ActualCost>,
    /// Whether it was denied, and is served only because of shadow mode.
    pub(crate) is_shadow_denial: bool,
}

impl Admission {
    /// Inserts it into the request's extensions. The permit and actual cost of an outer layer are
    /// kept.
    pub(crate) fn insert_into(mut self, extensions: &mut Extensions) {
        if let Some(outer) = extensions.get::<Self>() {
            self.permit = self.permit.or_else(|| outer.permit.clone());
            self.actual_cost = self.actual_cost.or_else(|| outer.actual_cost.clone());
        }
        extensions.insert(self);
    }

    /// The decision of the decisive limit; `None` if no limit applied.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// The decisive rule, where a policy decided.
    #[must_use]
    pub const fn rule(&self) -> Option<&RuleId> {
        self.rule.as_ref()
    }

    /// Whether the request was allowed. In shadow mode denied requests are served too.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        !self.is_shadow_denial
    }

    /// The request's permit, where the requests in flight are limited.
    #[must_use]
    pub const fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref()
    }

    /// Where the handler records the actual cost, where it is settled later.
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

/// The right to be in flight. It is released when the response has been sent and the handler has
/// dropped all its clones, so a handler can keep it, for example in a WebSocket that outlives the
/// request.
#[derive(Clone)]
pub struct Permit {
    /// Released on drop.
    _lease: Arc<dyn Any + Send + Sync>,
}

impl Permit {
    pub(crate) fn new(lease: impl Any + Send + Sync) -> Self {
        Self { _lease: Arc::new(lease) }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// The actual cost of a request, once its handler knows it.
///
/// ```
/// use tidegate_tower::Admission;
///
/// async fn complete(admission: Admission) -> &'static str {
///     // … the call used 1 234 tokens …
///     if let Some(cost) = admission.actual_cost() {
///         cost.set(1_234);
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

    /// Sets the cost. The last call counts.
    pub fn set(&self, actual: u64) {
        self.actual.store(actual.min(UNSET - 1), Ordering::Release);
    }

    /// Clears the cost.
    pub(crate) fn clear(&self) {
        self.actual.store(UNSET, Ordering::Release);
    }

    /// The cost that was set, if any.
    #[must_use]
    pub fn actual(&self) -> Option<u64> {
        Some(self.actual.load(Ordering::Acquire)).filter(|actual| *actual != UNSET)
    }
}

/// No cost was set.
const UNSET: u64 = u64::MAX;
