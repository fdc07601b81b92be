//! The store, as its users see it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tidegate_engine::Outage;
use tidegate_engine::shared::{Listing, RecordStore, SharedStore, Transaction};
use tidegate_policy::policy::Policy;
use tidegate_table::{Clock, MonotonicClock};
use tokio::sync::oneshot;

use crate::address::{Address, Topology};
use crate::driver;
use crate::durability::DurabilityError;
use crate::error::RedisError;
use crate::facts::ServerFacts;
use crate::inbox::Inbox;
use crate::locks::lock;
use crate::nodes::{Node, is_text};
use crate::route::{Login, Route};
use crate::server_time::ServerClock;
use crate::settings::Settings;
use crate::stats::RedisStats;
use crate::tls::{ClientFiles, TlsFiles};

/// A Redis or Valkey server that engines of many processes share.
///
/// It connects in the background, and again whenever the connection is lost. Until then, decisions
/// follow the rules' `on_error`.
#[derive(Clone)]
pub struct Redis {
    records: Arc<RedisRecords>,
    secret: Arc<[u8]>,
}

/// Makes a [`Redis`].
#[derive(Clone)]
pub struct RedisBuilder {
    url: String,
    secret: Option<Secret>,
    files: TlsFiles,
    sentinel_login: Option<Login>,
    password: Option<String>,
    settings: Settings,
}

/// What keys are hashed with.
#[derive(Clone)]
enum Secret {
    Bytes(Vec<u8>),
    /// None, as the program says.
    Without,
}

impl Redis {
    /// A store on the server at an address:
    ///
    /// - `redis://user:password@host:6379/0`, a server; `rediss://` with TLS;
    /// - `redis+sentinel://user:password@host:26379,host:26379/NAME/0`, the primary that sentinels
    ///   know by a name; the user and the password are the server's;
    /// - `redis+cluster://user:password@host:6379,host:6379`, some nodes of a cluster, by which the one
    ///   that has the records is found: those of a namespace are in one slot.
    ///
    /// The last two also begin with `rediss+`; then all connections have TLS.
    #[must_use]
    pub fn builder(url: &str) -> RedisBuilder {
        RedisBuilder {
            url: url.to_owned(),
            secret: None,
            files: TlsFiles::default(),
            sentinel_login: None,
            password: None,
            settings: Settings::default(),
        }
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

    /// Whether the server provides the durability that the rules of a policy set; `Ok` if that is not
    /// known, because there was no connection yet. Decisions by a rule whose durability it lacks
    /// follow the rule's `on_error`.
    ///
    /// # Errors
    ///
    /// The first rule that sets a durability which the server lacks, with the reason.
    pub fn check_durability(&self, policy: &Policy) -> Result<(), DurabilityError> {
        let replicas = self.records.inbox.settings.replicas;
        self.server().map_or(Ok(()), |server| server.check(policy, replicas))
    }

    /// The nodes that share the store, with this one first and the others by their names: all store
    /// handles with the same namespace of the same server that announced themselves within the last
    /// 10 s. Each does so every 2 s, from when there is a policy in the store; at most 1 024 are read.
    ///
    /// `None` if that is not known: before the first reading, while the server is away, and where its
    /// user may not use the record.
    #[must_use]
    pub fn nodes(&self) -> Option<Vec<Node>> {
        let now_ns = MonotonicClock.now().as_nanos();
        lock(&self.records.inbox.nodes).as_ref()?.at(now_ns)
    }

    /// Sets the address that the other nodes list for this one, such as that of a listener. They see
    /// it within some seconds.
    ///
    /// # Errors
    ///
    /// If it is empty, has more than 128 bytes, or has control characters.
    pub fn set_node_address(&self, address: &str) -> Result<(), RedisError> {
        if !is_text(address) {
            return Err(RedisError::Setting(unusable("address")));
        }
        lock(&self.records.inbox.own_node).address = Some(address.to_owned());
        Ok(())
    }

    /// Takes this node off the list, for a process that is about to end. From the call on it does not
    /// announce itself, and soon knows no [`nodes`](Self::nodes); all else goes on.
    ///
    /// It is off the list when the future is ready, or within 10 s if there is no connection. A store
    /// whose last handle is dropped does the same, unless the process ends before.
    pub fn leave(&self) -> impl Future<Output = ()> + Send + 'static {
        let (left, is_off) = oneshot::channel();
        let mut own = lock(&self.records.inbox.own_node);
        own.has_left = true;
        own.leaving.push(left);
        drop(own);
        self.records.inbox.arrived.notify_one();
        async move {
            // It ends when the other side is dropped.
            let _ = is_off.await;
        }
    }

    /// Whether the server responds and does what it is sent, as far as is known. A server that
    /// refuses to write, because it is full for example, is available again with the next commit that
    /// succeeds.
    #[must_use]
    pub fn is_available(&self) -> bool {
        let inbox = &self.records.inbox;
        !inbox.is_breaker_open() && lock(&inbox.refusal).is_none()
    }

    /// Why there is no connection to the server, as of the last attempt, or what the server last
    /// refused. `None` while it does what it is sent, and before the first attempt to connect has failed.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let inbox = &self.records.inbox;
        let lost = lock(&inbox.failure).clone();
        lost.or_else(|| lock(&inbox.refusal).clone())
    }
}

impl RedisBuilder {
    /// What the names of keys on the server are hashed with. It has to be the same in all processes
    /// that share the store, unknown to those who choose keys, and not empty.
    #[must_use]
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(Secret::Bytes(secret.as_ref().to_vec()));
        self
    }

    /// Hashes the names of keys on the server without a secret. Then attributes can be guessed from
    /// them, and those who choose keys can find two that share a limit: for keys that all are trusted.
    #[must_use]
    pub fn without_secret(mut self) -> Self {
        self.secret = Some(Secret::Without);
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

    /// What other nodes list this one as; if not set, the name of the host and the number of the
    /// process, `host:pid`. It has 1 to 128 bytes and no control characters.
    #[must_use]
    pub fn node_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.settings.node_name);
        self
    }

    /// How many replicas have to have a charge before it is acknowledged, of rules with `durability`
    /// `flush` or `fsync`; 0 if not set.
    #[must_use]
    pub const fn replicas(mut self, count: u32) -> Self {
        self.settings.replicas = count;
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

    /// A file in PEM with the certificates that the server's is checked against, instead of those
    /// of the system. For addresses with TLS.
    #[must_use]
    pub fn ca_file(mut self, path: impl AsRef<Path>) -> Self {
        self.files.authority = Some(path.as_ref().to_owned());
        self
    }

    /// Files in PEM with the certificate that the server checks, and with its key. For addresses
    /// with TLS.
    #[must_use]
    pub fn client_certificate_files(
        mut self,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Self {
        let (certificate, key) = (certificate.as_ref().to_owned(), key.as_ref().to_owned());
        self.files.client = Some(ClientFiles { certificate, key });
        self
    }

    /// The password of the server, for an address without one. The address may have the name of a
    /// user.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// How to log in to sentinels, if they require it: a password, and the name of a user unless
    /// it is the default one. The address has the user and the password of the server.
    #[must_use]
    pub fn sentinel_login(mut self, user: Option<&str>, password: &str) -> Self {
        let (user, password) = (user.map(str::to_owned), password.to_owned());
        self.sentinel_login = Some(Login { user, password });
        self
    }

    /// The store. It begins to connect.
    ///
    /// # Errors
    ///
    /// If the address, a setting or a file cannot be used, or if there is neither a
    /// [secret](Self::secret) nor [is it said](Self::without_secret) that there is none.
    pub fn build(mut self) -> Result<Redis, RedisError> {
        let mut address = Address::parse(&self.url)?;
        if let Some(password) = &self.password {
            address.set_password(password)?;
        }
        self.settings.namespace = self.namespace_of(&address)?;
        if !is_text(&self.settings.node_name) {
            return Err(RedisError::Setting(unusable("name")));
        }
        let route = Route::new(address, &self.files, self.sentinel_login.as_ref())?;
        let secret = self.secret_bytes()?;
        let inbox = Arc::new(Inbox::new(self.settings));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| RedisError::Thread(error.to_string()))?;
        let driven = Arc::clone(&inbox);
        thread::Builder::new()
            .name("tidegate-redis".to_owned())
            .spawn(move || runtime.block_on(driver::run(driven, Arc::new(route))))
            .map_err(|error| RedisError::Thread(error.to_string()))?;
        Ok(Redis { records: Arc::new(RedisRecords { inbox }), secret })
    }

    fn secret_bytes(&mut self) -> Result<Arc<[u8]>, RedisError> {
        match self.secret.take() {
            Some(Secret::Bytes(bytes)) if !bytes.is_empty() => Ok(bytes.into()),
            Some(Secret::Without) => Ok(Arc::default()),
            Some(Secret::Bytes(_)) | None => Err(RedisError::Setting(
                "the store has no secret to hash keys with: set secret, or without_secret if all keys \
                 are trusted"
                    .to_owned(),
            )),
        }
    }

    /// What names begin with: in a cluster with a hash tag, so that all of them are in one slot.
    fn namespace_of(&self, address: &Address) -> Result<String, RedisError> {
        let namespace = &self.settings.namespace;
        let refused = |text: &str| Err(RedisError::Setting(text.to_owned()));
        let is_letter = |it: char| it.is_ascii_alphanumeric() || "._-:{}".contains(it);
        if namespace.is_empty() || namespace.len() > 64 || !namespace.chars().all(is_letter) {
            return refused("the namespace has to be 1 to 64 letters, digits and ._-:{}");
        }
        if address.topology != Topology::Cluster {
            return Ok(namespace.clone());
        }
        if !namespace.contains(['{', '}']) {
            return Ok(format!("{{{namespace}}}"));
        }
        let (_, after) = namespace.split_once('{').unwrap_or_default();
        if after.find('}').is_none_or(|end| end == 0) {
            return refused("in a cluster, a namespace with { or } has to have a hash tag: {text}");
        }
        Ok(namespace.clone())
    }
}

/// Why a node cannot have a name or an address.
fn unusable(what: &str) -> String {
    format!("the {what} of a node has to be 1 to 128 bytes without control characters")
}

/// Without the address, which may have a password, and without the secret.
impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("RedisBuilder");
        text.field("files", &self.files);
        text.field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Without the secret.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("records", &self.records).finish_non_exhaustive()
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

    fn clock(&self) -> Arc<dyn Clock + Send + Sync> {
        Arc::new(self.inbox.clock.clone())
    }

    fn states(&self, from: u64) -> Listing {
        let listed = self.inbox.list(from);
        Box::pin(async move { listed.await.unwrap_or(Err(Outage::Unavailable)) })
    }

    fn len(&self) -> usize {
        lock(&self.inbox.known).cache.states()
    }

    fn is_full(&self, max_records: usize) -> bool {
        self.inbox.keys.load(Ordering::Relaxed) >= max_records as u64
    }
}

impl Drop for RedisRecords {
    fn drop(&mut self) {
        self.inbox.is_closed.store(true, Ordering::Release);
        self.inbox.arrived.notify_one();
    }
}
