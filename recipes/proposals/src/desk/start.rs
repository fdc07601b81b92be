//! The start of the desk: reads the ledger, and finishes what was interrupted.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, RwLock};

use tidegate::durable::{FileOptions, FileStore, OpenError};
use tidegate::policy::PolicyErrors;
use tidegate::{
    CheckError, Outage, SettleError, StoreEngine,
    clock::{Clock, SystemClock},
    store::EngineBuildError,
};
use tidegate_listen::Warnings;
use tokio::sync::watch;

use super::{Desk, HoldEnd, Parts, Settings};
use crate::client::TrustError;
use crate::interpreter::Interpreter;
use crate::note::NoteError;
use crate::problem::DeskError;
use crate::proposal::Status;
use crate::state::{Fact, FactKind, State};

impl Desk {
    /// Opens the desk with the system's clock. It blocks until everything that it writes is
    /// durable.
    pub fn open(settings: &Settings) -> Result<Self, StartError> {
        let store = FileOptions::default().open(&settings.store)?;
        let clock = Arc::new(SystemClock::no_earlier_than(store.last_time()));
        Self::open_on(settings, store, clock)
    }

    /// Opens the desk with another clock.
    pub fn open_with_clock(
        settings: &Settings,
        clock: Arc<dyn Clock + Send + Sync>,
    ) -> Result<Self, StartError> {
        let store = FileOptions::default().open(&settings.store)?;
        Self::open_on(settings, store, clock)
    }

    /// Opens the desk on a store that is open, whatever folder the settings name.
    pub fn open_on(
        settings: &Settings,
        store: FileStore,
        clock: Arc<dyn Clock + Send + Sync>,
    ) -> Result<Self, StartError> {
        let Settings { governors, limits, interval, .. } = settings.clone();
        let policy = limits.policy().map_err(StartError::Policy)?;
        let interpreter = Interpreter::new(settings.interpreter.clone(), limits.call_timeout)
            .map_err(StartError::Trust)?;
        let engine = StoreEngine::builder(policy)
            .store(store)
            .clock(Arc::clone(&clock))
            .build()
            .map_err(StartError::Build)?;
        // Holds that have expired are in the ledger before it is read.
        engine.tick();
        let parts = Parts {
            engine,
            clock,
            governors: RwLock::new(governors),
            limits,
            interval,
            interpreter,
            state: Mutex::new(State::default()),
            queued: Mutex::new(HashMap::new()),
            interpreting: watch::Sender::new(()),
            closing: Mutex::new(()),
            outages: Warnings::new(),
        };
        let desk = Self { parts: Arc::new(parts) };
        desk.read_ledger()?;
        desk.enrol_all()?;
        desk.resume_proposals()?;
        desk.resume_tally()?;
        Ok(desk)
    }

    fn read_ledger(&self) -> Result<(), StartError> {
        let mut state = State::default();
        for entry in self.entries()? {
            let entry = entry?;
            let number = entry.number;
            let fact = Fact::from_entry(&entry);
            state.apply(fact.map_err(|error| StartError::Entry { number, error })?);
        }
        *self.state() = state;
        Ok(())
    }

    /// Cancels proposals whose interpretation was interrupted; those that wait for confirmation get
    /// the full time again.
    fn resume_proposals(&self) -> Result<(), StartError> {
        let pending = |status| self.proposals_that_are(status);
        for id in pending(Status::Interpreting) {
            let cancelled = self.cancel_hold(&mut self.state(), id, (HoldEnd::Void, RESTARTED));
            match cancelled {
                Ok(result) => drop(result.block().map_err(|_| StartError::Outage)?),
                Err(DeskError::Conflict(_)) => {}
                Err(_) => return Err(StartError::Outage),
            }
        }
        for id in pending(Status::Interpreted) {
            match self.parts.engine.renew(id.0).block() {
                Ok(expires) => self.state().set_expiry(id, Some(expires)),
                Err(SettleError::Gone) => {
                    self.state().apply(Fact::held(FactKind::Expire, id.0, None));
                }
                Err(_) => return Err(StartError::Outage),
            }
        }
        Ok(())
    }

    fn proposals_that_are(&self, status: Status) -> Vec<crate::proposal::ProposalId> {
        let state = self.state();
        state.proposals().filter(|it| it.status == status).map(|it| it.id).collect()
    }

    fn resume_tally(&self) -> Result<(), StartError> {
        let unfinished = self.state().unfinished().cloned();
        match unfinished {
            Some(tally) => self.close_window(&tally).map_err(|_| StartError::Outage),
            None => Ok(()),
        }
    }
}

/// Why the desk cannot start.
#[non_exhaustive]
pub enum StartError {
    /// The limits are not a valid policy.
    Policy(PolicyErrors),
    /// The folder cannot be opened or read.
    Open(OpenError),
    /// There is no engine on the store.
    Build(EngineBuildError),
    /// The interpreter's URL needs certificates that cannot be read.
    Trust(TrustError),
    /// An entry of the ledger cannot be parsed.
    Entry {
        /// Its number.
        number: u64,
        /// The reason.
        error: NoteError,
    },
    /// A governor could not be enrolled.
    Enrol(CheckError),
    /// A governor of the ledger does not fit the settings.
    Governor(String),
    /// The disk accepts no writes.
    Outage,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Build(error) => error.fmt(f),
            Self::Trust(error) => error.fmt(f),
            Self::Entry { number, error } => write!(
                f,
                "entry {number} of the ledger cannot be parsed: {error}. Was it written by a \
                 newer version?"
            ),
            Self::Governor(why) => write!(f, "a governor of the ledger: {why}"),
            Self::Enrol(error) => write!(f, "a governor cannot be enrolled: {error}"),
            Self::Outage => Outage::Unavailable.fmt(f),
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for StartError {}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

const RESTARTED: &str = "the desk restarted before it was interpreted";
