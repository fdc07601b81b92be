//! How an engine is put together: policy, store and clock.

use std::convert::Infallible;
use std::fmt;
#[cfg(feature = "durable")]
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tidegate_core::Timestamp;
use tidegate_policy::StoreBounds;

use super::change::Changes;
use super::current_rules::CurrentRules;
use super::ruleset::{Ruleset, RulesetEdit, RulesetSource};
use super::{Engine, EngineInner};
use crate::cycle::Times;
#[cfg(feature = "durable")]
use crate::store::{
    AnyStore,
    file::{FileOptions, FileStore, OpenError},
    sealed,
};
use crate::store::{MakeClock, MemoryStore, Store, StoredEdits};
use tidegate_policy::policy::Policy;
use tidegate_table::clock::{Clock, SystemClock};
use tidegate_table::waiting::WaitQueues;

/// Builds an [`Engine`]: chooses its store and its clock. By default states are in memory, and the
/// clock is the system's.
///
/// ```
/// use std::time::Duration;
/// use tidegate::policy::Policy;
/// use tidegate::{Engine, ManualClock, Request};
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
/// assert!(engine.check(&request).block()?.is_allowed());
/// clock.advance(Duration::from_secs(60));
/// assert!(engine.check(&request).block()?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The store is chosen once, and with it what [`build`](Self::build) may fail with: `E`.
#[must_use]
pub struct EngineBuilder<S = MemoryStore, C = SystemClock, E = NoMemory> {
    policy: Policy,
    bounds: StoreBounds,
    store: MakeStore<S, E>,
    clock: MakeClock<C>,
}

/// A store within these bounds, and the last time that it knows.
type MakeStore<S, E> = Box<dyn FnOnce(StoreBounds) -> Result<(S, Timestamp), E> + Send>;

/// There is no memory for an empty table of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no memory for an empty table of keys")
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NoMemory {}

impl Engine {
    /// An engine with another store, another clock or other bounds.
    pub fn builder(policy: Policy) -> EngineBuilder {
        EngineBuilder {
            bounds: policy.settings().bounds(),
            policy,
            store: Box::new(|bounds| {
                Ok((MemoryStore::with_bounds(bounds).ok_or(NoMemory)?, Timestamp::ZERO))
            }),
            clock: Box::new(SystemClock::no_earlier_than),
        }
    }
}

/// The choice of a store.
impl<C> EngineBuilder<MemoryStore, C, NoMemory> {
    /// How much the store keeps at most; by default what the policy's `[server]` table sets.
    ///
    /// It counts for the stores that the builder makes: set it before `folder`. A [given store](Self::store) has bounds of its own.
    pub fn bounds(self, bounds: StoreBounds) -> Self {
        Self { bounds, ..self }
    }

    /// This store. Its capacity for keys, and what happens beyond it, are its own settings.
    ///
    /// A store that several engines share needs a [clock](EngineBuilder::clock), too: until it is set,
    /// the builder has [none](crate::NoClock).
    pub fn store<S: Store>(self, store: S) -> EngineBuilder<S, S::DefaultClock<C>, Infallible> {
        let last = store.last_time();
        let Self { policy, bounds, clock, .. } = self;
        let store: MakeStore<S, Infallible> = Box::new(move |_| Ok((store, last)));
        EngineBuilder { policy, bounds, store, clock: S::default_clock(clock) }
    }

    /// States in a folder, which continue from what is stored there.
    ///
    /// The default clock is never earlier than the last stored time. For other options of the
    /// store, [open](FileOptions::open) it and [give](Self::store) it to the builder.
    #[cfg(feature = "durable")]
    pub fn folder(self, path: impl Into<PathBuf>) -> EngineBuilder<FileStore, C, OpenError> {
        let path = path.into();
        self.made_by(move |bounds| {
            let store = FileOptions::default().bounds(bounds).open(&path)?;
            let last = store.last_time();
            Ok((store, last))
        })
    }

    /// States in a folder, or in memory if there is none: for programs that choose when they
    /// start.
    #[cfg(feature = "durable")]
    pub fn folder_or_memory(self, path: Option<&Path>) -> EngineBuilder<AnyStore, C, OpenError> {
        let path = path.map(Path::to_path_buf);
        self.made_by(move |bounds| {
            let store = AnyStore::open(path.as_deref(), bounds)?;
            let last = sealed::Store::last_time(&store);
            Ok((store, last))
        })
    }

    #[cfg(feature = "durable")]
    fn made_by<S, E>(
        self,
        store: impl FnOnce(StoreBounds) -> Result<(S, Timestamp), E> + Send + 'static,
    ) -> EngineBuilder<S, C, E> {
        let Self { policy, bounds, clock, .. } = self;
        EngineBuilder { policy, bounds, store: Box::new(store), clock }
    }
}

impl<S, C, E> EngineBuilder<S, C, E> {
    /// Uses another clock. For a store with states of an earlier run it has to continue from that
    /// run's clock.
    pub fn clock<D: Clock + Send + Sync + 'static>(self, clock: D) -> EngineBuilder<S, D, E> {
        let Self { policy, bounds, store, .. } = self;
        EngineBuilder { policy, bounds, store, clock: Box::new(move |_| clock) }
    }

    /// Uses another clock, which is made from the last time that the store knows.
    pub fn clock_after<D: Clock + Send + Sync + 'static>(
        self,
        clock: impl FnOnce(Timestamp) -> D + Send + 'static,
    ) -> EngineBuilder<S, D, E> {
        let Self { policy, bounds, store, .. } = self;
        EngineBuilder { policy, bounds, store, clock: Box::new(clock) }
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static, E> EngineBuilder<S, C, E> {
    /// The engine, or why there is no store for it. With a [given store](Self::store) it cannot
    /// fail.
    pub fn build(self) -> Result<Engine<S, C>, E> {
        let Self { policy, bounds, store, clock } = self;
        let (store, last) = store(bounds)?;
        let clock = clock(last);
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
        let clock = Arc::new(clock);
        if let Some(store) = store.shared() {
            let clock = Arc::clone(&clock);
            store.follow_clock(Arc::new(move || Times { now: clock.now(), wall: clock.wall() }));
        }
        let finisher = store.shared().map(|store| store.finisher().clone()).unwrap_or_default();
        let shared = EngineInner {
            rules: CurrentRules::new(rules),
            store,
            waiting: WaitQueues::new(Arc::clone(&clock) as Arc<dyn Clock + Send + Sync>),
            clock,
            changes: Mutex::new(Changes::restored(changes)),
            proposal,
            local: Arc::default(),
            finisher,
        };
        Ok(Engine { shared: Arc::new(shared) })
    }
}

impl<S, C, E> fmt::Debug for EngineBuilder<S, C, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("rules", &self.policy.rules().len())
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}
