//! Opens the store that the settings name.

use tidegate::policy::Policy;
use tidegate::{StoreEngine, store::EngineBuildError};

use crate::settings::Settings;

/// Opens the store, and makes an engine on it.
pub(crate) fn open_store(
    policy: Policy,
    settings: &Settings,
) -> Result<StoreEngine, EngineBuildError> {
    let builder = StoreEngine::builder(policy);
    match &settings.redis {
        Some(redis) => {
            let bounds = settings.policy.settings().bounds();
            builder.store(redis.store().bounds(bounds)).build()
        }
        None => builder.folder_or_memory(settings.store_folder.as_deref()).build(),
    }
}
