//! The buckets of `CL.THROTTLE`, which are outside the policy.

use tidegate::policy::EngineSettings;
use tidegate::{Limiter, limiter::CallLimit};

/// The keys of `CL.THROTTLE`.
pub(crate) type ThrottleKeys = Limiter<[u8], CallLimit>;

/// No keys yet; there may be as many as the policy may have.
pub(crate) fn throttle_keys(settings: &EngineSettings) -> ThrottleKeys {
    let max_keys = usize::try_from(settings.max_keys()).unwrap_or(usize::MAX);
    let bounded = Limiter::per_call().max_keys(max_keys).when_full(settings.when_full());
    bounded.build().expect("every bound of a policy is valid for a limiter")
}
