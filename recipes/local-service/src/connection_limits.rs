use std::fmt;
use std::time::Duration;

use tidegate::policy::{Limit, Policy, Rule, Slots};
use tidegate::{Clock, Engine, Lease, MemoryStore, Request};

use crate::SettingError;

/// Places for connections: so many for each user, so many for all.
///
/// A user who takes all of theirs leaves the rest to others, and nobody waits for a place: who finds
/// none is told so.
pub struct ConnectionLimits<C> {
    engine: Engine<MemoryStore, C>,
}

/// A place that a connection has until it ends.
pub(crate) type Permit<C> = Lease<MemoryStore, C>;

impl<C: Clock + Send + Sync + 'static> ConnectionLimits<C> {
    /// So many places in all, of which one user has so many at most.
    pub fn new(all: u64, each: u64, clock: C) -> Result<Self, SettingError> {
        if each >= all {
            let reason = format!("one user could take all {all} of --max-connections");
            return Err(SettingError::new("--max-connections-per-user", reason));
        }
        let limits = |max| Limit::Slots(Slots::new(max).queue(0).expires(FOR_EVER));
        let wrong = |error: String| SettingError::new("--max-connections", error);
        let user = Rule::new("user", limits(each)).domain(DOMAIN).key(["uid"]);
        let user = user.map_err(|error| wrong(error.to_string()))?;
        let everybody = Rule::new("everybody", limits(all)).domain(DOMAIN);
        let policy = Policy::new([user, everybody]).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { engine: Engine::with_clock(policy, clock) })
    }

    /// A place for a connection of this user, if there is one.
    pub(crate) async fn take(&self, uid: u32) -> Option<Permit<C>> {
        let uid = uid.to_string();
        let attributes = [("uid", uid.as_str())];
        let request = Request::new(DOMAIN, &attributes);
        self.engine.acquire(&request, Some(Duration::ZERO)).await.ok()
    }
}

impl<C> fmt::Debug for ConnectionLimits<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("engine", &self.engine).finish()
    }
}

const DOMAIN: &str = "connections";

/// A task that ends gives its place back, however it ends, so none has to come back by itself.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
