//! The clock of an engine.

use std::fmt;
use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_table::SystemClock;
use tidegate_table::clock::Clock;

/// The clock of an engine: that of the system, which decisions read without a call, or another one.
#[derive(Clone)]
pub(crate) enum EngineClock {
    System(SystemClock),
    Given(Arc<dyn Clock + Send + Sync>),
}

impl Clock for EngineClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Given(clock) => clock.now(),
        }
    }

    fn wall(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.wall(),
            Self::Given(clock) => clock.wall(),
        }
    }

    fn latest(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.latest(),
            Self::Given(clock) => clock.latest(),
        }
    }
}

impl fmt::Debug for EngineClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineClock({})", self.now())
    }
}
