use std::fmt;

use tidegate::policy::Policy;
use tidegate::{CheckError, Clock, Engine, MemoryStore, Request, Wait};

/// The domain of the policy.
pub(crate) const DOMAIN: &str = "ipc";

/// What a policy may ask about a request: who sent it, and what it wants.
pub(crate) const ATTRIBUTES: [&str; 2] = ["user", "type"];

/// The limits at work. The same for all connections; nothing is kept on disk.
pub struct RequestLimiter<C> {
    /// `None`: limiting is switched off.
    engine: Option<Engine<MemoryStore, C>>,
}

/// Whether a request may go on.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitOutcome {
    /// It may, and has been charged to every limit.
    Free,
    /// It may not, and has been charged to none.
    Refused {
        /// The limit that refused, the one with the longest wait if several did.
        limit: Option<String>,
        /// How long to wait, rounded up; `None` where no wait helps.
        retry_after_ms: Option<u64>,
    },
}

impl<C: Clock + Send + Sync + 'static> RequestLimiter<C> {
    /// A gate that goes by a policy and a clock.
    #[must_use]
    pub fn new(policy: Policy, clock: C) -> Self {
        Self { engine: Some(Engine::with_clock(policy, clock)) }
    }

    /// A gate that lets everybody through.
    #[must_use]
    pub const fn open() -> Self {
        Self { engine: None }
    }

    /// Charges a request of a user to all limits, or to none.
    pub fn check(&self, user: &str, kind: &str) -> Result<LimitOutcome, CheckError> {
        let Some(engine) = &self.engine else { return Ok(LimitOutcome::Free) };
        let attributes = [(ATTRIBUTES[0], user), (ATTRIBUTES[1], kind)];
        let report = engine.check(&Request::new(DOMAIN, &attributes)).wait()?;
        if report.is_allowed() {
            return Ok(LimitOutcome::Free);
        }
        let retry_after_ms = report.wait().and_then(Wait::whole_ms);
        Ok(LimitOutcome::Refused { limit: report.rule().map(str::to_owned), retry_after_ms })
    }

    /// How many users and other keys are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.engine.as_ref().map_or(0, Engine::len)
    }

    /// Whether nobody is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in which they are remembered.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.engine.as_ref().map_or(0, Engine::bytes)
    }
}

impl<C> fmt::Debug for RequestLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("engine", &self.engine).finish()
    }
}
