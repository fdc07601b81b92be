//! The connection to a server, and what it can do.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tidegate::shared::RecordKey;

use crate::commands::{COMMIT, Dialect, READ_IF_CHANGED};
use crate::error::ConnectFailure;
use crate::route::Route;
use crate::settings::Settings;
use crate::slots::Host;

/// A connection, and what the server at its other end can do.
pub(crate) struct Link {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) dialect: Dialect,
    pub(crate) server: ServerFacts,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// `redis` or `valkey`.
    pub program: &'static str,
    /// Its version.
    pub version: [u32; 3],
    /// What it does when its memory is full, such as `noeviction`.
    pub eviction: String,
    /// How many replicas it has.
    pub replicas: u32,
}

impl Link {
    /// Connects to a node of a cluster, or to the server that has all records, and prepares it.
    pub(crate) async fn connect(
        route: &Route,
        settings: &Settings,
        node: Option<&Host>,
    ) -> Result<Self, ConnectFailure> {
        let prefix = format!("{}:", settings.namespace);
        let timeout = CONNECT_TIMEOUT.max(settings.deadline);
        let mut connection = match node {
            Some(host) => route.connect_to(host, timeout).await?,
            None => route.connect(&format!("{prefix}{}", RecordKey::control()), timeout).await?,
        };
        let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
        let server = ServerFacts::read(&info).ok_or_else(|| {
            ConnectFailure("the server does not say its version (INFO)".to_owned())
        })?;
        if server.program == "redis" && server.version < [7, 0, 0] {
            let [major, minor, patch] = server.version;
            let text = format!("Redis {major}.{minor}.{patch} is too old: 7.0 is needed");
            return Err(ConnectFailure(text));
        }
        match (info_field(&info, "cluster_enabled") == Some("1"), route.is_cluster()) {
            (true, false) => {
                let text = "the server is a node of a cluster: the address needs redis+cluster://";
                return Err(ConnectFailure(text.to_owned()));
            }
            (false, true) => {
                let text = "the server is no node of a cluster: the address needs redis://";
                return Err(ConnectFailure(text.to_owned()));
            }
            _ => {}
        }
        if info_field(&info, "role").is_some_and(|role| role != "master") {
            return Err(ConnectFailure("the server is a replica".to_owned()));
        }
        let mut load = async |script: &str| -> Result<String, RedisError> {
            redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await
        };
        let (commit_sha, read_sha) = (load(COMMIT).await?, load(READ_IF_CHANGED).await?);
        let has_ifeq = match server.program {
            "valkey" => server.version >= [8, 1, 0],
            _ => server.version >= [8, 4, 0],
        };
        let dialect = Dialect {
            prefix,
            has_ifeq,
            commit_sha,
            read_sha,
            kept_longer: settings.kept_longer,
            shares_calls: node.is_none(),
        };
        // A batch has its own deadline.
        connection.set_response_timeout(Duration::from_secs(3_600));
        Ok(Self { connection, dialect, server })
    }

    /// Loads the scripts again, which the server may have dropped.
    pub(crate) async fn load_scripts(
        mut connection: MultiplexedConnection,
    ) -> Result<(), RedisError> {
        for script in [COMMIT, READ_IF_CHANGED] {
            let _: Value =
                redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Its program and version, such as `valkey 9.1.2`.
impl std::fmt::Display for ServerFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.version;
        write!(f, "{} {major}.{minor}.{patch}", self.program)
    }
}

impl ServerFacts {
    fn read(info: &str) -> Option<Self> {
        let (program, version) = match info_field(info, "valkey_version") {
            Some(version) => ("valkey", version),
            None => ("redis", info_field(info, "redis_version")?),
        };
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        let mut part = || parts.next().unwrap_or(0);
        Some(Self {
            program,
            version: [part(), part(), part()],
            eviction: info_field(info, "maxmemory_policy").unwrap_or_default().to_owned(),
            replicas: info_field(info, "connected_slaves")
                .and_then(|it| it.parse().ok())
                .unwrap_or(0),
        })
    }
}

/// A field in the response to `INFO`.
pub(crate) fn info_field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// How long connecting, and each command on the way to it, may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
