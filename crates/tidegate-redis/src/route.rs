//! The way to the server that has the records.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, Value,
};

use crate::address::{Address, Topology};
use crate::error::{self, ConnectFailure};
use crate::locks::lock;
use crate::tls::{self, TlsFiles};

/// A host and a port.
type Host = (String, u16);

/// Finds the server that has the records, and connects to it.
pub(crate) struct Route {
    topology: Topology,
    /// One server; the sentinels; or some nodes of the cluster.
    hosts: Vec<ConnectionInfo>,
    /// How to log in to the server.
    login: RedisConnectionInfo,
    /// The node of the cluster that was last found.
    last_owner: Mutex<Option<Host>>,
}

/// The node of a cluster that has a name.
struct Owner {
    host: Host,
    connection: MultiplexedConnection,
    /// Whether it has a value of that name; false if the user may not read it.
    has_value: bool,
}

/// A user and a password; without a name, the default user.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Route {
    pub(crate) fn new(
        address: Address,
        files: &TlsFiles,
        sentinel_login: Option<&Login>,
    ) -> Result<Self, error::RedisError> {
        let Address { topology, mut hosts, database } = address;
        let has_tls = hosts.iter().any(|it| matches!(it.addr(), ConnectionAddr::TcpTls { .. }));
        if !has_tls && !files.is_empty() {
            let text = "certificates are set, but the address has no TLS: it needs rediss://";
            return Err(error::RedisError::Setting(text.to_owned()));
        }
        if has_tls {
            tls::choose_provider();
            let certificates = files.read()?;
            for info in &mut hosts {
                let client = Client::build_with_tls(info.clone(), certificates.clone());
                let client = client.map_err(|it| error::RedisError::Tls(it.to_string()))?;
                *info = client.get_connection_info().clone();
            }
        }
        let is_sentinel = matches!(topology, Topology::Sentinel(_));
        if sentinel_login.is_some() && !is_sentinel {
            let text = "a login for sentinels is set, but the address has none: redis+sentinel://";
            return Err(error::RedisError::Setting(text.to_owned()));
        }
        let login = hosts.first().map(|it| it.redis_settings().clone()).unwrap_or_default();
        if is_sentinel {
            hosts = hosts
                .into_iter()
                .map(|it| it.set_redis_settings(sentinel_settings(sentinel_login)))
                .collect();
        }
        let login = login.set_db(database);
        Ok(Self { topology, hosts, login, last_owner: Mutex::new(None) })
    }

    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster)
    }

    /// Connects to the server that has a name. Each step on the way has a time-out.
    pub(crate) async fn connect(
        &self,
        name: &str,
        step_timeout: Duration,
    ) -> Result<MultiplexedConnection, ConnectFailure> {
        match &self.topology {
            Topology::Server => match self.hosts.first() {
                Some(info) => Ok(open(info.clone(), step_timeout).await?),
                None => Err(ConnectFailure("the address has no host".to_owned())),
            },
            Topology::Sentinel(primary) => {
                let host = self.primary(primary, step_timeout).await?;
                open(self.info(&host)?, step_timeout).await.map_err(|error| {
                    let (host, port) = host;
                    ConnectFailure(format!("the primary at {host}:{port}: {error}"))
                })
            }
            Topology::Cluster => {
                let found = self.owner(name, step_timeout).await?;
                *lock(&self.last_owner) = Some(found.host);
                Ok(found.connection)
            }
        }
    }

    /// The server that most sentinels take for the primary.
    async fn primary(&self, name: &str, timeout: Duration) -> Result<Host, ConnectFailure> {
        let request = |info: &ConnectionInfo| {
            let info = info.clone();
            async move {
                let mut connection = open(info, timeout).await?;
                let mut command = redis::cmd("SENTINEL");
                command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
                command.query_async::<Option<Host>>(&mut connection).await
            }
        };
        let mut responses: FuturesUnordered<_> = self.hosts.iter().map(request).collect();
        let mut found: Vec<(Host, usize)> = Vec::new();
        let mut failure = "no sentinel".to_owned();
        while let Some(response) = responses.next().await {
            let host = match response {
                Ok(Some(host)) => host,
                Ok(None) => {
                    failure = format!("a sentinel knows no primary of the name {name}");
                    continue;
                }
                Err(error) => {
                    failure = format!("a sentinel: {error}");
                    continue;
                }
            };
            let index = found.iter().position(|(known, _)| *known == host).unwrap_or_else(|| {
                found.push((host, 0));
                found.len() - 1
            });
            found[index].1 += 1;
            // More than half of them: the others do not matter.
            if found[index].1 * 2 > self.hosts.len() {
                return Ok(found.swap_remove(index).0);
            }
        }
        // The first of those that most have named.
        let most = found.into_iter().rev().max_by_key(|(_, count)| *count);
        most.map(|(host, _)| host).ok_or(ConnectFailure(failure))
    }

    /// Whether a node of the cluster has a value of a name that may be in another slot than the records;
    /// false if the user may not read it.
    pub(crate) async fn has_value(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<bool, ConnectFailure> {
        Ok(self.owner(name, timeout).await?.has_value)
    }

    /// The node of a cluster that has a name: others respond with where it is.
    async fn owner(&self, name: &str, timeout: Duration) -> Result<Owner, ConnectFailure> {
        let last = lock(&self.last_owner).clone();
        let seeds = self.hosts.iter().filter_map(|info| host_of(info.addr()));
        let mut next: VecDeque<Host> = last.into_iter().chain(seeds).collect();
        let mut tried: Vec<Host> = Vec::new();
        let mut failure = "no node".to_owned();
        while let Some(host) = next.pop_front() {
            if tried.contains(&host) {
                continue;
            }
            tried.push(host.clone());
            let found = async {
                let mut connection = open(self.info(&host)?, timeout).await?;
                let value = redis::cmd("GET").arg(name).query_async::<Value>(&mut connection).await;
                Ok::<_, RedisError>((connection, value))
            };
            let error = match found.await {
                Ok((connection, Ok(value))) => {
                    return Ok(Owner { host, connection, has_value: value != Value::Nil });
                }
                Ok((connection, Err(error)))
                    if matches!(error.code(), Some("WRONGTYPE" | "NOPERM")) =>
                {
                    let has_value = error.code() == Some("WRONGTYPE");
                    return Ok(Owner { host, connection, has_value });
                }
                Ok((_, Err(error))) | Err(error) => error,
            };
            match (error.code(), error.redirect_node()) {
                (Some("MOVED"), Some((address, _))) if tried.len() < MOST_TRIED => {
                    if let Some(host) = redirected(address, &host) {
                        next.push_front(host);
                    }
                }
                (Some("ASK"), _) => {
                    failure = "the slot of the records is moved to another node".to_owned();
                }
                _ => failure = format!("the node at {}:{}: {error}", host.0, host.1),
            }
        }
        Err(ConnectFailure(failure))
    }

    /// How to connect to a server that was found.
    fn info(&self, (name, number): &Host) -> Result<ConnectionInfo, RedisError> {
        let mut addr = match self.hosts.first() {
            Some(info) => info.addr().clone(),
            None => ConnectionAddr::Tcp(String::new(), 0),
        };
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
            &mut addr
        {
            (*host, *port) = (name.clone(), *number);
        }
        Ok(addr.into_connection_info()?.set_redis_settings(self.login.clone()))
    }
}

/// Without passwords.
impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(|info| info.addr().to_string()).collect();
        let mut text = f.debug_struct("Route");
        text.field("topology", &self.topology).field("hosts", &hosts).finish_non_exhaustive()
    }
}

fn sentinel_settings(login: Option<&Login>) -> RedisConnectionInfo {
    let settings = RedisConnectionInfo::default();
    match login {
        None => settings,
        Some(Login { user: None, password }) => settings.set_password(password),
        Some(Login { user: Some(user), password }) => {
            settings.set_username(user).set_password(password)
        }
    }
}

async fn open(
    info: ConnectionInfo,
    timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The address in a redirection, by the node that sent it: without a host, it is another port of that
/// node.
fn redirected(address: &str, from: &Host) -> Option<Host> {
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { &from.0 } else { host };
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

fn host_of(addr: &ConnectionAddr) -> Option<Host> {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

/// After so many nodes no more redirections are followed.
const MOST_TRIED: usize = 64;
