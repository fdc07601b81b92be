//! Opens the store that the settings name.

use tidegate::durable::OpenError;
use tidegate::policy::Policy;
use tidegate::{AnyStore, Engine, SystemClock};

use crate::engine::{DaemonClock, DaemonEngine};
use crate::settings::Settings;

/// Opens the store, and makes an engine on it.
pub(crate) fn open_store(policy: Policy, settings: &Settings) -> Result<DaemonEngine, OpenError> {
    let builder = Engine::builder(policy);
    if let Some(redis) = &settings.redis {
        let store = AnyStore::Shared(redis.store().bounds(settings.policy.settings().bounds()));
        let clock = DaemonClock::Server(redis.clock());
        let Ok(engine) = builder.store(store).clock(clock).build();
        return Ok(engine);
    }
    let folder = settings.store_folder.as_deref();
    let clock = |last| DaemonClock::System(SystemClock::no_earlier_than(last));
    builder.folder_or_memory(folder).clock_after(clock).build()
}
