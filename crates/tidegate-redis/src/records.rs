//! The store, as its users see it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use redis::Client;
use tidegate::Outage;
use tidegate::shared::{Listing, RecordStore, SharedStore, Transaction};

use crate::driver;
use crate::inbox::{Inbox, lock};
use crate::link::ServerFacts;
use crate::server_time::ServerClock;
use crate::settings::Settings;
use crate::stats::RedisStats;

/// A Redis or Valkey server that engines of many processes share.
///
/// It connects in the background, and again whenever the connection is lost. Until then, decisions
/// follow the rules' `on_error`.
#[derive(Clone, Debug)]
pub struct Redis {
    records: Arc<RedisRecords>,
    secret: Arc<[u8]>,
}

/// Makes a [`Redis`].
#[derive(Clone, Debug)]
pub struct RedisBuilder {
    url: String,
    secret: Option<Vec<u8>>,
    settings: Settings,
}

/// Why a store cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisError {
    /// The address is none, with the reason.
    Url(String),
    /// A setting has no meaning, with the reason.
    Setting(String),
    /// There is no thread for it, with the reason.
    Thread(String),
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(reason) => write!(f, "the address of the store cannot be used: {reason}"),
            Self::Setting(reason) => f.write_str(reason),
            Self::Thread(reason) => write!(f, "the store has no thread: {reason}"),
        }
    }
}

impl std::error::Error for RedisError {}

impl Redis {
    /// A store on the server at an address, such as `redis://user:password@host:6379`.
    #[must_use]
    pub fn builder(url: &str) -> RedisBuilder {
        RedisBuilder { url: url.to_owned(), secret: None, settings: Settings::default() }
    }

    /// The store of an engine.
    #[must_use]
    pub fn store(&self) -> SharedStore {
        SharedStore::new(Arc::clone(&self.records), &self.secret)
    }

    /// The clock of an engine: the server's.
    #[must_use]
    pub fn clock(&self) -> ServerClock {
        self.records.inbox.clock.clone()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> RedisStats {
        self.records.inbox.counters.get()
    }

    /// The server that it was last connected to; `None` before that.
    #[must_use]
    pub fn server(&self) -> Option<ServerFacts> {
        lock(&self.records.inbox.known).server.clone()
    }

    /// Whether the server responds, as far as is known.
    #[must_use]
    pub fn is_available(&self) -> bool {
        !self.records.inbox.is_breaker_open()
    }
}

impl RedisBuilder {
    /// What the names of keys on the server are hashed with. It has to be the same in all processes
    /// that share the store, and unknown to those who choose keys.
    #[must_use]
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// What all names on the server begin with; `tidegate` if not set.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.settings.namespace);
        self
    }

    /// How long a decision may take before it follows `on_error`; 50 ms if not set.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// How far ahead of time edits take force, so that all processes know of them; 1 s if not set.
    /// It has to be the same in all of them.
    #[must_use]
    pub fn edit_lead(mut self, lead: Duration) -> Self {
        self.settings.edit_lead = lead;
        self
    }

    /// How much longer than it is needed a record is kept; at least 60 s, and that if not set.
    ///
    /// The server removes records by its own clock. Where the engine has another one, which may
    /// stand still or be behind, they have to be kept for as long as that.
    #[must_use]
    pub fn kept_longer(mut self, by: Duration) -> Self {
        self.settings.kept_longer = by.max(Duration::from_secs(60));
        self
    }

    /// The store. It begins to connect.
    ///
    /// # Errors
    ///
    /// If the address or a setting cannot be used.
    pub fn build(self) -> Result<Redis, RedisError> {
        let Self { url, secret, settings } = self;
        let client = Client::open(&*url).map_err(|error| RedisError::Url(error.to_string()))?;
        let is_name = |name: &str| {
            let is_letter = |it: char| it.is_ascii_alphanumeric() || "._-:{}".contains(it);
            !name.is_empty() && name.len() <= 64 && name.chars().all(is_letter)
        };
        if !is_name(&settings.namespace) {
            let text = "the namespace has to be 1 to 64 letters, digits and ._-:{}";
            return Err(RedisError::Setting(text.to_owned()));
        }
        let inbox = Arc::new(Inbox::new(settings));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| RedisError::Thread(error.to_string()))?;
        let driven = Arc::clone(&inbox);
        thread::Builder::new()
            .name("tidegate-redis".to_owned())
            .spawn(move || runtime.block_on(driver::run(driven, client)))
            .map_err(|error| RedisError::Thread(error.to_string()))?;
        let secret = secret.unwrap_or_default().into();
        Ok(Redis { records: Arc::new(RedisRecords { inbox }), secret })
    }
}

/// Records on a server.
#[derive(Debug)]
struct RedisRecords {
    inbox: Arc<Inbox>,
}

impl RecordStore for RedisRecords {
    fn run(&self, transaction: Transaction) {
        self.inbox.submit(transaction);
    }

    fn states(&self, from: u64) -> Listing {
        let listed = self.inbox.list(from);
        Box::pin(async move { listed.await.unwrap_or(Err(Outage::Unavailable)) })
    }

    fn len(&self) -> usize {
        lock(&self.inbox.known).cache.states()
    }
}

impl Drop for RedisRecords {
    fn drop(&mut self) {
        self.inbox.is_closed.store(true, Ordering::Release);
        self.inbox.arrived.notify_one();
    }
}
