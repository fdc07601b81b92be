//! The buckets of `CL.THROTTLE` and `THROTTLE`, which are outside the policy.

use tidegate::policy::EngineSettings;
use tidegate::{CallLimit, Limiter};
use tidegate_proto::resp::ThrottleDialect;

/// The keys of both commands, each in a table of its own.
#[derive(Debug)]
pub(crate) struct ThrottleTables {
    redis_cell: Limiter<[u8], CallLimit>,
    throttlecrab: Limiter<[u8], CallLimit>,
}

impl ThrottleTables {
    /// Each may have as many keys as the policy.
    pub(crate) fn new(settings: &EngineSettings) -> Self {
        let max_keys = usize::try_from(settings.max_keys()).unwrap_or(usize::MAX);
        let limiter = || {
            let bounded = Limiter::per_call().max_keys(max_keys).when_full(settings.when_full());
            bounded.build().expect("every bound of a policy is valid for a limiter")
        };
        Self { redis_cell: limiter(), throttlecrab: limiter() }
    }

    pub(crate) fn of(&self, dialect: ThrottleDialect) -> &Limiter<[u8], CallLimit> {
        match dialect {
            ThrottleDialect::RedisCell => &self.redis_cell,
            ThrottleDialect::Throttlecrab => &self.throttlecrab,
        }
    }
}
