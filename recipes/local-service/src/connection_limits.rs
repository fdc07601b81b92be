use std::fmt;
use std::time::Duration;

use tidegate::policy::{Limit, Policy, Rule, Slots};
use tidegate::{Clock, Engine, Lease, MemoryStore, Request};

use crate::SettingError;

/// The slots of connections: per user and in total.
///
/// A user who holds the maximum leaves the rest to others. There is no queue: without a free slot
/// the connection is turned away.
pub struct ConnectionLimits<C> {
    engine: Engine<MemoryStore, C>,
}

/// The slot of a connection, held until it ends.
pub(crate) type Permit<C> = Lease<MemoryStore, C>;

impl<C: Clock + Send + Sync + 'static> ConnectionLimits<C> {
    /// `all` slots in total, at most `each` per user.
    pub fn new(all: u64, each: u64, clock: C) -> Result<Self, SettingError> {
        if each >= all {
            let reason = format!("one user could hold all {all} of --max-connections");
            return Err(SettingError::new("--max-connections-per-user", reason));
        }
        let limits = |max| Limit::Slots(Slots::new(max).queue(0).expires(FOR_EVER));
        let wrong = |error: String| SettingError::new("--max-connections", error);
        let user = Rule::new("user", limits(each)).domain(DOMAIN).key(["uid"]);
        let user = user.map_err(|error| wrong(error.to_string()))?;
        let total = Rule::new("total", limits(all)).domain(DOMAIN);
        let policy = Policy::new([user, total]).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { engine: Engine::with_clock(policy, clock) })
    }

    /// A slot for a connection of this user, if one is free.
    pub(crate) async fn acquire(&self, uid: u32) -> Option<Permit<C>> {
        let uid = uid.to_string();
        let attributes = [("uid", uid.as_str())];
        let request = Request::new(DOMAIN, &attributes);
        self.engine.acquire(&request, Some(Duration::ZERO)).await.ok()
    }
}

impl<C> fmt::Debug for ConnectionLimits<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionLimits").field("engine", &self.engine).finish()
    }
}

const DOMAIN: &str = "connections";

/// A task releases its slot however it ends, so slots need no expiry.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
