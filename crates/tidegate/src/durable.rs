//! States that outlive the process: kept in a folder, one process at a time.
//!
//! ```
//! use tidegate::policy::Policy;
//! use tidegate::{Engine, Request};
//!
//! # let folder = std::env::temp_dir().join(format!("tidegate-doc-{}", std::process::id()));
//! let policy = Policy::from_toml(r#"
//!     [[rule]]
//!     name  = "calls"
//!     key   = ["user"]
//!     quota = { max = 2, per = "day" }
//! "#)?;
//! let engine = Engine::open(policy.clone(), &folder)?;
//! let ada = Request::new("default", &[("user", "ada")]);
//! assert!(engine.check(&ada).wait()?.is_allowed());
//! drop(engine);
//!
//! // After a restart, or a crash, what was spent is spent.
//! let engine = Engine::open(policy, &folder)?;
//! assert_eq!(engine.check(&ada).wait()?.remaining(), Some(0));
//! assert!(!engine.check(&ada).wait()?.is_allowed());
//! # drop(engine);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is kept, and how safe it is when it is answered, is a matter of each rule's `durability`: quotas
//! are safe against a loss of power unless they say otherwise, everything else is in memory unless it says
//! otherwise.

use std::path::Path;

use crate::clock::{Clock, SystemClock};
use crate::engine::Engine;
use crate::policy::Policy;
use crate::store::{NowOrLater, Outage};

pub use crate::store::KeyName;
pub use crate::store::file::{
    Booking, CheckReport, Disk, DiskFile, EntryKind, FileOptions, FileStore, Filter, Folder,
    Ledger, LedgerEntries, LedgerEntry, LogCounts, OpenError, RepairAction, Totals, Transfer,
    check, check_on, repair, repair_on,
};

impl Engine<FileStore> {
    /// An engine that keeps its states in a folder, and goes on from what is there.
    ///
    /// Its clock is the system's, but never earlier than the last thing that happened.
    pub fn open(policy: Policy, path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let server = policy.server();
        let max_keys = usize::try_from(server.max_keys).unwrap_or(usize::MAX);
        let options = FileOptions::default().max_keys(max_keys).when_full(server.when_full);
        Self::open_with(policy, path, options)
    }

    /// [`open`](Self::open), with options: how many keys there may be is theirs to say, too.
    pub fn open_with(
        policy: Policy,
        path: impl AsRef<Path>,
        options: FileOptions,
    ) -> Result<Self, OpenError> {
        let store = options.open(path.as_ref())?;
        let clock = SystemClock::no_earlier_than(store.last_time());
        Ok(Self::with_store(policy, store, clock))
    }
}

impl<C: Clock + Send + Sync + 'static> Engine<FileStore, C> {
    /// Writes down something that the host wants to remember, and tells when it is safe.
    ///
    /// Notes that belong to a decision are better given [with it](crate::Request::note): then both
    /// survive a crash, or neither does.
    pub fn note(&self, domain: &str, text: &str) -> NowOrLater<'_, Result<(), Outage>> {
        self.store().write_note(domain, text, self.now())
    }

    /// Destroys whose all keys were in which an attribute has this value, and notes about them; reports
    /// how many. What they add up to stays in the ledger, under no name.
    ///
    /// What such a key had spent is forgotten, what it had set aside is given back. Should somebody come
    /// again under that name, it is a new key.
    ///
    /// This reads and partly rewrites the whole log. Edits of the policy that name somebody, and notes
    /// that belong to no key, are not touched.
    pub fn erase(&self, attribute: &str, value: &str) -> Result<u64, OpenError> {
        self.store().erase(attribute, value, self.now().now)
    }

    /// Makes everything safe that was done so far: also edits, which are in force before they are written
    /// down when the disk does not work.
    pub fn sync(&self) -> NowOrLater<'_, Result<(), Outage>> {
        self.store().sync()
    }

    /// Everything that was written down so far and is safe.
    pub fn ledger(&self) -> Result<Ledger, Outage> {
        self.store().sync().wait()?;
        Ok(self.store().ledger())
    }

    /// The store: how much it has written, whether its disk works.
    #[must_use]
    pub fn file_store(&self) -> &FileStore {
        self.store()
    }
}
