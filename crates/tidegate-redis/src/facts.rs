//! What a server says of itself.

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFacts {
    /// `redis` or `valkey`.
    pub program: &'static str,
    /// Its version.
    pub version: [u32; 3],
    /// What it does when its memory is full, such as `noeviction`.
    pub eviction: String,
    /// How many replicas are connected to it.
    pub replicas: u32,
    /// How far they are behind.
    pub lag: ReplicaLag,
    /// How it syncs its log of changes.
    pub log: LogSync,
    /// How many keys its database has, of this and of other programs; `None` if that cannot be read.
    pub keys: Option<u64>,
    /// Identifies the process.
    pub(crate) run_id: String,
    /// Whether `WAIT` may be used.
    pub(crate) can_wait: bool,
    /// Whether `WAITAOF` may be used.
    pub(crate) has_waitaof: bool,
    /// Whether settings may be read.
    pub(crate) can_read_settings: bool,
    /// Whether keys may be counted.
    pub(crate) can_count: bool,
    /// Whether nodes may be listed.
    pub(crate) can_announce: bool,
}

/// How a server syncs its log of changes, from the least to the most durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LogSync {
    /// It has no log: `appendonly no`.
    None,
    /// At times that cannot be known: its setting may not be read, and there is no `WAITAOF`.
    Unseen,
    /// At other times than before it responds, or its setting may not be read; `WAITAOF` waits for it.
    Later,
    /// Before it responds: `appendfsync always`.
    Always,
}

/// How far replicas are behind their primary, by what it last heard from them, at most a second ago:
/// that of the one that is furthest behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaLag {
    /// What has not been acknowledged, in bytes.
    pub bytes: u64,
    /// The time since the last acknowledgement, in seconds.
    pub seconds: u64,
}

impl ServerFacts {
    pub(crate) fn read(info: &str) -> Option<Self> {
        let (program, version) = match info_field(info, "valkey_version") {
            Some(version) => ("valkey", version),
            None => ("redis", info_field(info, "redis_version")?),
        };
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        let mut part = || parts.next().unwrap_or(0);
        let mut facts = Self {
            program,
            version: [part(), part(), part()],
            eviction: info_field(info, "maxmemory_policy").unwrap_or_default().to_owned(),
            replicas: 0,
            lag: ReplicaLag::default(),
            log: LogSync::None,
            keys: None,
            run_id: info_field(info, "run_id").unwrap_or_default().to_owned(),
            can_wait: false,
            has_waitaof: false,
            can_read_settings: false,
            can_count: true,
            can_announce: true,
        };
        facts.update(info, None);
        Some(facts)
    }

    /// Takes over what changes while the server runs: its replicas and its log. The setting
    /// `appendfsync` is `None` where it may not be read.
    pub(crate) fn update(&mut self, info: &str, appendfsync: Option<&str>) {
        self.replicas = number(info_field(info, "connected_slaves"));
        let offset: u64 = number(info_field(info, "master_repl_offset"));
        self.lag = ReplicaLag::default();
        for replica in info.lines().filter_map(replica_fields) {
            let field = |name: &str| {
                replica.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
            };
            let behind = offset.saturating_sub(number(field("offset")));
            self.lag.bytes = self.lag.bytes.max(behind);
            self.lag.seconds = self.lag.seconds.max(number(field("lag").map(str::trim)));
        }
        self.log = match (info_field(info, "aof_enabled"), appendfsync) {
            (Some("1"), Some("always")) => LogSync::Always,
            (Some("1"), _) if self.has_waitaof => LogSync::Later,
            (Some("1"), _) => LogSync::Unseen,
            _ => LogSync::None,
        };
    }
}

/// Its program and version, such as `valkey 9.1.2`.
impl std::fmt::Display for ServerFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.version;
        write!(f, "{} {major}.{minor}.{patch}", self.program)
    }
}

/// A field in the response to `INFO`.
pub(crate) fn info_field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// What a line of `INFO` says of a replica: `slave0:ip=…,state=online,offset=…,lag=…`.
fn replica_fields(line: &str) -> Option<&str> {
    let (digits, fields) = line.strip_prefix("slave")?.split_once(':')?;
    digits.bytes().all(|it| it.is_ascii_digit()).then_some(fields)
}

fn number<N: std::str::FromStr + Default>(text: Option<&str>) -> N {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
