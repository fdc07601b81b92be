use tidegate::policy::Policy;
use tidegate::{CheckError, Request, StoreEngine, Wait, clock::Clock};

/// The domain of the policy.
pub(crate) const DOMAIN: &str = "ipc";

/// The attributes of a request: its user and its type.
pub(crate) const ATTRIBUTES: [&str; 2] = ["user", "type"];

/// The limits of all connections; their state is in memory only.
#[derive(Debug)]
pub struct RequestLimiter {
    /// `None`: limiting is disabled.
    engine: Option<StoreEngine>,
}

/// The outcome for a request.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitOutcome {
    /// It is allowed, and was charged to every limit.
    Allowed,
    /// It is denied, and was charged to none.
    Denied {
        /// The limit that denied it, the one with the longest wait if several did.
        limit: Option<String>,
        /// The wait, rounded up; `None` if no wait helps.
        retry_after_ms: Option<u64>,
    },
}

impl RequestLimiter {
    /// A limiter with this policy and clock.
    ///
    /// # Panics
    ///
    /// If there is no memory for an empty table.
    #[must_use]
    pub fn new(policy: Policy, clock: impl Clock + Send + Sync + 'static) -> Self {
        Self {
            engine: Some(
                StoreEngine::builder(policy)
                    .clock(clock)
                    .build()
                    .expect("an empty store takes a few kilobytes"),
            ),
        }
    }

    /// A limiter that allows every request.
    #[must_use]
    pub const fn open() -> Self {
        Self { engine: None }
    }

    /// Charges a request of a user to all limits, or to none.
    pub fn check(&self, user: &str, kind: &str) -> Result<LimitOutcome, CheckError> {
        let Some(engine) = &self.engine else { return Ok(LimitOutcome::Allowed) };
        let attributes = [(ATTRIBUTES[0], user), (ATTRIBUTES[1], kind)];
        let report = engine.check(&Request::new(DOMAIN, &attributes)).block()?;
        if report.is_allowed() {
            return Ok(LimitOutcome::Allowed);
        }
        let retry_after_ms = report.retry_after().and_then(Wait::whole_ms);
        let limit = report.rule().map(|rule| rule.name().to_owned());
        Ok(LimitOutcome::Denied { limit, retry_after_ms })
    }

    /// The number of keys in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.engine.as_ref().map_or(0, StoreEngine::len)
    }

    /// Whether the table has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the table.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.engine.as_ref().map_or(0, StoreEngine::bytes)
    }
}
