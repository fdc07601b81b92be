//! A store on disk: states survive the process, in a folder that one process at a time uses.
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
//! let engine = Engine::builder(policy.clone()).folder(&folder).build()?;
//! let ada = Request::new("default", &[("user", "ada")]);
//! assert!(engine.check(&ada).block()?.is_allowed());
//! drop(engine);
//!
//! // After a restart, or a crash, the charge is still there.
//! let engine = Engine::builder(policy).folder(&folder).build()?;
//! assert_eq!(engine.check(&ada).block()?.remaining(), Some(0));
//! assert!(!engine.check(&ada).block()?.is_allowed());
//! # drop(engine);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each rule's `durability` decides what is durable before it is acknowledged: quotas are synced
//! unless their rule sets another durability, everything else is in memory unless its rule sets
//! one.

use crate::engine::StoreEngine;
use crate::store::{Answer, Outage};

pub use crate::plan::KeyName;
pub use crate::store::actions::{EntryKind, Transfer};
pub use crate::store::file::{
    Booking, CheckReport, FileOptions, FileStore, Filter, KeyNames, KeyNamesBound, Ledger,
    LedgerEntries, LedgerEntry, OpenError, ReadableTotals, Totals, TotalsBy, check, check_on,
    repair, repair_on,
};
pub use tidegate_log::{
    Disk, DiskFile, FileIdentity, Folder, LogCounts, LogError, NamedFile, RepairAction,
};

/// What only a store on disk has.
impl StoreEngine {
    /// The store on disk, if the engine has one: the counts of its log, and whether its disk works.
    #[must_use]
    pub fn file_store(&self) -> Option<&FileStore> {
        self.store().file()
    }

    /// Writes a note of the host into the ledger; it resolves when the note is durable. Without a
    /// ledger it is [`Outage::NoLedger`].
    ///
    /// A note that belongs to a decision is better sent [with it](crate::Request::note): then both
    /// survive a crash, or neither does.
    pub fn note(&self, domain: &str, text: &str) -> Answer<Result<(), Outage>> {
        match self.file_store() {
            Some(store) => store.write_note(domain, text, self.now()),
            None => Answer::Ready(Err(Outage::NoLedger)),
        }
    }

    /// Erases the names of all keys in which an attribute has this value, and notes about them;
    /// returns how many. Their totals stay in the ledger, without a name. Other stores than those on
    /// disk keep no names.
    ///
    /// The charges of such a key are dropped, its holds are released. A later request with that
    /// name has a new key.
    ///
    /// This reads and partly rewrites the whole log. Edits of the policy with the name, and notes
    /// that belong to no key, are not touched.
    pub fn erase(&self, attribute: &str, value: &str) -> Result<u64, OpenError> {
        let now = self.now().now;
        self.file_store().map_or(Ok(0), |store| store.erase(attribute, value, now))
    }

    /// Makes everything so far durable, if the store is on disk: also edits, which are in force before
    /// they are written when the disk fails.
    pub fn sync(&self) -> Answer<Result<(), Outage>> {
        self.file_store().map_or(Answer::Ready(Ok(())), FileStore::sync)
    }

    /// The ledger: everything so far that is durable. Without one it is [`Outage::NoLedger`].
    pub fn ledger(&self) -> Result<Ledger, Outage> {
        let store = self.file_store().ok_or(Outage::NoLedger)?;
        store.sync().block()?;
        Ok(store.ledger())
    }
}
