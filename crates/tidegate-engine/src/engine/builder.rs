//! How an engine is put together: policy, store and clock.

use std::fmt;
use std::marker::PhantomData;
#[cfg(feature = "durable")]
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tidegate_core::Timestamp;
use tidegate_policy::StoreBounds;
use tidegate_policy::policy::Policy;
use tidegate_table::clock::Clock;
use tidegate_table::waiting::WaitQueues;

use super::change::Changes;
use super::current_rules::CurrentRules;
use super::ruleset::{Ruleset, RulesetEdit, RulesetSource};
use super::{Engine, EngineInner, StoreEngine};
use crate::engine_clock::EngineClock;
use crate::periods::Times;
#[cfg(feature = "durable")]
use crate::store::file::{FileOptions, OpenError};
use crate::store::{MemoryStore, Store, StoredEdits};

/// Builds an [`Engine`], or with another store a [`StoreEngine`]: chooses its bounds and its clock. By
/// default states are in memory, and the clock is the system's.
///
/// ```
/// use std::time::Duration;
/// use tidegate::policy::Policy;
/// use tidegate::clock::ManualClock;
/// use tidegate::{Engine, Request};
///
/// let policy = Policy::from_toml(r#"
///     [[rule]]
///     name     = "once-a-minute"
///     key      = ["user"]
///     cooldown = "60s"
/// "#)?;
/// let clock = ManualClock::default();
/// let engine = Engine::builder(policy).clock(clock.clone()).build()?;
/// let request = Request::new("default", &[("user", "ada")]);
/// assert!(engine.check(&request)?.is_allowed());
/// clock.advance(Duration::from_secs(60));
/// assert!(engine.check(&request)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct EngineBuilder<E = Engine> {
    policy: Policy,
    bounds: StoreBounds,
    store: ChosenStore,
    /// Made from the last time that the store knows; by default the store's own.
    clock: Option<MakeClock>,
    engine: PhantomData<fn() -> E>,
}

enum ChosenStore {
    Memory,
    #[cfg(feature = "durable")]
    Folder(PathBuf),
    Given(Box<Store>),
}

type MakeClock = Box<dyn FnOnce(Timestamp) -> EngineClock + Send>;

/// Why an engine cannot be built.
#[derive(Clone)]
#[non_exhaustive]
pub enum EngineBuildError {
    /// There is no memory for an empty table of keys.
    NoMemory,
    /// The folder of its states cannot be opened.
    #[cfg(feature = "durable")]
    Folder(OpenError),
}

impl fmt::Display for EngineBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("there is no memory for an empty table of keys"),
            #[cfg(feature = "durable")]
            Self::Folder(error) => error.fmt(f),
        }
    }
}

tidegate_core::debug_as_displayed!(EngineBuildError);

impl std::error::Error for EngineBuildError {}

#[cfg(feature = "durable")]
impl From<OpenError> for EngineBuildError {
    fn from(error: OpenError) -> Self {
        Self::Folder(error)
    }
}

impl StoreEngine {
    /// An engine with a store, for example in a [folder](EngineBuilder::folder); without one its states
    /// are in memory.
    pub fn builder(policy: Policy) -> EngineBuilder<Self> {
        EngineBuilder::new(policy)
    }
}

impl<E> EngineBuilder<E> {
    pub(super) fn new(policy: Policy) -> Self {
        let bounds = policy.settings().bounds();
        Self { policy, bounds, store: ChosenStore::Memory, clock: None, engine: PhantomData }
    }

    /// How much the store keeps at most; by default what the policy's `[server]` table sets.
    ///
    /// It counts for the stores that the builder makes. A [given store](Self::store) has bounds of its
    /// own.
    pub fn bounds(self, bounds: StoreBounds) -> Self {
        Self { bounds, ..self }
    }

    /// This store. Its capacity for keys, and what happens beyond it, are its own settings.
    pub fn store(self, store: impl Into<Store>) -> EngineBuilder<StoreEngine> {
        self.over(ChosenStore::Given(Box::new(store.into())))
    }

    fn over(self, store: ChosenStore) -> EngineBuilder<StoreEngine> {
        let Self { policy, bounds, clock, .. } = self;
        EngineBuilder { policy, bounds, store, clock, engine: PhantomData }
    }

    /// States in a folder, which continue from what is stored there.
    ///
    /// For other options of the store, [open](FileOptions::open) it and [give](Self::store) it to the
    /// builder.
    #[cfg(feature = "durable")]
    pub fn folder(self, path: impl Into<PathBuf>) -> EngineBuilder<StoreEngine> {
        self.over(ChosenStore::Folder(path.into()))
    }

    /// States in a folder, or in memory if there is none: for programs that choose when they
    /// start.
    #[cfg(feature = "durable")]
    pub fn folder_or_memory(self, path: Option<&Path>) -> EngineBuilder<StoreEngine> {
        self.over(path.map_or(ChosenStore::Memory, |path| ChosenStore::Folder(path.into())))
    }

    /// Another clock than that of the store. One with states of an earlier run needs a clock that
    /// continues from that run's; engines that share a store need the same one.
    ///
    /// By default it is the system's, never earlier than the last stored time; that of shared records is
    /// [theirs](crate::shared::RecordStore::clock).
    pub fn clock(self, clock: impl Clock + Send + Sync + 'static) -> Self {
        let clock = EngineClock::Given(Arc::new(clock));
        Self { clock: Some(Box::new(move |_| clock)), ..self }
    }

    /// Another clock, which is made from the last time that the store knows.
    pub fn clock_after<C>(self, clock: impl FnOnce(Timestamp) -> C + Send + 'static) -> Self
    where
        C: Clock + Send + Sync + 'static,
    {
        let make: MakeClock = Box::new(move |last| EngineClock::Given(Arc::new(clock(last))));
        Self { clock: Some(make), ..self }
    }

    fn store_engine(self) -> Result<StoreEngine, EngineBuildError> {
        let Self { policy, bounds, store, clock, .. } = self;
        let store = match store {
            ChosenStore::Memory => {
                MemoryStore::with_bounds(bounds).ok_or(EngineBuildError::NoMemory)?.into()
            }
            #[cfg(feature = "durable")]
            ChosenStore::Folder(path) => FileOptions::default().bounds(bounds).open(&path)?.into(),
            ChosenStore::Given(store) => *store,
        };
        let clock = match clock {
            Some(make) => make(store.last_time()),
            None => store.default_clock(),
        };
        Ok(StoreEngine { shared: Arc::new(EngineInner::new(policy, store, clock)), given: None })
    }
}

impl EngineBuilder {
    /// The engine; an error if there is no memory for an empty table.
    pub fn build(self) -> Result<Engine, EngineBuildError> {
        self.store_engine().map(Engine::over)
    }
}

impl EngineBuilder<StoreEngine> {
    /// The engine, or why there is no store for it. With a [given store](Self::store) it cannot
    /// fail.
    pub fn build(self) -> Result<StoreEngine, EngineBuildError> {
        self.store_engine()
    }
}

impl EngineInner {
    fn new(policy: Policy, store: Store, clock: EngineClock) -> Self {
        let times = Times { now: clock.now(), wall: clock.wall() };
        let StoredEdits { overlay, changes } = store.stored_edits();
        let edit = RulesetEdit { times, effective: None };
        let source = RulesetSource {
            history: store.history(),
            hash: store.hash(),
            rounds: &|domain| store.rounds(domain),
        };
        let policy = Arc::new(policy);
        let rules = Ruleset::new(Arc::clone(&policy), overlay, None, &source, edit);
        store.adopt(&rules.adoption, &|| times);
        let proposal = Mutex::new(store.shared().map(|_| policy));
        if let Some(store) = store.shared() {
            let clock = clock.clone();
            store.follow_clock(Arc::new(move || Times { now: clock.now(), wall: clock.wall() }));
        }
        let finisher = store.shared().map(|store| store.finisher().clone()).unwrap_or_default();
        Self {
            rules: CurrentRules::new(rules),
            store,
            waiting: WaitQueues::new(Arc::new(clock.clone())),
            clock,
            changes: Mutex::new(Changes::restored(changes)),
            proposal,
            local: Arc::default(),
            finisher,
        }
    }
}

impl<E> fmt::Debug for EngineBuilder<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("rules", &self.policy.rules().len())
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}
